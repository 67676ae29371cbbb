"""GROUP BY: keys, and the value of each aggregate, exact at every time of the interval.

It has two parts. `partial` runs before the exchange, with the producer: it sums rows by (key,
time), so that at most one row for each (key, time) is sent, and it sends the values for min,
max, quantiles and DISTINCT as (key, value, time) with summed diffs. `step` runs in the bucket
of the key: running totals over (key, time), added to the state, give the totals at every
change.

For each key the result before and after each of its times is computed from the totals alone;
where they differ, the old row is retracted and the new one inserted. So the retracted row
equals the emitted one, bit for bit, on every replica (rule 23).

A key with a negative row count is an error at that time, and so is an aggregate that does not
fit its type. Without keys there is always one row, from the as_of on (rule 42).

State: one row a key with its totals (`trace.arrange.keyed`), and one thin arrangement for each
argument of min, max and DISTINCT (`operators.min_max`) and of `operators.quantiles`.
Cost: O(changes), and a search in the state for each key that changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators import (
    accumulators,
    finalize,
    group_contents,
    min_max,
    quantiles,
    recomputed,
)
from streams.operators.accumulators import AccumulatorSlot, GroupAccumulators, Sum
from streams.operators.context import ERRORS, NEGATIVE, EngineCall, NodeOutput, Ports
from streams.operators.interesting_times import InterestingTimes
from streams.operators.interesting_times import of_rows as moments_of
from streams.operators.min_max import ExtremeSearch, ExtremeValues
from streams.operators.quantiles import QuantileValues
from streams.operators.recomputed import RecomputedValues
from streams.plan.physical import Aggregate, Reduce
from streams.trace.arrange import keyed
from streams.trace.arrange.runs import RunName
from streams.trace.columns import Flags, Ints, canonical, equal_rows, group, int64, key_form
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, flatten

_KEYS = "keys"


@dataclass(frozen=True, slots=True)
class ReduceShape:
    """State and packets of a Reduce over an input of given types."""

    node: Reduce
    types: tuple[pa.DataType, ...]
    slots: tuple[AccumulatorSlot, ...]
    sorted_arguments: tuple[int, ...]
    reads: tuple[int, ...]
    partial: pa.Schema
    """The rows of `partial`: totals by (key, time)."""
    state: pa.Schema
    """The runs of the keyed arrangement: totals, each min and max last emitted, and what is
    kept of each quantile."""

    @property
    def extremes(self) -> list[Aggregate]:
        """The aggregates that are minima and maxima."""
        return _extremes(self.node)

    @property
    def quantiles(self) -> list[Aggregate]:
        """The aggregates that are quantiles found by search."""
        return [aggregate for aggregate in self.node.aggregates if aggregate.share]

    @property
    def general(self) -> list[Aggregate]:
        """The aggregates that are recomputed."""
        return [aggregate for aggregate in self.node.aggregates if aggregate.sql]

    @property
    def rows(self) -> pa.Schema:
        """Input of the recomputed aggregates: changes of what they read."""
        data = [pa.field(f"c{read}", self.types[read]) for read in self.reads]
        return group_contents.schema([self.types[key] for key in self.node.keys], data)


def shape(node: Reduce, types: Sequence[pa.DataType]) -> ReduceShape:
    """The shape of a Reduce.

    Errors: InvalidUsage for an aggregate we do not have.
    """
    slots = accumulators.slots_of(node.aggregates, types)
    wanted = {
        aggregate.argument
        for aggregate in node.aggregates
        if aggregate.argument is not None
        and (aggregate.distinct or aggregate.share or aggregate.function in {"min", "max"})
    }
    keys = [pa.field(f"k{i}", types[key]) for i, key in enumerate(node.keys)]
    sums = [pa.field("n", pa.int64())]
    for index, slot in enumerate(slots):
        sums += slot.fields(index)
    last = [
        pa.field(f"m{index}", min_max.stored_type(types[aggregate.argument]))
        for index, aggregate in enumerate(_extremes(node))
        if aggregate.argument is not None
    ]
    searched = [aggregate.argument for aggregate in node.aggregates if aggregate.share]
    for index, argument in enumerate(searched):
        assert argument is not None, "a quantile has an argument"
        last += quantiles.fields(index, types[argument])
    return ReduceShape(
        node=node,
        types=tuple(types),
        slots=slots,
        sorted_arguments=tuple(sorted(wanted)),
        reads=recomputed.columns_read(node.aggregates),
        partial=pa.schema([*keys, pa.field("time", pa.int64()), *sums]),
        state=keyed.schema([key.type for key in keys], [*sums, *last]),
    )


def _extremes(node: Reduce) -> list[Aggregate]:
    aggregates = [
        aggregate for aggregate in node.aggregates if aggregate.function in {"min", "max"}
    ]
    return [aggregate for aggregate in aggregates if not aggregate.sql]


def partial(of: ReduceShape, rows: pa.RecordBatch, kernel: Kernel) -> dict[str, pa.RecordBatch]:
    """Partial aggregates of these rows, by port."""
    if not rows.num_rows:
        return {}
    keys = [canonical(rows.column(key)) for key in of.node.keys]
    forms = [key_form(key, kernel) for key in keys]
    by_key = group(forms, rows.num_rows)
    times, diffs = int64(rows.column("time")), int64(rows.column("diff"))
    groups = by_key if times.min() == times.max() else group([by_key.ids, times], len(times))
    plain = [slot for slot in of.slots if not slot.distinct]
    totals = accumulators.of_rows(groups, diffs, rows.column, plain)
    first = pa.array(groups.first)
    everything = (
        totals if plain == [*of.slots] else _with_distinct(totals, of.slots, groups.count)
    )
    columns = [*(key.take(first) for key in keys), pa.array(times[groups.first])]
    columns += accumulators.store(everything, of.slots)
    result = {"partial": pa.RecordBatch.from_arrays(columns, schema=of.partial)}
    for argument in of.sorted_arguments:
        result[min_max.name(argument)] = min_max.partial(keys, by_key, rows, argument, kernel)
    if of.reads:
        columns = [*keys, *(rows.column(read) for read in of.reads), *rows.columns[-2:]]
        changes = pa.RecordBatch.from_arrays(columns, schema=of.rows)
        result[recomputed.ROWS] = consolidate(changes, kernel)
    return result


def _with_distinct(
    totals: GroupAccumulators, slots: Sequence[AccumulatorSlot], size: int
) -> GroupAccumulators:
    """The totals with empty parts for the DISTINCT slots, which the step fills."""
    empty = accumulators.empty_groups(size, slots)
    counts, sums = list(empty.counts), list(empty.sums)
    plain = [index for index, slot in enumerate(slots) if not slot.distinct]
    for index, count, total in zip(plain, totals.counts, totals.sums, strict=True):
        counts[index], sums[index] = count, total
    return GroupAccumulators(totals.rows, tuple(counts), tuple(sums))


def step(
    of: ReduceShape,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    output_types: Sequence[str],
    scope: EngineCall,
    *,
    birth: bool,
) -> NodeOutput:
    """The changes of the groups over the interval, the errors, and the new runs.

    Args:
        of: the shape of the operator.
        ports: what `partial` sent, from everywhere.
        runs: the operator's runs.
        output_types: the DuckDB types of the output.
        scope: the interval, and the worker's means.
        birth: whether the single row of an operator without keys is born in this call.
    """
    rows = flatten(ports.get("partial", []), of.partial)
    if birth:
        rows = flatten([rows, _birth(of, int(scope.interval.lower))], of.partial)
    if not rows.num_rows:
        return NodeOutput(None, runs=runs)
    kernel, files = scope.kernel, scope.context.files
    width, times = len(of.node.keys), int64(rows.column("time"))
    moments, groups = moments_of(rows.columns[:width], times, kernel)
    changes = accumulators.sum_by_group(accumulators.read(rows, of.slots), groups)
    stored = keyed.find(
        files, runs.get(_KEYS, []), moments.forms, moments.hashes, of.state, kernel
    )
    old = accumulators.choose(accumulators.read(stored.rows, of.slots), stored.places)
    sorted_, run_names = _ordered(of, ports, moments, stored, runs, scope)
    distinct = accumulators.replace_parts(changes, sorted_.distinct)
    after = accumulators.running_totals(old, distinct, moments.owner)
    had = stored.places >= 0 if not width else old.rows > 0
    values, negative, kept_rows = _recomputed(of, ports, moments, runs, scope)
    run_names |= kept_rows
    for quantile in sorted_.quantiles:
        negative = negative | quantile.negative
    changed = ChangedGroups(of, moments, (old, after), had, sorted_, values, negative)
    output, errors = changed.emit(output_types, kernel)
    last = after if moments.single else accumulators.choose(after, moments.last)
    state = _state(of, moments, last, sorted_)
    run_names[_KEYS] = keyed.insert(files, runs.get(_KEYS, []), state, width, kernel)
    return NodeOutput(output, errors, run_names)


@dataclass(frozen=True, slots=True)
class OrderedResults:
    """Results of the ordered arrangements, and DISTINCT changes by their slots."""

    minima: list[ExtremeValues]
    quantiles: list[QuantileValues]
    distinct: dict[int, tuple[Ints, Sum]]


def _ordered(
    of: ReduceShape,
    ports: Ports,
    moments: InterestingTimes,
    stored: keyed.Found,
    runs: Mapping[str, list[RunName]],
    scope: EngineCall,
) -> tuple[OrderedResults, dict[str, list[RunName]]]:
    """Update the arrangements of argument values; return the results and the new runs."""
    minima: dict[int, ExtremeValues] = {}
    searched: dict[int, QuantileValues] = {}
    distinct: dict[int, tuple[Ints, Sum]] = {}
    run_names: dict[str, list[RunName]] = {}
    keys = [of.types[key] for key in of.node.keys]
    for argument in of.sorted_arguments:
        name, kind = min_max.name(argument), of.types[argument]
        names = runs.get(name, [])
        touched, before, run_names[name] = min_max.step(
            argument, ports, names, (keys, kind), moments, scope
        )
        for index, aggregate in enumerate(of.extremes):
            if aggregate.argument == argument:
                last = stored.rows_or_null(f"m{index}")
                search = ExtremeSearch(
                    moments, before, scope.kernel, aggregate.function == "max"
                )
                minima[index] = min_max.extreme(touched, last, search)
        wanted = [
            (i, aggregate)
            for i, aggregate in enumerate(of.quantiles)
            if aggregate.argument == argument
        ]
        state = quantiles.QuantileState(stored, moments, before, scope.kernel)
        searched |= quantiles.of_argument(touched, wanted, state)
        for index, slot in enumerate(of.slots):
            if slot.distinct and slot.argument == argument:
                distinct[index] = min_max.distinct(touched, moments, before, slot, scope.kernel)
    first = [minima[index] for index in range(len(minima))]
    return OrderedResults(
        first, [searched[i] for i in range(len(searched))], distinct
    ), run_names


def _recomputed(
    of: ReduceShape,
    ports: Ports,
    moments: InterestingTimes,
    runs: Mapping[str, list[RunName]],
    scope: EngineCall,
) -> tuple[list[RecomputedValues], Flags, dict[str, list[RunName]]]:
    """The recomputed aggregates, negative counts of rows, and the new runs."""
    if not of.general:
        return [], np.zeros(len(moments.hashes) + len(moments.owner), np.bool_), {}
    rows = consolidate(flatten(ports.get(recomputed.ROWS, []), of.rows), scope.kernel)
    width, names = len(of.node.keys), runs.get(recomputed.ROWS, [])
    contents, run_names = group_contents.of_changes(rows, width, moments, names, scope)
    kinds = scope.dataflow.types[of.node.input]
    types = {f"c{read}": kinds[read] for read in of.reads}
    values, negative = recomputed.recomputed(contents, of.general, types, scope.kernel)
    return values, negative, {recomputed.ROWS: run_names}


def _birth(of: ReduceShape, time: int) -> pa.RecordBatch:
    """A change of nothing at `time`, so that the row over no rows is emitted."""
    columns = [
        pa.array([time]),
        *accumulators.store(accumulators.empty_groups(1, of.slots), of.slots),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=of.partial)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The values of groups: aggregate columns, whether there is a row, or an error."""

    columns: list[pa.Array]
    there: Flags
    error: Ints


