"""Ranges of chunks: what they bound, and that no wanted row is ever left behind."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.ids import CollectionId, Offset
from streams.kafka.log import ChunkRef, Range
from streams.storage.description import Description
from streams.storage.log.column_stats import range_of, with_ranges
from streams.storage.read.options import Comparison, Operator, Options, selection
from streams.storage.write.validation import NegativeMultiplicity, check_counts, shortfall
from streams.trace.kernel.kernel import Kernel

LAW = settings(deadline=None)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([3, None, -1], pa.int64(), Range(-1, 3)),
        ([0.5, float("nan"), 2.0], pa.float64(), Range(0.5, 2.0)),
        ([float("nan")], pa.float64(), None),
        (["b", "a", None], pa.utf8(), Range("a", "b")),
        (["b", "a" * 65], pa.utf8(), None),
        ([None, None], pa.int32(), None),
        ([1, 2], pa.uint64(), None),
        ([True], pa.bool_(), None),
    ],
)
def test_what_is_bounded(values: list[object], kind: pa.DataType, expected: object) -> None:
    assert range_of(pa.chunked_array([pa.array(values, kind)])) == expected


def test_each_chunk_has_the_ranges_of_its_own_rows() -> None:
    numbers = list(range(900))
    rows = pa.table({"c0": numbers, "time": [1] * 900, "diff": [1] * 900})
    sizes = (400, 100, 400)
    refs = [ChunkRef(0, Offset(n), f"k{n}", 7, size, 1) for n, size in enumerate(sizes)]
    chunks = with_ranges(refs, rows)
    assert [chunk.ranges for chunk in chunks] == [(Range(0, 399),), (), (Range(500, 899),)]
    assert chunks == tuple(refs)  # ranges are no part of what a chunk is


def test_a_chunk_that_holds_errors_has_no_ranges() -> None:
    """Those before it have theirs, and so has what was written beside no errors at all."""
    numbers = list(range(600))
    rows = pa.table({"c0": numbers, "time": [1] * 600, "diff": [1] * 600})
    mixed = [ChunkRef(0, Offset(n), f"k{n}", 7, size, 1) for n, size in enumerate((300, 301))]
    assert [chunk.ranges for chunk in with_ranges(mixed, rows)] == [(Range(0, 299),), ()]
    plain = [ChunkRef(0, Offset(0), "k", 7, 600, 1)]
    assert [chunk.ranges for chunk in with_ranges(plain, rows)] == [(Range(0, 599),)]


floats = st.floats(allow_infinity=True, allow_nan=True, width=64)


@LAW
@given(
    st.lists(st.none() | floats, min_size=1, max_size=6),
    st.sampled_from(Operator),
    floats,
)
def test_no_wanted_row_is_left_behind(
    values: list[float | None], operator: Operator, value: float
) -> None:
    column = pa.array(values, pa.float64())
    count = len(values)
    rows = pa.Table.from_arrays(
        [column, pa.array([0] * count), pa.array([1] * count)], ["c0", "time", "diff"]
    )
    options = Options(where=(Comparison("x", operator, value),))
    chosen = selection(options, Description((("x", "DOUBLE"),)))
    bounds = range_of(pa.chunked_array([column]))
    chunk = ChunkRef(0, Offset(0), "key", 7, count, 1, (bounds,))
    assert chosen.may_match(chunk) or chosen.apply(rows).num_rows == 0


@LAW
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 5),
            st.integers(-2, 3) | st.sampled_from([-(2**62), 2**62, 2**63 - 1]),
        ),
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_a_shortfall_is_the_first_time_an_own_row_is_there_less_than_never(
    kernel: Kernel, updates: list[tuple[int, int, int]], most: int
) -> None:
    own = min(most, len(updates))
    mine = {row for row, _, _ in updates[len(updates) - own :]}
    rows = pa.RecordBatch.from_arrays(
        [pa.array([update[i] for update in updates], pa.int64()) for i in range(3)],
        ["c0", "time", "diff"],
    )
    totals = [
        (time, row, sum(d for r, t, d in updates if r == row and t <= time))
        for time in range(6)
        for row in mine
    ]
    short = [total for total in totals if total[2] < 0]
    missing = shortfall(rows, own, kernel)
    assert (missing is None) == (not short)
    if missing is not None:
        assert missing.time == min(short)[0]
        assert (missing.time, updates[missing.row][0], missing.count) in short


def test_a_row_with_dates_that_python_does_not_hold_is_named(kernel: Kernel) -> None:
    day = pa.scalar(2**31 - 1, pa.date32())
    columns = [
        pa.array([day], pa.date32()),
        pa.array([[day]], pa.list_(pa.date32())),
        pa.array([7], pa.int64()),
        pa.array([-1], pa.int64()),
    ]
    rows = pa.RecordBatch.from_arrays(columns, ["c0", "c1", "time", "diff"])
    with pytest.raises(NegativeMultiplicity, match=r"2147483647.*2147483647.* -1 times at 7"):
        check_counts(CollectionId("t1"), rows, 1, kernel)
