"""The first rows of groups, against sorting at every time."""

import random
from collections import Counter
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.operators import topk
from streams.testing import maintain
from tests.support.examples import examples

Row = tuple[int | None, int | None, str | None]
COLUMNS = "g INTEGER, x INTEGER, s VARCHAR"
TIMES = 30


def history(chance: random.Random) -> list[tuple[Row, int, int]]:
    """Inserts, retractions of rows that are there, and pairs that cancel at one time."""
    live: list[Row] = []
    updates = []
    for time in sorted(chance.choices(range(TIMES), k=chance.randrange(120))):
        if live and chance.random() < 0.45:
            row = min(live, key=str) if chance.random() < 0.5 else chance.choice(live)
            live.remove(row)
            updates.append((row, time, -1))
            continue
        row = (
            chance.choice([1, 1, 1, 2, None]),
            chance.choice([None, *range(8)]),
            chance.choice(["a", "b", None]),
        )
        count = chance.choice([1, 1, 3])
        live += [row] * count
        updates.append((row, time, count))
    return updates


def table(rows: list[tuple[Row, int, int]]) -> pa.Table:
    types = [pa.int32(), pa.int32(), pa.string(), pa.int64(), pa.int64()]
    lists = [[row[i] for row, _, _ in rows] for i in range(3)]
    lists += [[time for _, time, _ in rows], [diff for _, _, diff in rows]]
    arrays = [pa.array(values, kind) for values, kind in zip(lists, types, strict=True)]
    return pa.table(arrays, names=["g", "x", "s", "_time", "_diff"])


def last(value: object) -> tuple[bool, object]:
    """A key that sorts NULL last."""
    return (value is None, 0 if value is None else value)


def at(rows: list[tuple[Row, int, int]], time: int) -> list[Row]:
    """The rows at a time, those with the greatest x first, ties broken by the whole row."""
    counts: Counter[Row] = Counter()
    for row, when, diff in rows:
        counts[row] += diff if when <= time else 0
    by_row = sorted(counts.elements(), key=lambda row: tuple(map(last, row)))
    return sorted(by_row, key=lambda row: (row[1] is not None, -(row[1] or 0)))


@given(st.integers(0, 2**32))
@examples(30)
def test_the_first_rows_are_those_of_a_sort_at_every_time(seed: int) -> None:
    chance = random.Random(seed)
    rows, limit, offset = history(chance), chance.randrange(5), chance.choice([0, 0, 2])
    cuts = sorted({*chance.sample(range(1, TIMES), chance.randrange(6)), TIMES})
    cells = chance.choice([1, 20, 200, 1 << 18])
    by_group = chance.random() < 0.5
    query = f"SELECT * FROM t ORDER BY x DESC LIMIT {limit} OFFSET {offset}"
    if by_group:
        limit, offset = 1, 0
        query = "SELECT DISTINCT ON (g) * FROM t ORDER BY g, x DESC"
    factor = chance.choice([0, 2])
    with patch.object(topk, "_MOST_CELLS", cells):
        view = maintain(query, {"t": COLUMNS}, {"t": table(rows)}, cuts, merge_factor=factor)
    for time in range(view.since, view.upper):
        actual = at(rows, time)
        groups = {row[0] for row in actual} if by_group else {0}
        want = [
            row
            for group in groups
            for row in [r for r in actual if not by_group or r[0] == group][
                offset : offset + limit
            ]
        ]
        actual = [tuple(row.values()) for row in view.at(time).to_pylist()]
        assert sorted(actual, key=str) == sorted(want, key=str), (query, time)