@dataclass(frozen=True, slots=True)
class ChangedGroups:
    """The groups before the interval and at each of its moments.

    `states` are the totals of both, `had` says which groups had a row (or an error) before.
    """

    of: ReduceShape
    moments: InterestingTimes
    states: tuple[GroupAccumulators, GroupAccumulators]
    had: Flags
    sorted: OrderedResults
    recomputed: list[RecomputedValues]
    negative: Flags

    def emit(
        self, output_types: Sequence[str], kernel: Kernel
    ) -> tuple[pa.RecordBatch | None, tuple[pa.RecordBatch, ...]]:
        """At each moment the row before it retracted and the row after it inserted."""
        old, after = self.states
        has = np.ones(len(after.rows), np.bool_) if not self.of.node.keys else after.rows > 0
        # Place i of the whole is group i before the interval; place count + j is moment j.
        minima = [
            pa.concat_arrays([extreme.before, extreme.after]) for extreme in self.sorted.minima
        ]
        rows = self._rows(
            accumulators.concatenate(old, after), np.concatenate((self.had, has)), minima
        )
        owner, count, there = self.moments.owner, len(old.rows), rows.there
        current = np.arange(count, count + len(owner))
        previous = owner
        if not self.moments.single:
            previous = np.where(np.diff(owner, prepend=-1) != 0, owner, current - 1)
        unchanged = there[previous] & there[count:]
        before = pa.array(previous)
        for column in rows.columns:
            form = key_form(column, kernel)
            was = form.slice(0, count) if self.moments.single else form.take(before)
            unchanged &= equal_rows(was, form.slice(count))
        gone = np.flatnonzero(there[previous] & ~unchanged)
        come = np.flatnonzero(there[count:] & ~unchanged)
        changed = np.concatenate((gone, come))
        source = pa.array(np.concatenate((previous[gone], current[come])))
        arrays = [key.take(pa.array(owner[changed])) for key in self.moments.keys]
        arrays += [column.take(source) for column in rows.columns]
        arrays += [pa.array(self.moments.times[changed]), _signs(gone, come)]
        output = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(output_types))
        return output, self._errors(rows.error[previous], rows.error[count:])

    def _rows(
        self, state: GroupAccumulators, alive: Flags, minima: Sequence[pa.Array]
    ) -> _Rows:
        columns, error = [], np.full(len(state.rows), -1, np.int64)
        error[(state.rows < 0) | self.negative] = len(self.of.node.aggregates)
        least, values = iter(minima), iter(self.recomputed)
        searched = iter(self.sorted.quantiles)
        for index, aggregate in enumerate(self.of.node.aggregates):
            if aggregate.sql:
                again = next(values)
                columns.append(again.column)
                error = np.where((error < 0) & again.failed & alive, index, error)
                continue
            if aggregate.share:
                columns.append(next(searched).column)
                continue
            if aggregate.function in {"min", "max"}:
                assert aggregate.argument is not None
                columns.append(_unstored(next(least), self.of.types[aggregate.argument]))
                continue
            value = finalize.value(aggregate, state, self.of.slots, self.of.types)
            columns.append(value.column)
            if value.failed is not None:
                error = np.where((error < 0) & value.failed & alive, index, error)
        return _Rows(columns, alive & (error < 0), error)

    def _errors(self, before: Ints, after: Ints) -> tuple[pa.RecordBatch, ...]:
        changed = before != after
        if not changed.any():
            return ()
        aggregates = self.of.node.aggregates
        texts = [_failure(aggregate) for aggregate in aggregates]
        texts.append(NEGATIVE)
        gone = np.flatnonzero(changed & (before >= 0))
        come = np.flatnonzero(changed & (after >= 0))
        which = np.concatenate((before[gone], after[come]))
        times = self.moments.times[np.concatenate((gone, come))]
        arrays = [pa.array(texts).take(pa.array(which)), pa.array(times), _signs(gone, come)]
        return (pa.RecordBatch.from_arrays(arrays, schema=ERRORS),)


