"""The answer to a peek from what its target holds at the time. No I/O.

The rows are those that the stages of a view of the same plan would make, for they are made by
the same functions. DuckDB filters and orders; counts are cut by numpy.
"""

from functools import lru_cache, reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.arrow_rows import key_rows
from streams.compute.peeks import (
    MOST_COPIED,
    KeyLookup,
    Peek,
    PeekError,
    PeekOutcome,
    PeekRows,
)
from streams.errors import Corrupt, InvalidUsage, SlackwaterError
from streams.ids import Timestamp
from streams.operators import linear
from streams.operators.context import Context
from streams.operators.engine import EngineOutput, start
from streams.plan import json as plans
from streams.plan.physical import Dataflow, Linear, Source
from streams.progress import Interval, interval_of
from streams.storage.read.soundness import present_errors
from streams.trace.columns import Ints, int64
from streams.trace.exact.diffs import repeat_positions
from streams.trace.kernel.kernel import Kernel, arrow_schema, round_trips
from streams.trace.updates import advance, consolidate_if_needed, flatten

PLAIN = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR"})
"""Types whose values Arrow compares as SQL does."""

MOST_PLANS = 1000
"""Number of plans that are kept ready."""

MOST_BYTES = 7 << 20
"""Bytes of an answer: a record of the response topic holds it."""


class PeekRefused(InvalidUsage):
    """A peek whose fields are not what the page of the protocol says."""


def plan_of(peek: Peek) -> Dataflow:
    """Return the plan of a peek. Errors: PeekRefused."""
    return plan_with(peek.plan, (*peek.project, *(key.position for key in peek.order)))


def plan_with(plan: str, wanted: tuple[int, ...]) -> Dataflow:
    """Return the plan of a text that has these columns. Errors: PeekRefused."""
    dataflow = _dataflow(plan)
    width = len(dataflow.types[-1])
    if any(not 0 <= position < width for position in wanted):
        raise PeekRefused(f"peek: expected positions below {width}, actual {wanted}")
    return dataflow


@lru_cache(maxsize=MOST_PLANS)
def _dataflow(plan: str) -> Dataflow:
    """Return the plan of a text. Errors: PeekRefused."""
    try:
        dataflow = plans.loads(plan)
    except (ValueError, KeyError, TypeError, SlackwaterError) as wrong:
        raise PeekRefused(f"peek: the plan cannot be read: {wrong}") from wrong
    plain = all(isinstance(node, Source | Linear) for node in dataflow.nodes)
    if not plain or len(dataflow.imports) != 1 or any(dataflow.levels) or dataflow.functions:
        raise PeekRefused("peek: expected a plan of Source and Linear over one import")
    return dataflow


def import_types(dataflow: Dataflow) -> list[str]:
    """Return the DuckDB types of the target's columns."""
    return [column.type for column in dataflow.imports[0].columns]


def matching(
    rows: pa.Table,
    columns: tuple[int, ...],
    keys: pa.RecordBatch,
    types: list[str],
    kernel: Kernel,
) -> pa.RecordBatch:
    """Return the updates whose `columns` equal one of the keys, as `keys_of` returns them."""
    whole = flatten([rows], arrow_schema(types))
    kinds = [types[position] for position in columns]
    if keys.num_rows == 1 and PLAIN.issuperset(kinds):
        return _equal(whole, columns, keys)
    casts = (
        f"k{index}" if round_trips(kind) else f"CAST(k{index} AS {kind}) AS k{index}"
        for index, kind in enumerate(kinds)
    )
    pairs = (f"t.c{at} = k.k{index}" for index, at in enumerate(columns))
    sql = (
        f"SELECT t.* FROM {linear.source_of(types)} t SEMI JOIN"
        f" (SELECT {', '.join(casts)} FROM {{k}}) k ON {' AND '.join(pairs)}"
    )
    statement = kernel.prepare(sql, t=whole.schema, k=keys.schema)
    return flatten([statement.run(whole, keys)], whole.schema)


