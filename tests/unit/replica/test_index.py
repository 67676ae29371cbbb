"""An index holds what its collection holds, through any history of changes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.operators.context import ERRORS
from streams.progress import frontier
from streams.replica.peeks.index import IndexContents
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema
from streams.trace.updates import contents_at, flatten

TYPES = ("DOUBLE", "VARCHAR")
SCHEMA = arrow_schema(TYPES)
KERNEL = Kernel()

rows = st.tuples(
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), None]), st.sampled_from(["a", "b", None])
)
changes = st.lists(st.tuples(rows, st.integers(-2, 2)), max_size=6)


def table(updates: list[tuple[tuple[object, object], int, int]]) -> pa.Table:
    columns = [
        [row[0] for row, _, _ in updates],
        [row[1] for row, _, _ in updates],
        [time for _, time, _ in updates],
        [diff for _, _, diff in updates],
    ]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def errors(*said: tuple[str, int, int]) -> pa.Table:
    columns = zip(*said, strict=True) if said else ((), (), ())
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, ERRORS, strict=True)], ERRORS)


def at(updates: pa.Table, time: int) -> list[str]:
    held = contents_at(flatten([updates], SCHEMA), time, KERNEL)
    return sorted(map(repr, held.to_pylist()))


@settings(deadline=None)
@given(
    st.lists(st.tuples(changes, st.integers(0, 3)), max_size=12),
    st.sampled_from([(0,), (1,), (1, 0)]),
)
def test_it_holds_what_its_collection_holds(steps, keys) -> None:
    index = IndexContents(keys, TYPES, 0, frontier(0))
    history = table([])
    for time, (diffs, behind) in enumerate(steps):
        news = table([(row, time, diff) for row, diff in diffs if diff])
        history = pa.concat_tables([history, news])
        since = max(index.since, time - behind)
        index = index.add(news, errors(), since, frontier(time + 1), KERNEL)
        for then in range(index.since, time + 1):
            assert at(index.everything()[0], then) == at(history, then)
            updates = pa.concat_tables(
                [index.find(key(keys, value), KERNEL)[0] for value in every_key(keys)]
            )
            assert at(updates, then) == at(history, then)
    assert len(index.runs) <= 8


def every_key(keys: tuple[int, ...]) -> list[tuple[object, ...]]:
    values: dict[int, list[object]] = {0: [0.0, 1.0, float("nan"), None], 1: ["a", "b", None]}
    pairs: list[tuple[object, ...]] = [()]
    for position in keys:
        pairs = [(*pair, value) for pair in pairs for value in values[position]]
    return pairs


def key(keys: tuple[int, ...], values: tuple[object, ...]) -> pa.RecordBatch:
    schema = data_schema([TYPES[position] for position in keys])
    arrays = [pa.array([v], f.type) for v, f in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_a_look_up_takes_its_rows_alone() -> None:
    index = IndexContents((1,), TYPES, 0, frontier(0))
    news = table([((float(number), f"k{number}"), 0, 1) for number in range(1000)])
    index = index.add(news, errors(), 0, frontier(1), KERNEL)
    updates, _ = index.find(key((1,), ("k7",)), KERNEL)
    assert updates.column("c0").to_pylist() == [7.0]
    keys = pa.RecordBatch.from_pylist([{"c0": "k7"}, {"c0": "k9"}, {"c0": "x"}, {"c0": "k7"}])
    updates, _ = index.find(keys, KERNEL)
    assert sorted(updates.column("c0").to_pylist()) == [7.0, 9.0]


def test_history_goes_and_memory_with_it() -> None:
    index = IndexContents((0,), TYPES, 0, frontier(0))
    for time in range(100):
        news = [((float(n), f"v{time}"), time, 1) for n in range(10)]
        gone = [((float(n), f"v{time - 1}"), time, -1) for n in range(10) if time]
        index = index.add(table([*news, *gone]), errors(), time, frontier(time + 1), KERNEL)
    assert sum(map(len, index.runs)) < 200
    assert len(index.whole(KERNEL).runs[0]) == 10


def test_errors_are_kept_and_go() -> None:
    index = IndexContents((0,), TYPES, 0, frontier(0))
    index = index.add(table([]), errors(("bad", 1, 1)), 0, frontier(2), KERNEL)
    assert index.everything()[1].to_pylist() == [{"error": "bad", "time": 1, "diff": 1}]
    index = index.add(table([]), errors(("bad", 3, -1)), 4, frontier(5), KERNEL)
    assert index.everything()[1].num_rows == 0
    assert pytest.approx(index.nbytes) == 0
