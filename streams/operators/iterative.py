"""Operators inside a loop: changes by iteration, over all times of the interval.

In a loop a collection has a value at every (time, iteration), and is stored as differences by
iteration: its value at i is the sum of the differences at 1 .. i. State has differences without
times; the changes of an interval have times and iterations. An operator at iteration i computes
two things: the changes of its output's difference there, from the changes of its inputs'
differences; and the later iterations at which it must be evaluated again although nothing
arrives.

    IterativeJoin    A pair exists from the later of its rows' iterations on, and from the later
                     of their times: the bilinear rule in two dimensions. It computes all
                     iterations at once at which the changes match stored rows.
    IterativeGroups  Any other keyed operator. With O(i) the changes of the output's value at i,
                     the changes of its difference are O(i) - O(i - 1). Both are zero for keys
                     that did not change up to i. For a key that did, they differ only where its
                     inputs' do: where changes arrive, and where stored differences of that key
                     lie (rule 43). Each O is what the operator computes from the previous value
                     and its changes.

Changes that arrive together and cancel are removed before an operator stores them.

State: of each input, (row, iteration) -> difference, by the operator's key
(`trace.arrange.multiset`). Cost: IterativeJoin, that of a join; iterations without changes cost
nothing. IterativeGroups, twice what the operator costs for all rows of the keys that are
visited, at each iteration at which they are; DISTINCT, whose keys are its rows, only adds up
counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streams.operators import join
from streams.operators.context import ERRORS, NEGATIVE, EngineCall, NodeOutput
from streams.operators.interesting_times import InterestingTimes, of_rows
from streams.plan.physical import Join
from streams.progress import Interval
from streams.trace.arrange import multiset
from streams.trace.arrange.runs import Run, RunName, by_hash, lookup
from streams.trace.columns import Flags, Ints, Words, canonical, hash_keys, int64, uint64
from streams.trace.exact.diffs import negated, running_values, sum_by
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema
from streams.trace.updates import consolidate, flatten, key_columns, with_diffs

ITERATION = "BIGINT"
Batches = Sequence[pa.RecordBatch]
Evaluate = Callable[[Mapping[str, pa.RecordBatch]], NodeOutput]
"""The output of a stateless operator for the updates at its ports."""


@dataclass(frozen=True, slots=True)
class PortInput:
    """The input of a port: the types of its columns, and the key columns.

    `kept` are the columns of state: the hash of the key, the row's, iteration and diff;
    `changed` those of the interval's changes, which have their time before the diff.
    """

    types: tuple[str, ...]
    keys: tuple[int, ...]
    kept: pa.Schema = field(init=False)
    changed: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        schema = multiset.schema(data_schema([*self.types, ITERATION]))
        object.__setattr__(self, "kept", schema)
        changed = schema.insert(len(schema) - 1, pa.field("time", pa.int64()))
        object.__setattr__(self, "changed", changed)


@dataclass(slots=True)
class ArrivedChanges:
    """The changes that have come to a port in this interval, by the hash of their key."""

    input: PortInput
    parts: list[Run] = field(default_factory=list)

    def add(self, hashes: Words, iteration: int, rows: pa.RecordBatch) -> None:
        """Updates have come, with the hashes of their keys."""
        if not rows.num_rows:
            return
        order = np.argsort(hashes, kind="stable")
        columns = [pa.array(hashes), *rows.columns[:-2], _constant(iteration, rows)]
        whole = pa.RecordBatch.from_arrays(
            [*columns, *rows.columns[-2:]], schema=self.input.changed
        )
        self.parts.append(Run(whole.take(pa.array(order)), hashes[order]))
        while len(self.parts) > 1 and self._is_due():
            pair = [part.rows for part in self.parts[-2:]]
            hashes, order = by_hash(pair)
            merged = pa.concat_batches(pair).take(pa.array(order))
            self.parts[-2:] = [Run(merged, hashes[order])]

    def _is_due(self) -> bool:
        """Sizes double, as those of run files do."""
        older, newer = self.parts[-2:]
        return bool(older.rows.num_rows < 2 * newer.rows.num_rows)

    def find(self, hashes: Words) -> pa.RecordBatch:
        """The changes of these keys (no hash twice)."""
        return multiset.candidates(self.parts, hashes, self.input.changed)

    def knows(self, hashes: Words) -> Flags:
        """Flags the keys that have changes."""
        is_known = np.zeros(len(hashes), np.bool_)
        for part in self.parts:
            is_known[lookup(part, hashes)[0]] = True
        return is_known

    def added(self, scope: EngineCall, names: Sequence[RunName]) -> list[RunName]:
        """The runs of the state with the changes in it."""
        everything = flatten([part.rows for part in self.parts], self.input.changed)
        rows = everything.select(
            [*range(len(self.input.types) + 2), everything.num_columns - 1]
        )
        return multiset.insert(scope.context.files, names, rows, scope.kernel)


@dataclass(slots=True)
class IterativeGroups:
    """See the module. `born` marks the one group of an operator that has rows over nothing."""

    inputs: Mapping[str, PortInput]
    evaluate: Evaluate
    runs: Mapping[str, Sequence[RunName]]
    scope: EngineCall
    born: bool = False
    arrived: dict[str, ArrivedChanges] = field(default_factory=dict)
    due: dict[int, list[Words]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrived = {port: ArrivedChanges(source) for port, source in self.inputs.items()}
        if self.born and self.scope.interval.as_of:
            self.due[1] = [hash_keys([], 1)]

    def step(
        self, iteration: int, ports: Mapping[str, Batches]
    ) -> Iterator[tuple[int, NodeOutput]]:
        """The changes of the output's difference, and of the errors', at this iteration."""
        came = {port: self._rows(port, rows) for port, rows in ports.items()}
        hashes = [hashes for hashes, _ in came.values()]
        visited = np.unique(np.concatenate([*hashes, *self.due.pop(iteration, [])]))
        if not len(visited):
            return
        again = self._again(visited, iteration)
        for port, (own, rows) in came.items():
            self.arrived[port].add(own, iteration, rows)
        stored = {port: self._stored(port, visited) for port in self.inputs}
        self._schedule(np.setdiff1d(visited, again, assume_unique=True), iteration, stored)
        now = self._value(visited, iteration, stored)
        yield iteration, now
        if len(again):
            before = self._value(again, iteration - 1, stored)
            yield iteration, _negated(before)

    def close(self) -> dict[str, list[RunName]]:
        """The runs from now on, by port."""
        return {
            port: arrived.added(self.scope, self.runs.get(port, []))
            for port, arrived in self.arrived.items()
        }

    def _rows(self, port: str, batches: Batches) -> tuple[Words, pa.RecordBatch]:
        source = self.inputs[port]
        rows = _settled(batches, source.types, self.scope.kernel)
        forms = key_columns(rows, source.keys, self.scope.kernel)[1]
        return hash_keys(forms, rows.num_rows), rows

    def _again(self, visited: Words, iteration: int) -> Words:
        """The keys that were visited at an earlier iteration of this step."""
        if self.born and self.scope.interval.as_of and iteration > 1:
            return visited
        is_known = np.zeros(len(visited), np.bool_)
        for arrived in self.arrived.values():
            is_known |= arrived.knows(visited)
        return visited[is_known]

    def _stored(self, port: str, hashes: Words) -> pa.RecordBatch:
        names, shape = self.runs.get(port, []), self.inputs[port].kept
        return multiset.candidates(self.scope.context.files.open(names), hashes, shape)

    def _schedule(
        self, fresh: Words, iteration: int, stored: Mapping[str, pa.RecordBatch]
    ) -> None:
        """Visit these again wherever a stored difference of theirs lies ahead."""
        for rows in stored.values():
            hashes, iterations = (
                uint64(rows.column(0)),
                int64(rows.column(-2 + rows.num_columns)),
            )
            ahead = (iterations > iteration) & np.isin(hashes, fresh)
            for later in np.unique(iterations[ahead]):
                own = np.unique(hashes[ahead & (iterations == later)])
                self.due.setdefault(int(later), []).append(own)

    def _value(
        self, hashes: Words, upto: int, stored: Mapping[str, pa.RecordBatch]
    ) -> NodeOutput:
        """The changes of the output's value at an iteration, for these keys."""
        interval = self.scope.interval
        ports = {}
        for port, source in self.inputs.items():
            old = _upto(stored[port], upto, hashes)
            parts = [
                *old.columns[1:-2],
                _constant(time_before(interval), old),
                old.column("diff"),
            ]
            schema = arrow_schema(source.types)
            value = pa.RecordBatch.from_arrays(parts, schema=schema)
            new = _upto(self.arrived[port].find(hashes), upto)
            width = len(source.types)
            news = new.select([*range(1, width + 1), width + 2, width + 3])
            ports[port] = flatten([value, news], schema)
        return _since(self.evaluate(ports), int(interval.lower))


