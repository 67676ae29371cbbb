"""A SELECT: planned as a view, and computed once by the stages that maintain one.

So a SELECT says what a view of the same text would hold at the same time, to the bit: sums of
floats are exact, ties at a LIMIT are broken by the whole row, `mz_now()` is the time of the
read, and what a view refuses, a SELECT does too. DuckDB puts the rows in the order that is
asked for; rows that are equal in it follow the order of their columns.

It is computed in a process of bounded memory (`streams.adapter.workers`). What a SELECT reads,
each intermediate result, and the answer have at most `Kernel.most_bytes` bytes each: so most
queries that take too much memory are refused before the process reaches its bound.
"""

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.adapter.workers.limits import WORKING, Limits, too_much, too_much_disk
from streams.adapter.workers.requests import Comparison
from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.operators.snapshot import snapshot_of
from streams.plan.compile import CompiledSelect
from streams.trace.columns import int64
from streams.trace.kernel.connection import (
    OUT_OF_MEMORY,
    AnswerTooLarge,
    EvaluationFailed,
    KernelFailed,
    StatementRefused,
)
from streams.trace.kernel.functions import without_hash
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import contents_at, expand, flatten, with_diffs

_NO_ROOM = frozenset({errno.EFBIG, errno.ENOSPC, errno.EDQUOT})
_DISK_SETTING = "max_temp_directory_size"


def kernel(limits: Limits) -> Kernel:
    """The kernel of a SELECT; it spills to the current directory."""
    bounded = Kernel(f"{limits.memory // 2}B", most_bytes=limits.rows)
    bounded.set("max_temp_directory_size", f"{limits.disk}B")
    # It computes a constant list of millions ahead as so many values, which nothing bounds.
    bounded.set("disabled_optimizers", "expression_rewriter")
    return bounded


def answer(
    selected: CompiledSelect,
    snapshots: Sequence[pa.Table],
    time: Timestamp,
    kernel: Kernel,
    limits: Limits,
) -> pa.Table:
    """The rows of a SELECT at a time, in its order, from the snapshots of its imports.

    Shape: `snapshots` as of `snapshot_of`. Errors: InvalidStatement.
    """
    with refusing(limits):
        rows = _rows(selected, snapshots, time, kernel)
        kernel.allow(_expanded(rows))
        whole = pa.Table.from_batches([expand(rows)])
        return _ordered(selected, whole, kernel) if selected.order else _shown(selected, whole)


def compare(
    selected: CompiledSelect,
    snapshots: Sequence[pa.Table],
    actual: pa.Table,
    time: Timestamp,
    kernel: Kernel,
    limits: Limits,
) -> Comparison:
    """Compare the rows of a SELECT at a time with those of a snapshot, by their bytes.

    Shape: `snapshots` and `actual` as of `snapshot_of`. Errors: InvalidStatement.
    """
    with refusing(limits):
        rows = _rows(selected, snapshots, time, kernel)
        width = len(selected.shown)
        shown = pa.Table.from_batches([rows]).select(
            [*range(width), rows.num_columns - 2, rows.num_columns - 1]
        )
        schema = arrow_schema([column.type for column in selected.shown])
        expected, held = flatten([shown], schema), flatten([actual], schema)
        both = [expected, with_diffs(held, -int64(held.column("diff")))]
        difference = contents_at(flatten([pa.Table.from_batches(both)], schema), time, kernel)
        diffs = int64(difference.column("diff"))
        return Comparison(
            rows=int(int64(expected.column("diff")).sum()),
            missing=int(diffs[diffs > 0].sum()),
            excess=-int(diffs[diffs < 0].sum()),
        )


def _rows(
    selected: CompiledSelect, snapshots: Sequence[pa.Table], time: Timestamp, kernel: Kernel
) -> pa.RecordBatch:
    """The contents of a SELECT at a time. Errors: InvalidStatement."""
    rows, errors = snapshot_of(selected.dataflow, dict(enumerate(snapshots)), time, kernel)
    _refuse(rows, errors, time, kernel)
    return rows


@contextmanager
def refusing(limits: Limits) -> Iterator[None]:
    """Says in the user's words that a SELECT cannot be computed."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise too_much_disk(limits, WORKING) from error
    except AnswerTooLarge as error:
        mib = error.most_bytes >> 20
        raise too_much(f"expected at most {mib} MiB of rows at a time, actual more") from error
    except (EvaluationFailed, StatementRefused, KernelFailed) as error:
        lines = [line for line in without_hash(str(error)).splitlines() if line]
        if any(_DISK_SETTING in line for line in lines):
            raise too_much_disk(limits, WORKING) from error
        if lines[0].startswith(OUT_OF_MEMORY):
            raise too_much(lines[0].removeprefix(OUT_OF_MEMORY).lstrip(": ")) from error
        raise InvalidStatement("the query failed", lines[0]) from error


def _refuse(
    rows: pa.RecordBatch, errors: pa.RecordBatch, time: Timestamp, kernel: Kernel
) -> None:
    """Errors: InvalidStatement for errors, and for rows that are there less than never."""
    if errors.num_rows:
        first = min(errors.column("error").to_pylist())
        raise InvalidStatement("the query failed", first + _raised(first, kernel))
    lowest = pc.min(rows.column("diff")).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidStatement(
            f"the answer holds a row {lowest} times at {time}",
            "more retractions than insertions: a source retracts what it never sent, or "
            "this is an internal error",
        )


def _raised(failure: str, kernel: Kernel) -> str:
    """The exceptions that the Python functions of a failed expression raised."""
    # The rows of errors name expressions alone: what is raised may differ from call to call.
    called = {word.casefold() for word in re.findall(r"\w+", failure)}
    messages = [
        f"; {name} raised {raised}"
        for name, raised in kernel.raised.items()
        if name.casefold() in called
    ]
    return "".join(messages)


def _expanded(rows: pa.RecordBatch) -> int:
    """The bytes of the rows, each as often as it is there."""
    copies = int64(rows.column("diff")).sum(
        dtype=np.float64
    )  # they may be too many for 64 bits
    return int(rows.nbytes * copies / max(rows.num_rows, 1))


def _shown(selected: CompiledSelect, rows: pa.Table) -> pa.Table:
    return rows.select(list(range(len(selected.shown))))


def _ordered(selected: CompiledSelect, rows: pa.Table, kernel: Kernel) -> pa.Table:
    terms = [
        f"c{key.position} {'DESC' if key.descending else 'ASC'}"
        f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        for key in selected.order
    ]
    shown = [f"c{place}" for place in range(len(selected.shown))]
    text = f"SELECT {', '.join(shown)} FROM answer ORDER BY {', '.join([*terms, *shown])}"
    types = [column.type for column in selected.dataflow.output]
    return kernel.query_as(text, {"answer": (rows, types)})
