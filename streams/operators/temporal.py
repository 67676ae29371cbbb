"""Temporal: filter and project row by row, while the logical time is within the row's bounds.

    contents(t) = { outputs(row) : row in input(t), predicates(row), enters <= t < leaves }

A row's *life* [enters, leaves) comes from its bounds, each a comparison of the time with a
value of the row: `t <= v` lets it leave just after v, `t >= v` enter at v; of several the
latest entry and the earliest end count. A NULL is never true. Values are timestamps, finer than
a time, or milliseconds; the first and last moments are the integers that satisfy the
comparison. Then an update (row, s, d) of the input stands for two of the output:

    (row, max(s, enters), d)  and  (row, leaves, -d)      if max(s, enters) < leaves, else none

This is linear in updates: a retraction also cancels the end of its row. In the first step,
where s is as_of, a row whose life began before enters at as_of, and one whose life is over
never does. Updates at times of the interval are emitted; later ones are *pending* and are
emitted by the step that reaches their time, also if that step has no input.

Nothing is evaluated twice: predicates, bounds and outputs are computed with the producer
(`partial`), and only rows with a life are sent. If an expression fails for a row, the row is an
error for as long as the other bounds and predicates let it live (rule 38: false beats an error,
now and later), so the error ends with the row's life.

State: the pending updates by time (`trace.arrange.pending`). Cost: one call of DuckDB for the
input rows, and O(arrivals + due): pending updates of later times are not read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.context import ERRORS, EngineCall, NodeOutput, Ports
from streams.operators.linear import evaluate_with_try, flags, outputs_of, source_of
from streams.plan.physical import Bound, Expression, Temporal
from streams.trace.arrange import pending
from streams.trace.arrange.runs import RunName
from streams.trace.columns import Flags, Ints, int64, one_array
from streams.trace.exact.diffs import negated
from streams.trace.kernel.connection import EvaluationFailed
from streams.trace.kernel.kernel import Kernel, data_schema
from streams.trace.updates import flatten

PENDING = "pending"
"""The arrangement's name."""

_NEVER = np.iinfo(np.int64).max
_ALWAYS = np.iinfo(np.int64).min
_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def shape(output_types: Sequence[str]) -> pa.Schema:
    """The schema of packets: outputs or, after a failure, its text; the end; time and diff."""
    last = [(name, pa.int64()) for name in ("leaves", "time", "diff")]
    return pa.schema([*data_schema(output_types), ("error", pa.string()), *last])


def sent_by(output_types: Sequence[str]) -> tuple[int, ...]:
    """The columns that an update and its retraction agree on, and many rows do not."""
    return (*range(len(output_types)), len(output_types) + 1)


def partial(
    node: Temporal,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    kernel: Kernel,
) -> pa.RecordBatch:
    """The updates of rows that will live, at the time of their entry (`shape`).

    Args:
        node: what to compute.
        rows: the input's updates.
        types: the DuckDB types of the input's columns.
        output_types: those of the output.
        kernel: the worker's DuckDB.
    """
    if not rows.num_rows:
        return flatten([], shape(output_types))
    try:
        return _plainly(node, rows, types, output_types, kernel)
    except EvaluationFailed:
        return _tolerantly(node, rows, types, output_types, kernel)


