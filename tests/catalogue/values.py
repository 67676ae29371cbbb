"""A table with a column of every type, whose rows come and go.

Each type has two columns (`x_i`, `y_i`), which hold its values in different orders: a function
of two arguments meets most pairs. `id` numbers the rows and `g` puts them into groups.
"""

import random
from collections import Counter
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tests.support.plan_tables import NESTED, VALUES

_EDGES = {
    "huge": ["'170141183460469231731687303715884105727'", "-3"],
    "uhuge": ["0"],
    "f": ["0.0", "'-inf'", "3.4e38", "2.5"],
    "d": ["'inf'", "-1e300", "2.5", "3.0"],
    "s": ["'2024-02-29'", "'[1, 2]'", "'a'"],
    "bits": ["'1'", "'000000001'"],
    "tz": ["'00:00:00+15:59'", "'10:30:00+01'", "'09:30:00+00'"],
    "tsz": ["'infinity'", "'-infinity'", "'1969-12-31 23:59:59.999999+00'"],
    "ts": ["'infinity'"],
    "ns": ["'1969-12-31 23:59:59.999999999'"],
    "iv": ["INTERVAL '1 month 2 days 3 us'", "INTERVAL '0 s'", "INTERVAL '-14 months 9 days'"],
    "no": ["'-1'", "'0'"],
}
_MORE = {
    "ux": ("USMALLINT", "NULL", "65535", "0", "3"),
    "ui": ("UINTEGER", "NULL", "4294967295", "0", "3"),
    "tns": ("TIME_NS", "NULL", "'12:34:56.123456789'"),
}  # fmt: skip
TYPES: dict[str, tuple[str, list[str]]] = {
    name: (type_, [*literals, *_EDGES.get(name, [])])
    for name, (type_, *literals) in (VALUES | NESTED | _MORE).items()
}
"""By the column's name its type and its values, NULL first."""
ROWS = 18
LAST = 3
"""The last time of a change."""


@dataclass(frozen=True)
class History:
    """Updates of the rows: (id, time, diff)."""

    updates: tuple[tuple[int, int, int], ...]

    def at(self, time: int) -> Counter[int]:
        """How often each row is there at a time."""
        counts: Counter[int] = Counter()
        for row, at, diff in self.updates:
            counts[row] += diff if at <= time else 0
        return +counts


def history() -> History:
    """Two thirds of the rows are there first; others come, go and come back."""
    updates = []
    for row in range(ROWS):
        start = 0 if row % 3 else 1
        updates.append((row, start, 2 if row % 5 == 0 else 1))
        if row % 2:
            updates.append((row, 2, -1))
        if row % 4 == 1:
            updates.append((row, LAST, 1))
    return History(tuple(updates))


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the table `every` with a row for each id."""
    chance = random.Random(13)
    names = ", ".join(
        f"x_{name} {type_}, y_{name} {type_}" for name, (type_, _) in TYPES.items()
    )
    connection.execute(f"CREATE OR REPLACE TABLE every (id INTEGER, g INTEGER, {names})")
    for row in range(ROWS):
        cells = [str(row), str(row % 3)]
        for _, literals in TYPES.values():
            other = chance.choice(literals)
            cells += [literals[row % len(literals)], other]
        connection.execute(f"INSERT INTO every VALUES ({', '.join(cells)})")


def updates(rows: pa.Table, changes: History) -> pa.Table:
    """The history over rows in the order of their ids, as `maintain` takes it."""
    data = rows.take(pa.array([row for row, _, _ in changes.updates], pa.int64()))
    times = pa.array([time for _, time, _ in changes.updates], pa.int64())
    diffs = pa.array([diff for _, _, diff in changes.updates], pa.int64())
    return data.append_column("_time", times).append_column("_diff", diffs)
