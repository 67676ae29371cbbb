"""Updates by key: their orders, and what is left of them when equal rows cancel."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streams.storage.sinks.keyed_updates import KeyedUpdates
from streams.storage.sinks.orders import by_hash_and_time, by_hash_time_and_diff, by_value
from streams.trace.exact.diffs import DiffOverflow
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import advance, consolidate

KERNEL = Kernel()
TYPES = ("BIGINT", "DOUBLE", "VARCHAR", "INTEGER[]")
SCHEMA = arrow_schema(TYPES)
ROW = st.tuples(
    st.integers(0, 3),
    st.sampled_from([0.0, -0.0, float("nan"), None]),
    st.sampled_from(["", "a", None]),
    st.sampled_from([[1], [], None]),
    st.integers(0, 3),
    st.sampled_from([1, 1, 1, -1, -1, -1, 2, 0]),
)
INTEGERS = st.lists(
    st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3) | st.integers(1 << 40, 1 << 41)
)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    names = SCHEMA.names
    columns = [[row[place] for row in rows] for place in range(len(names))]
    arrays = [pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def listed(rows: pa.RecordBatch) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))


def left(updates: KeyedUpdates) -> pa.RecordBatch:
    """The rows of updates, with their times and diffs."""
    columns = updates.rows.take(pa.array(updates.positions)).columns[:-2]
    arrays = [*columns, pa.array(updates.times), pa.array(updates.diffs)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@given(st.lists(ROW, max_size=12), st.integers(0, 4))
@example([(1, 0.0, "a", [1], 2, 1), (1, 0.0, "a", [1], 2, -1)], 0)
@example([(1, 0.0, "a", [1], 2, 1), (1, -0.0, "a", [1], 2, -1)], 0)
@example([(1, None, "a", None, 2, 1), (1, None, "a", None, 2, 1)], 0)
def test_what_is_left_is_what_consolidation_leaves(
    rows: list[tuple[Any, ...]], since: int
) -> None:
    updates = advance(batch(rows), since)
    keyed = KeyedUpdates.of(updates, [0], KERNEL).consolidated(KERNEL)
    assert listed(left(keyed)) == listed(consolidate(updates, KERNEL))
    places = np.lexsort((keyed.times, keyed.hashes))
    assert (places == np.arange(len(places))).all()


@given(st.lists(ROW, max_size=12), st.integers(0, 4))
def test_updates_at_later_times(rows: list[tuple[Any, ...]], last: int) -> None:
    """From `last` on no time is sound; the even ones before it are not either."""
    keyed = KeyedUpdates.of(batch(rows), [0], KERNEL)
    times = np.where(keyed.times >= last, -1, keyed.times | 1)
    moved = [(*row[:4], row[4] | 1, row[5]) for row in rows if row[4] < last]
    expected = consolidate(batch(moved), KERNEL)
    assert listed(left(keyed.at(times).consolidated(KERNEL))) == listed(expected)


def test_sums_beyond_64_bits_are_refused() -> None:
    most = (1 << 63) - 1
    rows = [(1, 1.0, "a", [1], 2, most), (1, 1.0, "a", [1], 2, 1)]
    with pytest.raises(DiffOverflow):
        KeyedUpdates.of(batch(rows), [0], KERNEL).consolidated(KERNEL)


@given(INTEGERS)
def test_integers_are_ordered_stably(values: list[int]) -> None:
    array = np.array(values, np.int64)
    assert by_value(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(-2, 2))))
def test_updates_are_ordered_by_hash_time_and_diff(rows: list[tuple[int, int, int]]) -> None:
    for some in (rows, sorted(rows)):
        hashes = np.array([row[0] for row in some], np.uint64) << np.uint64(62)
        times, diffs = (np.array([row[n] for row in some], np.int64) for n in (1, 2))
        expected = np.lexsort((diffs, times, hashes))
        assert by_hash_time_and_diff(hashes, times, diffs).tolist() == expected.tolist()
        expected = np.lexsort((times, hashes))
        assert by_hash_and_time(hashes, times).tolist() == expected.tolist()