def _equal(
    rows: pa.RecordBatch, columns: tuple[int, ...], key: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the rows that equal one key, of types whose values Arrow compares as SQL does."""
    masks = (pc.equal(rows.column(at), key.column(n)[0]) for n, at in enumerate(columns))
    return rows.filter(reduce(pc.and_, masks))


def keys_of(lookup: KeyLookup, types: list[str]) -> pa.RecordBatch:
    """Return the keys of a look-up in rows of these DuckDB types, as columns k0 .. kn.

    Errors: PeekRefused for columns that are not there, and keys of other types than theirs.
    """
    if not lookup.columns or not all(0 <= at < len(types) for at in lookup.columns):
        raise PeekRefused(f"peek: expected columns below {len(types)}, actual {lookup.columns}")
    kinds = [types[position] for position in lookup.columns]
    try:
        keys = key_rows(lookup.keys, kinds)
    except Corrupt as wrong:
        raise PeekRefused(f"peek: the keys cannot be read: {wrong}") from wrong
    return keys.rename_columns([f"k{index}" for index in range(len(kinds))])


def answer(peek: Peek, updates: pa.Table, errors: pa.Table, kernel: Kernel) -> PeekOutcome:
    """Return the answer to a peek. Shape, errors: as `rows_of`."""
    rows = rows_of(peek, updates, errors, kernel)
    return rows if isinstance(rows, PeekError) else PeekRows(rows.num_rows, _streamed(rows))


def rows_of(
    peek: Peek, updates: pa.Table, errors: pa.Table, kernel: Kernel
) -> pa.RecordBatch | PeekError:
    """Return the rows that answer a peek, in order, or why there are none.

    Shape: `updates` add up to what the target holds at the time of the peek, or to the rows of
    it that the look-up selects; `errors` to its errors. Errors: PeekRefused, and those of the
    kernel.
    """
    if errors.num_rows:
        present = present_errors(errors, peek.time)
        if present.num_rows:
            return PeekError(present.column("error")[0].as_py())
    dataflow = plan_of(peek)
    held = _held(flatten([updates], arrow_schema(import_types(dataflow))), peek.time, kernel)
    born = interval_of(peek.time, Timestamp(peek.time + 1), as_of=True)
    outcome = made_of(dataflow, held, born, kernel)
    if outcome.errors is not None:
        failed = present_errors(outcome.errors, peek.time)
        if failed.num_rows:
            return PeekError(failed.column("error")[0].as_py())
    schema = arrow_schema(dataflow.types[-1])
    made_rows = flatten([] if outcome.output is None else [outcome.output], schema)
    rows = consolidate_if_needed(made_rows, kernel)
    return _finished(peek, rows, list(dataflow.types[-1]), kernel)


def made_of(
    dataflow: Dataflow, updates: pa.RecordBatch, interval: Interval, kernel: Kernel
) -> EngineOutput:
    """Return what a plan makes of the updates of an interval. Errors: those of the kernel."""
    context = Context(Path(), kernel, str)
    return start(dataflow, {0: pa.Table.from_batches([updates])}, interval, 1, context)


def _held(updates: pa.RecordBatch, time: Timestamp, kernel: Kernel) -> pa.RecordBatch:
    """Return the contents at a time; equal rows may be apart."""
    past = int64(updates.column("time")) <= time
    visible = updates if past.all() else updates.filter(pa.array(past))
    return consolidate_if_needed(advance(visible, time), kernel)


def _finished(
    peek: Peek, rows: pa.RecordBatch, types: list[str], kernel: Kernel
) -> pa.RecordBatch | PeekError:
    diffs = int64(rows.column("diff"))
    if len(diffs) and diffs.min() < 0:
        return PeekError(f"a row is there {diffs.min()} times at {peek.time}")
    ordered = _ordered(peek, rows, types, kernel) if rows.num_rows > 1 else rows
    counts = _within(int64(ordered.column("diff")), peek.offset, peek.limit)
    places = np.flatnonzero(counts)
    kept = ordered.take(pa.array(places)) if len(places) < len(counts) else ordered
    copies = counts[places]
    total = float(copies.sum(dtype=np.float64))
    most = min(peek.most_bytes, MOST_BYTES if peek.files is None else MOST_COPIED)
    size = kept.nbytes * total / max(len(places), 1)
    if size > most:
        return PeekError(f"expected rows of at most {most} bytes, actual {size:.0f}")
    shown = kept.select(list(peek.project))
    return shown.take(pa.array(repeat_positions(copies))) if total > len(places) else shown


def _within(diffs: Ints, offset: int, limit: int | None) -> Ints:
    """Return how many copies of each row lie at [offset, offset + limit)."""
    ends = np.cumsum(diffs)
    begins = ends - diffs
    until = ends if limit is None else np.minimum(ends, offset + limit)
    inside: Ints = np.maximum(until - np.maximum(begins, offset), 0)
    return inside


def _ordered(
    peek: Peek, rows: pa.RecordBatch, types: list[str], kernel: Kernel
) -> pa.RecordBatch:
    terms = [
        f"c{key.position} {'DESC' if key.descending else 'ASC'}"
        f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in peek.order
    ]
    behind = [f"c{position} ASC NULLS LAST" for position in peek.project]
    source = linear.source_of(types)
    statement = kernel.prepare(
        f"SELECT * FROM {source} ORDER BY {', '.join([*terms, *behind]) or 'diff'}",
        t=rows.schema,
    )
    return flatten([statement.run(rows)], rows.schema)


def _streamed(rows: pa.RecordBatch) -> bytes:
    fields = [pa.field(f"c{index}", field.type) for index, field in enumerate(rows.schema)]
    named = pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, named.schema) as stream:
        stream.write_batch(named)
    return bytes(sink.getvalue())