def step(
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    output_types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    """The updates of the interval, the errors, and the pending runs from now on.

    Args:
        ports: what `partial` made of updates, on port `in`.
        runs: the operator's runs.
        output_types: the DuckDB types of the output.
        scope: the worker's means.
    """
    files, upper = scope.context.files, int(scope.interval.upper)
    arrived = _updates(flatten(ports.get("in", []), shape(output_types)))
    due, names = pending.take(files, runs.get(PENDING, []), upper)
    later = int64(arrived.column("time")) >= upper
    names = pending.insert(files, names, arrived.filter(pa.array(later)), scope.kernel)
    now = flatten([arrived.filter(pa.array(~later)), *due], arrived.schema)
    failed = now.column("error").is_valid()
    errors = now.filter(failed).select(ERRORS.names)
    width = len(output_types)
    fine = now.filter(pc.invert(failed)).select([*range(width), width + 1, width + 2])
    return NodeOutput(fine, (errors,) if errors.num_rows else (), {PENDING: names})


def _updates(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The updates that lives stand for: at the entry, and at the end if there is one."""
    width = rows.num_columns - 3
    leaves, diffs = int64(rows.column("leaves")), int64(rows.column("diff"))
    ending = np.flatnonzero(leaves != _NEVER)
    fields = [rows.schema.field(i) for i in range(width)]
    schema = pa.schema([*fields, ("time", pa.int64()), ("diff", pa.int64())])
    if not len(ending):
        columns = [*rows.columns[:width], *rows.columns[width + 1 :]]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    place = pa.array(np.concatenate((np.arange(rows.num_rows), ending)))
    times = np.concatenate((int64(rows.column("time")), leaves[ending]))
    arrays = [rows.column(i).take(place) for i in range(width)]
    arrays += [pa.array(times), pa.array(np.concatenate((diffs, negated(diffs[ending]))))]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class _Lives:
    """The lifetimes [enters, leaves) of rows; none where not `known` (a bound is NULL)."""

    enters: Ints
    leaves: Ints
    known: Flags


def _plainly(
    node: Temporal,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    kernel: Kernel,
) -> pa.RecordBatch:
    parts = [f"{output.sql} AS c{i}" for i, output in enumerate(node.outputs)]
    parts += [f"{bound.value.sql} AS b{i}" for i, bound in enumerate(node.bounds)]
    where = " AND ".join(f"({predicate.sql})" for predicate in node.predicates)
    sql = f"SELECT {', '.join([*parts, 'time', 'diff'])} FROM {source_of(types)}"
    statement = kernel.prepare(sql + (f" WHERE {where}" if where else ""), t=rows.schema)
    result = statement.run(rows)
    values = [one_array(result[f"b{i}"]) for i in range(len(node.bounds))]
    lives = _lives(node.bounds, values, result.num_rows)
    columns = [result[f"c{i}"] for i in range(len(output_types))]
    data = flatten(
        [pa.table(columns, names=data_schema(output_types).names)], data_schema(output_types)
    )
    errors = pa.nulls(result.num_rows, pa.string())
    return _living(
        [*data.columns, errors], lives, one_array(result["time"]), result["diff"], output_types
    )


def _living(
    columns: Sequence[pa.Array],
    lives: _Lives,
    time: pa.Array,
    diff: pa.Array | pa.ChunkedArray,
    output_types: Sequence[str],
) -> pa.RecordBatch:
    """The rows that will be there at some time."""
    times = np.maximum(int64(time), lives.enters)
    there = lives.known & (times < lives.leaves)
    arrays = [*columns, pa.array(lives.leaves), pa.array(times), diff]
    picked = [
        one_array(array) if isinstance(array, pa.ChunkedArray) else array for array in arrays
    ]
    rows = pa.RecordBatch.from_arrays(picked, schema=shape(output_types))
    return rows if there.all() else rows.filter(pa.array(there))


def _tolerantly(
    node: Temporal,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    kernel: Kernel,
) -> pa.RecordBatch:
    """Like `_plainly`, row by row: first the bounds, then the outputs."""
    width = len(node.predicates)
    judged = (*node.predicates, *(bound.value for bound in node.bounds))
    results = evaluate_with_try(judged, rows, types, kernel)
    failed = np.stack([flags(results[f"f{i}"]) for i in range(len(judged))])
    passed = np.ones(rows.num_rows, np.bool_)
    for i in range(width):
        passed &= flags(results[f"v{i}"]) | failed[i]
    values = [one_array(results[f"v{width + i}"]) for i in range(len(node.bounds))]
    lives = _lives(node.bounds, values, rows.num_rows, failed[width:])
    times = np.maximum(int64(rows.column("time")), lives.enters)
    there = np.flatnonzero(passed & lives.known & (times < lives.leaves))
    passing = rows.take(pa.array(there))
    columns, first = outputs_of(node.outputs, passing, types, kernel)
    first = np.where(first >= 0, first + len(judged), first)
    broken = failed[:, there]
    first = np.where(broken.any(axis=0), broken.argmax(axis=0), first)
    data = flatten([pa.table(columns)], data_schema(output_types))
    place = pa.array(np.arange(len(there)), mask=first >= 0)
    arrays = [
        *(column.take(place) for column in data.columns),
        _texts([*judged, *node.outputs], first),
    ]
    arrays += [pa.array(lives.leaves[there]), pa.array(times[there]), passing.column("diff")]
    return pa.RecordBatch.from_arrays(arrays, schema=shape(output_types))


def _texts(expressions: Sequence[Expression], first: Ints) -> pa.Array:
    """For each row the text of its error; NULL where nothing failed."""
    texts = pa.array(
        [f"cannot evaluate {expression.label}" for expression in expressions], pa.string()
    )
    return texts.take(pa.array(first, mask=first < 0))


def _lives(
    bounds: Sequence[Bound],
    values: Sequence[pa.Array],
    rows: int,
    failed: Flags | None = None,
) -> _Lives:
    """The lifetimes from the values of the bounds; a failed bound does not restrict."""
    enters, leaves = np.full(rows, _ALWAYS), np.full(rows, _NEVER)
    is_valid = np.ones(rows, np.bool_)
    for index, (bound, value) in enumerate(zip(bounds, values, strict=True)):
        silent = np.zeros(rows, np.bool_) if failed is None else failed[index]
        is_valid &= value.is_valid().to_numpy(zero_copy_only=False) | silent
        least, past = bounds_of_times(value)
        if bound.comparison in {">", ">=", "="}:
            lowest = past if bound.comparison == ">" else least
            enters = np.where(silent, enters, np.maximum(enters, lowest))
        if bound.comparison in {"<", "<=", "="}:
            end = least if bound.comparison == "<" else past
            leaves = np.where(silent, leaves, np.minimum(leaves, end))
    return _Lives(enters, leaves, is_valid)


def bounds_of_times(value: pa.Array) -> tuple[Ints, Ints]:
    """For each value the first time that is not before it, and the first that is after it.

    Infinity, and the greatest integer, are never reached.
    """
    unit = _PER_MS[value.type.unit] if pa.types.is_timestamp(value.type) else 1
    raw = int64(value.cast(pa.int64()).fill_null(0))
    whole = raw // unit
    end = raw == _NEVER
    past = np.where(end, _NEVER, whole + ~end)
    least = np.where(end, _NEVER, np.where(whole * unit == raw, whole, past))
    return least, past
