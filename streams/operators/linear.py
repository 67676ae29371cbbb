"""Linear: filter and project, row by row.

The result of a row depends only on that row, not on other rows of its batch. If nothing fails,
DuckDB evaluates the expressions as they are. If it raises, the same rows are evaluated again
with one TRY for each expression (rule 38), and the rows that fail become errors:

    a row is kept     iff every predicate is true
    a row is dropped  iff some predicate is false or NULL, whatever the others do
    otherwise some predicate failed: an error

An error's text names the expression as the plan labels it and nothing else: DuckDB's own
wording changes between versions, and then a retraction would not meet its insertion.

Cost: one call of DuckDB, about 0.5 ms for a thousand rows; none when there is no predicate and
the outputs are columns of the input, or were computed already (`common_expressions`).
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streams.operators.context import ERRORS, NodeOutput
from streams.operators.try_eval import with_lazy_operands
from streams.plan.physical import Expression, Linear
from streams.trace.columns import Flags, Ints, int64, one_array
from streams.trace.kernel.connection import EvaluationFailed, StatementRefused
from streams.trace.kernel.kernel import (
    Kernel,
    arrow_schema,
    arrow_type,
    data_schema,
    round_trips,
)
from streams.trace.updates import flatten

Computed = Mapping[tuple[str, str], pa.Array]
"""Values of expressions over some rows, by the expression's text and DuckDB type."""

NOTHING: Computed = {}

_COLUMN = re.compile(r"c(\d+)")


def step(
    node: Linear,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    kernel: Kernel,
    computed: Computed = NOTHING,
) -> NodeOutput:
    """The updates of the filtered and projected rows, and the errors.

    Args:
        node: what to compute.
        rows: the input's updates.
        types: the DuckDB types of the input's columns.
        output_types: those of the output.
        kernel: the worker's DuckDB.
        computed: expressions that were computed over exactly these rows.
    """
    if not rows.num_rows:
        return NodeOutput(None)
    parts = [
        _found(output, rows, types, kind, computed)
        for output, kind in zip(node.outputs, output_types, strict=True)
    ]
    if not node.predicates and all(column is not None for column in parts):
        columns = [*parts, rows.column("time"), rows.column("diff")]
        return NodeOutput(
            pa.RecordBatch.from_arrays(columns, schema=arrow_schema(output_types))
        )
    try:
        return NodeOutput(_plainly(node, rows, types, output_types, kernel))
    except EvaluationFailed:
        return _tolerantly(node, rows, types, output_types, kernel)


def _found(
    output: Expression,
    rows: pa.RecordBatch,
    types: Sequence[str],
    type_: str,
    computed: Computed,
) -> pa.Array | None:
    """The values of an output that need not be computed."""
    position = pick(output, types, type_)
    return computed.get((output.sql, type_)) if position is None else rows.column(position)


def pick(output: Expression, types: Sequence[str], type_: str) -> int | None:
    """The position of the column that this output is, if it is one."""
    match = _COLUMN.fullmatch(output.sql.strip().strip('"'))
    if not match or types[int(match[1])] != type_:
        return None
    return int(match[1])


def source_of(types: Sequence[str]) -> str:
    """The port `t` with the columns in the types that the expressions are bound to."""
    casts = [
        f"c{index}" if round_trips(kind) else f"CAST(c{index} AS {kind}) AS c{index}"
        for index, kind in enumerate(types)
    ]
    if all(" " not in cast for cast in casts):
        return "{t}"
    return f"(SELECT {', '.join([*casts, 'time', 'diff'])} FROM {{t}})"


def _plainly(
    node: Linear,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    kernel: Kernel,
) -> pa.RecordBatch:
    outputs = [f"{output.sql} AS c{index}" for index, output in enumerate(node.outputs)]
    where = " AND ".join(f"({predicate.sql})" for predicate in node.predicates)
    sql = f"SELECT {', '.join([*outputs, 'time', 'diff'])} FROM {source_of(types)}"
    statement = kernel.prepare(sql + (f" WHERE {where}" if where else ""), t=rows.schema)
    return flatten([statement.run(rows)], arrow_schema(output_types))


def _tolerantly(
    node: Linear,
    rows: pa.RecordBatch,
    types: Sequence[str],
    output_types: Sequence[str],
    kernel: Kernel,
) -> NodeOutput:
    errors = []
    if node.predicates:
        passing, failed = _predicates(node.predicates, rows, types, kernel)
        for expression, places in zip(node.predicates, failed, strict=True):
            errors.append(failures(expression, rows, places))
        rows = rows.take(pa.array(passing))
    columns, first = outputs_of(node.outputs, rows, types, kernel)
    for index, expression in enumerate(node.outputs):
        errors.append(failures(expression, rows, np.flatnonzero(first == index)))
    fine = pa.array(np.flatnonzero(first < 0))
    data = flatten([pa.table(columns)], data_schema(output_types)) if output_types else None
    arrays = [
        *(data.columns if data is not None else []),
        rows.column("time"),
        rows.column("diff"),
    ]
    result = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(output_types)).take(fine)
    return NodeOutput(result, tuple(error for error in errors if error.num_rows))