def _failure(aggregate: Aggregate) -> str:
    if aggregate.sql:
        return f"cannot compute {aggregate.function}"
    return f"{aggregate.function} is out of range for {aggregate.type}"


def _signs(gone: Ints, come: Ints) -> pa.Array:
    return pa.array(np.repeat(np.array([-1, 1]), [len(gone), len(come)]))


def _unstored(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.bool_()) if pa.types.is_boolean(kind) else values


def _state(
    of: ReduceShape, moments: InterestingTimes, last: GroupAccumulators, sorted_: OrderedResults
) -> pa.RecordBatch:
    """The rows of state after the interval. A row that says nothing is not live."""
    least = [extreme.after.take(pa.array(moments.last)) for extreme in sorted_.minima]
    live = accumulators.has_rows(last)
    for column in (*least, *(quantile.state[0] for quantile in sorted_.quantiles)):
        live |= column.is_valid().to_numpy(zero_copy_only=False)
    if not of.node.keys:
        live[:] = True
    columns = [pa.array(moments.hashes), *moments.keys, pa.array(live)]
    columns += [*accumulators.store(last, of.slots), *least]
    columns += [column for quantile in sorted_.quantiles for column in quantile.state]
    return pa.RecordBatch.from_arrays(columns, schema=of.state)
