"""Threshold: the multiplicity of a row as a function of its multiplicities in several inputs.

    contents(t) = { row: rule(n0(t), n1(t), ..) },  ni(t) the count of the row in input i

It implements INTERSECT and EXCEPT, and the part of every outer, semi, anti, mark and single
join that depends on rows without a match. There the first input has the rows of one side, and
another input has each row as often as the join found a partner for it: a row with multiplicity
m and c partners has the counts m and m * c. The row with NULLs exists m times iff the second
count is zero (rule 41). More than one partner gives n1 > n0: such rows are marked in the
output, so that the join retracts their pairs. Inputs change at their own times; counts are
computed for all (row, time) of the interval at once, and a row is emitted only where the rule's
value changes.

A negative count is an error for as long as it is negative, and counts as zero.

State: for each row its counts (`trace.arrange.keyed`). Cost: O(changes), and a search in the
state for each row that changed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from streams.operators.context import ERRORS, EngineCall, NodeOutput, Ports
from streams.operators.interesting_times import InterestingTimes
from streams.operators.interesting_times import of_rows as moments_of
from streams.plan.physical import MARKED, Rule, Threshold
from streams.trace.arrange import keyed
from streams.trace.arrange.runs import RunName
from streams.trace.columns import Ints, int64
from streams.trace.exact.diffs import running_values, sum_at
from streams.trace.kernel.kernel import arrow_schema, data_schema
from streams.trace.updates import flatten

MOST = 1 << 40
NEGATIVE = "row has a negative multiplicity"
BEYOND = f"the multiplicity of a row exceeds {MOST}"
SEVERAL = "a scalar subquery returned more than one row"

_COUNTS = "counts"
_MARKS = (True, None, False)


def _either(condition: Ints, value: Ints) -> Ints:
    return np.where(condition, value, 0)


def _marks(n: Ints) -> tuple[Ints, ...]:
    is_known = n[1] > 0
    unknown = n[2] > 0 if len(n) > 2 else np.zeros_like(is_known)  # noqa: PLR2004 - its inputs
    return tuple(
        _either(w, n[0]) for w in (is_known, ~is_known & unknown, ~is_known & ~unknown)
    )


def _single(n: Ints) -> tuple[Ints, ...]:
    return np.zeros_like(n[0]), _either(n[1] > n[0], n[0]), _either(n[1] == 0, n[0])


_RULES: Mapping[Rule, Callable[[Ints], tuple[Ints, ...]]] = {
    Rule.INTERSECT_ALL: lambda n: (np.minimum(n[0], n[1]),),
    Rule.EXCEPT_ALL: lambda n: (np.maximum(n[0] - n[1], 0),),
    Rule.INTERSECT: lambda n: (((n[0] > 0) & (n[1] > 0)).astype(np.int64),),
    Rule.EXCEPT: lambda n: (((n[0] > 0) & (n[1] == 0)).astype(np.int64),),
    Rule.WITH: lambda n: (_either(n[1] > 0, n[0]),),
    Rule.WITHOUT: lambda n: (_either(n[1] == 0, n[0]),),
    Rule.BUT_ONE: lambda n: (np.maximum(n[0] - (n[1] > 0), 0),),
    Rule.MARK: _marks,
    Rule.SINGLE: _single,
    Rule.BOUNDED: lambda n: (_either(n[0] <= MOST, n[0]),),
}
"""From counts, one row per input, to multiplicities: of the row, or for each of `_MARKS`."""


def step(
    node: Threshold,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    output_types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    """The changes of the rows' multiplicities over the interval, the errors, the new runs.

    Args:
        node: the operator.
        ports: updates of each input, by its number.
        runs: the operator's runs.
        output_types: the DuckDB types of the output.
        scope: the worker's means.
    """
    types = output_types[:-1] if node.rule in MARKED else output_types
    schema = arrow_schema(types)
    parts = [flatten(ports.get(str(i), []), schema) for i in range(len(node.inputs))]
    rows = flatten(parts, schema)
    if not rows.num_rows:
        return NodeOutput(None, runs=runs)
    kernel, files, width = scope.kernel, scope.context.files, len(types)
    shape = _shape(types, len(parts))
    moments, groups = moments_of(rows.columns[:width], int64(rows.column("time")), kernel)
    which = np.repeat(np.arange(len(parts)), [part.num_rows for part in parts])
    cells = which * groups.count + groups.ids
    changes = sum_at(cells, len(parts) * groups.count, int64(rows.column("diff")))
    changes = changes.reshape(len(parts), groups.count)
    names = runs.get(_COUNTS, [])
    stored = keyed.find(files, names, moments.forms, moments.hashes, shape, kernel)
    old = _read(stored, len(parts))
    before, after = _followed(old, changes, moments)
    run_names = keyed.insert(
        files, names, _state(moments, old, after[:, moments.last], shape), width, kernel
    )
    output = _changed(node.rule, moments, before, after, output_types)
    return NodeOutput(
        output, _errors(node.rule, moments.times, before, after), {_COUNTS: run_names}
    )


def _shape(types: Sequence[str], inputs: int) -> pa.Schema:
    counts = [pa.field(f"n{i}", pa.int64()) for i in range(inputs)]
    return keyed.schema([field.type for field in data_schema(types)], counts)


def _read(stored: keyed.Found, inputs: int) -> Ints:
    """The counts of every row that changed, one row an input."""
    counts = np.zeros((inputs, len(stored.places)), np.int64)
    there = stored.places >= 0
    for i in range(inputs):
        counts[i, there] = int64(stored.rows.column(f"n{i}"))[stored.places[there]]
    return counts


def _followed(old: Ints, changes: Ints, moments: InterestingTimes) -> tuple[Ints, Ints]:
    """The counts before and after each moment."""
    first, _ = moments.bounds
    after = np.stack(
        [running_values(change, first, was) for change, was in zip(changes, old, strict=True)]
    )
    return after - changes, after


def _state(
    moments: InterestingTimes, old: Ints, last: Ints, shape: pa.Schema
) -> pa.RecordBatch:
    """The rows of state whose counts have changed. A row with only zeros is not live."""
    moved = np.flatnonzero((old != last).any(axis=0))
    at, counts = pa.array(moved), last[:, moved]
    columns = [pa.array(moments.hashes[moved]), *(key.take(at) for key in moments.keys)]
    columns += [pa.array(counts.any(axis=0)), *map(pa.array, counts)]
    return pa.RecordBatch.from_arrays(columns, schema=shape)


def _changed(
    rule: Rule,
    moments: InterestingTimes,
    before: Ints,
    after: Ints,
    output_types: Sequence[str],
) -> pa.RecordBatch:
    """The rows whose multiplicity, under some mark, changes at a moment."""
    was, now = (_RULES[rule](np.maximum(counts, 0)) for counts in (before, after))
    diffs = np.stack(now) - np.stack(was)
    variant, moment = np.nonzero(diffs)
    at = pa.array(moments.owner[moment])
    columns = [key.take(at) for key in moments.keys]
    if rule in MARKED:
        columns.append(pa.array(_MARKS).take(pa.array(variant)))
    columns += [pa.array(moments.times[moment]), pa.array(diffs[variant, moment])]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(output_types))


def _errors(rule: Rule, times: Ints, before: Ints, after: Ints) -> tuple[pa.RecordBatch, ...]:
    texts = [NEGATIVE, SEVERAL, BEYOND]
    diffs = np.stack(_failing(rule, after)) - np.stack(_failing(rule, before))
    which, moment = np.nonzero(diffs)
    if not len(which):
        return ()
    arrays = [
        pa.array(texts).take(pa.array(which)),
        pa.array(times[moment]),
        pa.array(diffs[which, moment]),
    ]
    return (pa.RecordBatch.from_arrays(arrays, schema=ERRORS),)


def _failing(rule: Rule, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """The multiplicity of each error at each moment."""
    negative: Ints = np.any(counts < 0, axis=0).astype(np.int64)
    several = beyond = np.zeros_like(negative)
    if rule is Rule.SINGLE:
        several = _either(counts[1] > counts[0], np.maximum(counts[0], 0))
    if rule is Rule.BOUNDED:
        beyond = (counts[0] > MOST).astype(np.int64)
    return negative, several, beyond
