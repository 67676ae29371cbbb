"""Evaluates DuckDB expressions over groups at times, and isolates the groups that fail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.operators.group_contents import GroupContents
from streams.trace.columns import Ints, int64
from streams.trace.kernel.connection import EvaluationFailed
from streams.trace.kernel.kernel import arrow_type, round_trips

Evaluate = Callable[[pa.RecordBatch], pa.Table]
"""Evaluates the rows of pairs (columns `p` and `i` first) to one result per `p`."""

Types = Mapping[str, str]
"""The columns of a group's rows and their DuckDB types."""


def port(types: Types) -> pa.Schema:
    """The schema of the rows of pairs."""
    data = [pa.field(name, arrow_type(kind)) for name, kind in types.items()]
    return pa.schema([("p", pa.int64()), ("i", pa.int64()), *data])


def source(types: Types) -> str:
    """The port `t` with its columns in the types that expressions are bound to."""
    if all(round_trips(kind) for kind in types.values()):
        return "{t}"
    casts = [f"CAST({name} AS {kind}) AS {name}" for name, kind in types.items()]
    return f"(SELECT {', '.join(['p', 'i', *casts])} FROM {{t}})"


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """The results of pairs: rows with the pair's number first; and the failed pairs."""

    rows: pa.Table
    failed: Ints
    negative: Ints


def evaluate(
    contents: GroupContents, start: int, end: int, statement: Evaluate
) -> EvaluationResults:
    """The results of the pairs [start, end); pair numbers in the rows are relative to `start`.

    Where DuckDB raises, the pairs are bisected until the failing one is alone: a group that
    fails does not affect the results of others.
    """
    rows, negative = contents.at(start, end)
    numbers = rows.column("p")
    if len(negative):
        fine = ~np.isin(int64(numbers), negative - start)
        rows = rows.filter(pa.array(fine))
    parts, failed, todo = [], [], [(0, end - start)]
    while todo:
        low, high = todo.pop()
        first, last = np.searchsorted(int64(rows.column("p")), [low, high])
        try:
            parts.append(statement(rows.slice(first, last - first)))
        except EvaluationFailed:
            if high - low == 1:
                failed.append(start + low)
            else:
                middle = (low + high) // 2
                todo += [(middle, high), (low, middle)]
    if not parts:
        parts.append(statement(rows.slice(0, 0)))
    return EvaluationResults(pa.concat_tables(parts), np.array(failed, np.int64), negative)