def time_before(interval: Interval) -> int:
    """The time just before the interval; in the first step the first time of the interval."""
    return int(interval.lower) - (not interval.as_of)


def _constant(value: int, rows: pa.RecordBatch) -> pa.Array:
    return pa.array(np.full(rows.num_rows, value, np.int64))


def _upto(rows: pa.RecordBatch, upto: int, hashes: Words | None = None) -> pa.RecordBatch:
    """The differences up to an iteration, which stands behind the columns of the row."""
    place = rows.schema.get_field_index("diff")
    timed = rows.schema.get_field_index("time") >= 0
    keep = int64(rows.column(place - 1 - timed)) <= upto
    if hashes is not None:
        keep &= np.isin(uint64(rows.column(0)), hashes)
    return rows if keep.all() else rows.filter(pa.array(keep))


def _since(stepped: NodeOutput, lower: int) -> NodeOutput:
    """The changes from `lower` on, without earlier contents."""
    output = stepped.output
    errors = tuple(_later(error, lower) for error in stepped.errors)
    return NodeOutput(None if output is None else _later(output, lower), errors)


def _later(rows: pa.RecordBatch, lower: int) -> pa.RecordBatch:
    keep = int64(rows.column("time")) >= lower
    return rows if keep.all() else rows.filter(pa.array(keep))