def failures(expression: Expression, rows: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
    """The error updates of the rows at these places."""
    text = f"cannot evaluate {expression.label}"
    times, diffs = int64(rows.column("time"))[places], int64(rows.column("diff"))[places]
    arrays = [pa.array([text], pa.string()).take(pa.array(np.zeros(len(places), np.int64)))]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(times), pa.array(diffs)], schema=ERRORS
    )


def evaluate_with_try(
    expressions: Sequence[Expression],
    rows: pa.RecordBatch,
    types: Sequence[str],
    kernel: Kernel,
) -> pa.Table:
    """Columns v0 .., f0 ..: each expression's value, and whether it failed."""
    tries = [
        f"try({{'v': {with_lazy_operands(expression.sql)}}}) AS r{i}"
        for i, expression in enumerate(expressions)
    ]
    parts = [f"r{i}.v AS v{i}, r{i} IS NULL AS f{i}" for i in range(len(expressions))]
    sql = (
        f"WITH tried AS MATERIALIZED "
        f"(SELECT {', '.join(tries)} FROM {source_of(types)}) "
        f"SELECT {', '.join(parts)} FROM tried"
    )
    try:
        return kernel.careful.prepare(sql, t=rows.schema).run(rows)
    except (StatementRefused, EvaluationFailed):
        # TRY refuses `error(...)`, and does not catch every failure.
        columns = {}
        for i, expression in enumerate(expressions):
            columns[f"v{i}"], columns[f"f{i}"] = _bisected(expression, rows, types, kernel)
        return pa.table(columns)


def _bisected(
    expression: Expression, rows: pa.RecordBatch, types: Sequence[str], kernel: Kernel
) -> tuple[pa.ChunkedArray, pa.Array]:
    """An expression's values, and where it failed: rows are halved until one stands alone.

    Cost: O(failing rows * log(rows)) calls of DuckDB.
    """
    sql = f"SELECT {expression.sql} AS v FROM {source_of(types)}"
    statement = kernel.prepare(sql, t=rows.schema)
    failed = np.zeros(rows.num_rows, np.bool_)
    kind = arrow_type(expression.type)
    pieces, todo = [pa.chunked_array([], kind)], [(0, rows.num_rows)]
    while todo:
        start, end = todo.pop()
        try:
            pieces.append(statement.run(rows.slice(start, end - start))["v"].cast(kind))
        except EvaluationFailed:
            if end - start == 1:
                failed[start] = True
                pieces.append(pa.chunked_array([pa.nulls(1, kind)]))
            else:
                middle = (start + end) // 2
                todo += [(middle, end), (start, middle)]  # the last one first: in order
    chunks = [chunk for piece in pieces for chunk in piece.chunks]
    return pa.chunked_array(chunks, kind), pa.array(failed)


def _predicates(
    predicates: Sequence[Expression], rows: pa.RecordBatch, types: Sequence[str], kernel: Kernel
) -> tuple[Ints, list[Ints]]:
    """The rows to keep, and for each predicate the rows that are in error through it first."""
    results = evaluate_with_try(predicates, rows, types, kernel)
    values = [flags(results[f"v{i}"]) for i in range(len(predicates))]
    failed = [flags(results[f"f{i}"]) for i in range(len(predicates))]
    open_ = np.all([value | fail for value, fail in zip(values, failed, strict=True)], axis=0)
    places = []
    for fail in failed:
        places.append(np.flatnonzero(open_ & fail))
        open_ &= ~fail
    return np.flatnonzero(open_), places


def outputs_of(
    outputs: Sequence[Expression], rows: pa.RecordBatch, types: Sequence[str], kernel: Kernel
) -> tuple[dict[str, pa.Array], Ints]:
    """The outputs' columns, and for each row the first output that failed or -1."""
    first = np.full(rows.num_rows, -1, np.int64)
    if not rows.num_rows:
        schema = data_schema([output.type for output in outputs])
        return {f.name: pa.nulls(0, f.type) for f in schema}, first
    results = evaluate_with_try(outputs, rows, types, kernel)
    for index in reversed(range(len(outputs))):
        first[flags(results[f"f{index}"])] = index
    return {f"c{i}": one_array(results[f"v{i}"]) for i in range(len(outputs))}, first


def flags(column: pa.ChunkedArray) -> Flags:
    """Flags of the values that are true; NULL is not."""
    flags = one_array(column.cast(pa.bool_()))
    there = np.asarray(flags.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    values = np.asarray(flags.to_numpy(zero_copy_only=False))
    result: Flags = there & (values == True)  # noqa: E712 - NULLs make this an array of objects
    return result
