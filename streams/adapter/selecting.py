"""A SELECT: planned as a view, and computed once by the stages that maintain one.

So a SELECT says what a view of the same text would hold at the same time, to the bit: sums of
floats are exact, ties at a LIMIT are broken by the whole row, `mz_now()` is the time of the
read, and what a view refuses, a SELECT does too. DuckDB puts the rows in the order that is
asked for; rows that are equal in it follow the order of their columns.

It is computed in a process of bounded memory (`streams.adapter.workers`). What a SELECT reads,
each intermediate result, and the answer have at most `Kernel.most_bytes` bytes each: so most
queries that take too much memory are refused before the process reaches its bound.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.operators.once import once
from streams.plan.compile import Selected
from streams.trace.columns import int64
from streams.trace.functions import without_hash
from streams.trace.kernel import (
    OUT_OF_MEMORY,
    AnswerTooLarge,
    EvaluationFailed,
    Kernel,
    KernelFailed,
    StatementRefused,
)
from streams.trace.updates import expand

HINT = "read fewer rows or columns, or make a materialized view of it and read that"


def kernel(most_bytes: int) -> Kernel:
    """What a SELECT is computed with."""
    made = Kernel(most_bytes=most_bytes)
    # It computes a constant list of millions ahead as so many values, which nothing bounds.
    made.set("disabled_optimizers", "expression_rewriter")
    return made


def answer(
    selected: Selected, snapshots: Sequence[pa.Table], time: Timestamp, kernel: Kernel
) -> pa.Table:
    """The rows of a SELECT at a time, in its order, from the snapshots of its imports.

    Shape: `snapshots` as of `once`. Errors: InvalidStatement.
    """
    with refusing():
        rows, errors = once(selected.dataflow, dict(enumerate(snapshots)), time, kernel)
        _refuse(rows, errors, time)
        kernel.allow(_expanded(rows))
        whole = pa.Table.from_batches([expand(rows)])
        return _ordered(selected, whole, kernel) if selected.order else _shown(selected, whole)


def too_much(expected: str) -> InvalidStatement:
    """The error of a SELECT that takes too much memory."""
    return InvalidStatement("the query takes too much memory", expected, HINT)


@contextmanager
def refusing() -> Iterator[None]:
    """Says in the user's words that a SELECT cannot be computed."""
    try:
        yield
    except AnswerTooLarge as error:
        mib = error.most_bytes >> 20
        raise too_much(f"expected at most {mib} MiB of rows at a time, got more") from error
    except (EvaluationFailed, StatementRefused, KernelFailed) as error:
        lines = [each for each in without_hash(str(error)).splitlines() if each]
        if lines[0].startswith(OUT_OF_MEMORY):
            raise too_much(lines[0].removeprefix(OUT_OF_MEMORY).lstrip(": ")) from error
        raise InvalidStatement("the query failed", lines[0]) from error


def _refuse(rows: pa.RecordBatch, errors: pa.RecordBatch, time: Timestamp) -> None:
    """Errors: InvalidStatement for errors, and for rows that are there less than never."""
    if errors.num_rows:
        first = min(errors.column("error").to_pylist())
        raise InvalidStatement("the query failed", first)
    lowest = pc.min(rows.column("diff")).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidStatement(
            f"the answer holds a row {lowest} times at {time}",
            "more retractions than insertions: a source retracts what it never sent, or "
            "this is a defect of ours",
        )


def _expanded(rows: pa.RecordBatch) -> int:
    """The bytes of the rows, each as often as it is there."""
    copies = int64(rows.column("diff")).sum(
        dtype=np.float64
    )  # they may be too many for 64 bits
    return int(rows.nbytes * copies / max(rows.num_rows, 1))


def _shown(selected: Selected, rows: pa.Table) -> pa.Table:
    return rows.select(list(range(len(selected.shown))))


def _ordered(selected: Selected, rows: pa.Table, kernel: Kernel) -> pa.Table:
    terms = [
        f"c{key.position} {'DESC' if key.descending else 'ASC'}"
        f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in selected.order
    ]
    shown = [f"c{place}" for place in range(len(selected.shown))]
    text = f"SELECT {', '.join(shown)} FROM answer ORDER BY {', '.join([*terms, *shown])}"
    types = [column.type for column in selected.columns]
    return kernel.query_as(text, {"answer": (rows, types)})