def _negated(stepped: NodeOutput) -> NodeOutput:
    def negate(rows: pa.RecordBatch) -> pa.RecordBatch:
        return with_diffs(rows, negated(int64(rows.column("diff"))))

    output = None if stepped.output is None else negate(stepped.output)
    return NodeOutput(output, tuple(map(negate, stepped.errors)))


@dataclass(slots=True)
class IterativeJoin:
    """See the module. The join's rows carry their iteration behind each side's columns."""

    node: Join
    types: tuple[tuple[str, ...], tuple[str, ...]]
    runs: Mapping[str, Sequence[RunName]]
    scope: EngineCall
    arrived: tuple[ArrivedChanges, ArrivedChanges] = field(init=False)
    due: dict[int, list[Words]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = (self.node.left_keys, self.node.right_keys)
        left, right = (
            ArrivedChanges(PortInput(*side)) for side in zip(self.types, keys, strict=True)
        )
        self.arrived = (left, right)

    def step(
        self, iteration: int, ports: Mapping[str, Batches]
    ) -> Iterator[tuple[int, NodeOutput]]:
        """The changes of the pairs' differences, at this and at later iterations."""
        came = {
            i: _settled(ports[side], self.types[i], self.scope.kernel)
            for i, side in enumerate(join.SIDES)
            if side in ports
        }
        new = {
            i: self._changes(i, rows, iteration) for i, rows in came.items() if rows.num_rows
        }
        hashes = {i: side.hashes for i, side in new.items()}
        terms = [(new[0], new[1])] if len(new) > 1 else []
        if 0 in new:
            terms += [(new[0], met) for met in self._met(1, hashes[0])]
        if 1 in new:
            terms += [(met, new[1]) for met in self._met(0, hashes[1])]
        for i, side in new.items():
            width = len(self.types[i])
            self.arrived[i].add(hashes[i], iteration, _without(side.rows, width))
        if terms:
            output_types = (*self.types[0], ITERATION, *self.types[1], ITERATION)
            pairs, _ = join.product(terms, self.node, output_types, self.scope.kernel)
            yield from self._by_iteration(pairs)

    def close(self) -> dict[str, list[RunName]]:
        """The runs from now on, by side."""
        return {
            side: arrived.added(self.scope, self.runs.get(side, []))
            for side, arrived in zip(join.SIDES, self.arrived, strict=True)
        }

    def _lifted(self, i: int) -> tuple[str, ...]:
        return (*self.types[i], ITERATION)

    def _changes(self, i: int, rows: pa.RecordBatch, iteration: int) -> join.JoinSide:
        columns = [*rows.columns[:-2], _constant(iteration, rows), *rows.columns[-2:]]
        schema = arrow_schema(self._lifted(i))
        return self._side(i, pa.RecordBatch.from_arrays(columns, schema=schema))

    def _side(self, i: int, rows: pa.RecordBatch) -> join.JoinSide:
        return join.changed_side(rows, self.arrived[i].input.keys, self.node, self.scope.kernel)

    def _met(self, i: int, hashes: Words) -> Iterator[join.JoinSide]:
        """The rows of a side before this iteration's changes, if there are any."""
        if self.runs.get(join.SIDES[i]):
            yield self._kept(i, hashes)
        if self.arrived[i].parts:
            yield self._past(i, hashes)

    def _kept(self, i: int, hashes: Words) -> join.JoinSide:
        """The rows of state that changes of the other side with these keys may meet."""
        names, keys = self.runs.get(join.SIDES[i], []), self.arrived[i].input.keys
        return join.stored_side(names, hashes, self._lifted(i), keys, self.scope)

    def _past(self, i: int, hashes: Words) -> join.JoinSide:
        """Like `_kept`, for changes of earlier iterations of this step."""
        rows = self.arrived[i].find(np.unique(hashes))
        columns = rows.columns[1:]
        schema = arrow_schema(self._lifted(i))
        return self._side(i, pa.RecordBatch.from_arrays(columns, schema=schema))

    def _by_iteration(self, pairs: pa.RecordBatch) -> Iterator[tuple[int, NodeOutput]]:
        left, right = map(len, self.types)
        own, other = int64(pairs.column(left)), int64(pairs.column(left + 1 + right))
        both = np.maximum(own, other)
        rows = _without(_without(pairs, left + 1 + right), left)
        schema = arrow_schema((*self.types[0], *self.types[1]))
        rows = pa.RecordBatch.from_arrays(rows.columns, schema=schema)
        for iteration in np.unique(both):
            here = rows.filter(pa.array(both == iteration))
            yield int(iteration), NodeOutput(here)


def _settled(batches: Batches, types: Sequence[str], kernel: Kernel) -> pa.RecordBatch:
    """The input without updates that cancel: these would be stored and read by later steps.

    So a filter that lets a count pass as long as it is small says the same thing at each
    iteration, by a retraction and an insertion.
    """
    rows = flatten(batches, arrow_schema(types))
    has_retractions = bool((int64(rows.column("diff")) < 0).any())
    return consolidate(rows, kernel) if has_retractions else rows


def _without(rows: pa.RecordBatch, column: int) -> pa.RecordBatch:
    return rows.select([i for i in range(rows.num_columns) if i != column])


def nonzero_errors(text: str, width: int, kernel: Kernel) -> Evaluate:
    """An error for each row (of so many columns) whose difference is not zero."""

    def evaluate(ports: Mapping[str, pa.RecordBatch]) -> NodeOutput:
        (rows,) = ports.values()
        if not rows.num_rows:
            return NodeOutput(None)
        counts = _counts(rows, width, kernel)
        return NodeOutput(None, (_errors(text, counts, counts.where(lambda n: n != 0)),))

    return evaluate


def distinct(types: Sequence[str], kernel: Kernel) -> Evaluate:
    """Each row once while its count is positive, and an error while it is negative."""
    schema = arrow_schema(types)

    def evaluate(ports: Mapping[str, pa.RecordBatch]) -> NodeOutput:
        (rows,) = ports.values()
        if not rows.num_rows:
            return NodeOutput(None)
        counts = _counts(rows, len(types), kernel)
        diffs = counts.where(lambda n: n > 0)
        moved, moments = np.flatnonzero(diffs), counts.moments
        owner = pa.array(moments.owner[moved])
        arrays = [*(key.take(owner) for key in moments.keys), pa.array(moments.times[moved])]
        output = pa.RecordBatch.from_arrays([*arrays, pa.array(diffs[moved])], schema=schema)
        below = counts.where(lambda n: n < 0)
        errors = (_errors(NEGATIVE, counts, below),) if below.any() else ()
        return NodeOutput(output, errors)

    return evaluate


@dataclass(frozen=True, slots=True)
class _Counts:
    """The multiplicity of each row from each of its moments on, and just before."""

    moments: InterestingTimes
    after: Ints
    before: Ints

    def where(self, true: Callable[[Ints], Flags]) -> Ints:
        """The changes, at each moment, of whether something is true of the count."""
        return true(self.after).astype(np.int64) - true(self.before)


def _counts(rows: pa.RecordBatch, width: int, kernel: Kernel) -> _Counts:
    keys = [canonical(column) for column in rows.columns[:width]]
    moments, groups = of_rows(keys, int64(rows.column("time")), kernel)
    changes = sum_by(groups, int64(rows.column("diff")))
    first, _ = moments.bounds
    after = running_values(changes, first, np.zeros(len(first), np.int64))
    return _Counts(moments, after, after - changes)


def _errors(text: str, counts: _Counts, diffs: Ints) -> pa.RecordBatch:
    moved = np.flatnonzero(diffs)
    arrays = [
        pa.array([text] * len(moved), pa.string()),
        pa.array(counts.moments.times[moved]),
        pa.array(diffs[moved]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ERRORS)
