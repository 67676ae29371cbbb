"""Validates updates: rows that fit the description, at times inside the interval.

Updates come as an Arrow table: the collection's columns in order, under their own names or as
`c0 .. cn`, then `time` and `diff` as int64, in the columns' Arrow types or in types that cast
without loss (`streams.storage.write.arrow_types`). If anything does not fit, all of it is
refused before anything is stored.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.stream import brief
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.progress import END, Antichain, frontier
from streams.storage.description import Description
from streams.storage.limits import MOST_DIFF
from streams.storage.write.arrow_types import TypeMismatch, cast_losslessly
from streams.storage.write.union_structs import check_unions
from streams.trace import updates as trace
from streams.trace.columns import group, int64, key_form
from streams.trace.exact.diffs import running
from streams.trace.kernel.kernel import Kernel, arrow_schema


class WrongRows(InvalidUsage):
    """The updates do not match the collection's description."""

    def __init__(self, collection: CollectionId, why: str) -> None:
        super().__init__(collection, why)
        self.collection, self.why = collection, why

    def __str__(self) -> str:
        return f"updates of collection {self.collection}: {self.why}"


class OutsideInterval(InvalidUsage):
    """An update's time is not in [frontier, new frontier)."""

    def __init__(
        self, collection: CollectionId, time: Timestamp, lower: Antichain, upper: Antichain
    ) -> None:
        super().__init__(collection, time, lower, upper)
        self.collection, self.time, self.lower, self.upper = collection, time, lower, upper

    def __str__(self) -> str:
        return (
            f"updates of collection {self.collection}: expected times beyond {self.lower} and"
            f" not beyond {self.upper}, actual {self.time}"
        )


class NegativeMultiplicity(InvalidUsage):
    """These updates would make a row's multiplicity negative."""

    def __init__(self, collection: CollectionId, row: str, time: int, count: int) -> None:
        super().__init__(collection, row, time, count)
        self.collection, self.row, self.time, self.count = collection, row, time, count

    def __str__(self) -> str:
        return (
            f"updates of collection {self.collection}: row {self.row} would be there"
            f" {self.count} times at {self.time}"
        )


def conform(id_: CollectionId, updates: pa.Table, description: Description) -> pa.Table:
    """Return the updates in the engine's types: c0 .. cn, time, diff.

    Shape: columns under their own names, or under the engine's unless a column has such a name.
    Errors: WrongRows, TooLarge.
    """
    expected = arrow_schema(description.types)
    user = [*description.names, "time", "diff"]
    is_ambiguous = not set(description.names).isdisjoint(expected.names[:-2])
    accepted = [user] if is_ambiguous else [user, expected.names]
    if updates.column_names not in accepted:
        actual = brief(str(updates.column_names))
        raise WrongRows(id_, f"expected columns {brief(str(user))}, actual {actual}")
    columns = [
        conform_column(id_, name, column, field.type)
        for name, column, field in zip(user, updates.columns, expected, strict=True)
    ]
    for (name, type_), column in zip(description.columns, columns, strict=False):
        _check_unions(id_, name, column, type_)
    for position, name in enumerate(user):
        is_required = position >= len(user) - 2 or name in description.required
        if is_required and columns[position].null_count:
            raise WrongRows(id_, f"column {name}: expected no NULL, actual one or more")
    check_diffs(id_, columns[-1])
    return pa.Table.from_arrays(columns, schema=expected)


def conform_column(
    id_: CollectionId, name: str, column: pa.ChunkedArray, kind: pa.DataType
) -> pa.ChunkedArray:
    """Return a column in its type. Errors: WrongRows, TooLarge."""
    try:
        return cast_losslessly(column, kind)
    except TypeMismatch as cause:
        raise WrongRows(id_, f"column {name}: {brief(str(cause))}") from cause


def _check_unions(
    id_: CollectionId, name: str, column: pa.ChunkedArray, duckdb_type: str
) -> None:
    try:
        check_unions(column, duckdb_type)
    except TypeMismatch as cause:
        raise WrongRows(id_, f"column {name}: {cause}") from cause


def check_diffs(id_: CollectionId, diffs: pa.ChunkedArray) -> None:
    """Errors: WrongRows if a diff is so large that a few of them would overflow."""
    ends = pc.min_max(diffs).as_py()
    for end in (ends["min"], ends["max"]):
        if end is not None and abs(end) > MOST_DIFF:
            raise WrongRows(
                id_, f"column diff: expected {-MOST_DIFF} to {MOST_DIFF}, actual {end}"
            )


def check_times(
    id_: CollectionId, updates: pa.Table, lower: Antichain, upper: Antichain
) -> None:
    """Errors: OutsideInterval if a time is not in [lower, upper)."""
    if not updates.num_rows:
        return
    ends = pc.min_max(updates.column("time"))
    first, last = Timestamp(ends["min"].as_py()), Timestamp(ends["max"].as_py())
    if not lower.less_equal(first):
        raise OutsideInterval(id_, first, lower, upper)
    if upper.less_equal(last):
        raise OutsideInterval(id_, last, lower, upper)
    if last >= END:  # no upper can be beyond it
        raise OutsideInterval(id_, last, lower, frontier(END))


@dataclass(frozen=True, slots=True)
class MissingRow:
    """The row at position `row` would have the negative multiplicity `count` at `time`."""

    row: int
    time: int
    count: int


def shortfall(updates: pa.RecordBatch, own: int, kernel: Kernel) -> MissingRow | None:
    """Return the first time at which the updates give a row a negative multiplicity.

    Only rows of the last `own` updates are checked.

    Shape: `updates` has columns c0 .. cn, time, diff, with all updates ever made to these rows.
    """
    width = updates.num_columns - 2
    keys = [key_form(updates.column(i), kernel) for i in range(width)]
    groups = group(keys, updates.num_rows)
    ids = groups.ids
    is_own = np.zeros(groups.count, np.bool_)
    is_own[ids[len(ids) - own :]] = True
    times, diffs = int64(updates.column(trace.TIME)), int64(updates.column(trace.DIFF))
    order = np.lexsort((times, ids))
    ids, times = ids[order], times[order]
    is_first = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
    starts = np.flatnonzero(is_first)
    high, low = running(diffs[order], starts)
    # only the last update of a row at a time gives its multiplicity there
    is_last = np.append((ids[1:] != ids[:-1]) | (times[1:] != times[:-1]), True)[: len(ids)]
    short = np.flatnonzero(is_last & (high < 0) & is_own[ids])
    if not len(short):
        return None
    at = short[np.argmin(times[short])]
    return MissingRow(int(order[at]), int(times[at]), (int(high[at]) << 32) + int(low[at]))


def check_counts(id_: CollectionId, updates: pa.RecordBatch, own: int, kernel: Kernel) -> None:
    """Errors: NegativeMultiplicity if a row of the last `own` updates goes below zero."""
    missing = shortfall(updates, own, kernel)
    if missing is None:
        return
    width = updates.num_columns - 2
    values = [_text(updates.column(i).slice(missing.row, 1)) for i in range(width)]
    raise NegativeMultiplicity(id_, f"({', '.join(values)})", missing.time, missing.count)


def _text(value: pa.Array) -> str:
    """The text of an array of one value."""
    try:
        return str(value[0])
    except (OverflowError, ValueError):  # a date or time that Python does not hold, deep inside
        return str(value.to_string(skip_new_lines=True))
