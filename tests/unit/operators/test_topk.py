"""The first rows of groups, against sorting at every time."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.ids import CollectionId
from streams.operators import interesting_times, topk
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.progress import interval_of
from streams.testing import maintain
from streams.trace.arrange import order, ordered
from streams.trace.columns import Words, hash_keys
from tests.support.examples import examples
from tests.support.work import counted

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


def is_negative(rows: list[tuple[Row, int, int]], time: int) -> bool:
    """Whether some row is there a negative number of times."""
    counts: Counter[Row] = Counter()
    for row, when, diff in rows:
        counts[row] += diff if when <= time else 0
    return min(counts.values(), default=0) < 0


def at(rows: list[tuple[Row, int, int]], time: int) -> list[Row]:
    """The rows at a time, those with the greatest x first, ties broken by the whole row."""
    counts: Counter[Row] = Counter()
    for row, when, diff in rows:
        counts[row] += diff if when <= time else 0
    by_row = sorted(counts.elements(), key=lambda row: tuple(map(last, row)))
    return sorted(by_row, key=lambda row: (row[1] is not None, -(row[1] or 0)))


def colliding(_: Sequence[pa.Array], rows: int) -> Words:
    """One hash for all keys."""
    return np.full(rows, 7, np.uint64)


@given(st.integers(0, 2**32), st.booleans())
@examples(40)
def test_the_first_rows_are_those_of_a_sort_at_every_time(seed: int, negative: bool) -> None:
    chance = random.Random(seed)
    rows, limit, offset = history(chance), chance.randrange(5), chance.choice([0, 0, 2])
    if negative:
        row, first, count = chance.choice(rows) if rows else ((1, 1, "a"), 0, 1)
        early = chance.randint(0, first)
        rows = [(row, early, -count), *rows, (row, TIMES - 2, count)]
    cuts = sorted({*chance.sample(range(1, TIMES), chance.randrange(6)), TIMES})
    cells = chance.choice([1, 20, 200, 1 << 18])
    by_group = chance.random() < 0.5
    query = f"SELECT * FROM t ORDER BY x DESC LIMIT {limit} OFFSET {offset}"
    if by_group:
        limit, offset = 1, 0
        query = "SELECT DISTINCT ON (g) * FROM t ORDER BY g, x DESC"
    factor = chance.choice([0, 2])
    with (
        patch.object(topk, "_MOST_CELLS", cells),
        patch.object(ordered, "_SCANNED", chance.choice([0, 32])),
        patch.object(interesting_times, "hash_keys", chance.choice([hash_keys, colliding])),
    ):
        view = maintain(query, {"t": COLUMNS}, {"t": table(rows)}, cuts, merge_factor=factor)
    for time in range(view.since, view.upper):
        assert bool(view.errors_at(time)) == is_negative(rows, time), (query, time)
        if is_negative(rows, time):
            continue
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


def updates(values: range, times: np.ndarray, diff: int = 1) -> pa.Table:
    columns = [pa.array(values, pa.int64()), pa.array(times), pa.array([diff] * len(values))]
    return pa.table(columns, names=["v", "time", "diff"])


def test_rows_behind_the_first_are_not_looked_up_nor_are_their_times(tmp_path: Path) -> None:
    catalog = {"t": Relation(CollectionId("t"), (Column("v", "BIGINT"),))}
    query = "SELECT v FROM t ORDER BY v LIMIT 5"
    local = LocalDataflow(compile_view(query, catalog).dataflow, tmp_path, buckets=1)
    local.step(interval_of(0, 1, as_of=True), {})
    stored = range(0, 20_000, 2)
    local.step(interval_of(1, 2), {0: updates(stored, np.ones(len(stored), np.int64))})
    more = range(101, 2_101, 2)
    with (
        counted() as done,
        patch.object(order, "bound", wraps=order.bound) as searched,
        patch.object(topk, "_chosen", wraps=topk._chosen) as chosen,
    ):
        local.step(interval_of(2, 1_002), {0: updates(more, np.arange(2, 1_002))})
    assert done.read < 100
    assert max(len(call.args[1]) for call in searched.call_args_list) == 1
    assert [call.args[3] - call.args[2] for call in chosen.call_args_list] == [2]
