"""The stranger's chunks: made in bounds, validated when opened, put together, counted."""

import uuid

import pyarrow as pa
import pytest

from tests.stranger import chunk
from tests.stranger.reader import Failing, clipped, counted
from tests.stranger.types import arrow
from tests.support import foreign

ROWS = pa.table(
    {
        "name": pa.array(["a", "b", "c"]),
        "time": pa.array([1, 2, 3], pa.int64()),
        "diff": pa.array([1, 1, 2], pa.int64()),
    }
)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_rows_are_read_from_chunks_as_they_were_written(codec: str | None) -> None:
    ((body, rows),) = chunk.written(ROWS, codec)
    assert rows == 3
    fetched = clipped(body, 2, 4)
    assert counted(fetched, with_time=True) == {("b", 2): 1, ("c", 3): 2}


def test_many_rows_are_several_chunks() -> None:
    text = uuid.uuid4().hex * 1_000
    rows = pa.table({"name": [text] * 90, "time": range(90), "diff": [1] * 90})
    parts = list(chunk.written(rows, None))
    assert len(parts) == 4
    assert sum(rows for _, rows in parts) == 90


@pytest.mark.parametrize("text", [foreign.outside(), foreign.not_utf8()])
def test_what_is_not_sound_is_not_read(text: pa.Array) -> None:
    body = foreign.chunk_of([text], ["name"], [3, 3])
    with pytest.raises(pa.ArrowInvalid):
        chunk.opened(body)


def test_a_diff_and_a_null_row_have_bounds() -> None:
    large = foreign.chunk_of([pa.array(["a"])], ["name"], [3], [(1 << 53) + 1])
    with pytest.raises(AssertionError):
        chunk.check(large, 1)


def failing(*errors: tuple[str, int]) -> pa.Table:
    """Errors with their diffs, as the system writes them."""
    data = pa.nulls(len(errors), pa.struct([("name", pa.utf8())]))
    times = pa.array([1] * len(errors), pa.int64())
    diffs = pa.array([diff for _, diff in errors], pa.int64())
    texts = pa.array([text for text, _ in errors])
    return pa.table([data, times, diffs, texts], names=chunk.COLUMNS)


def test_errors_that_sum_to_nothing_are_none() -> None:
    assert counted(failing(("a", 1), ("a", -1)), with_time=False) == {}
    with pytest.raises(Failing, match="b"):
        counted(failing(("a", 1), ("a", -1), ("b", 1)), with_time=False)


def test_zones_and_what_is_nullable_say_nothing() -> None:
    def of(zone: str, *, nullable: bool) -> pa.Table:
        fields = [pa.field("at", pa.timestamp("us", zone), nullable=nullable)]
        data = pa.StructArray.from_arrays([pa.array([7], fields[0].type)], fields=fields)
        more = [pa.array([1], pa.int64()), pa.array([1], pa.int64()), pa.nulls(1, pa.utf8())]
        return pa.table([data, *more], names=chunk.COLUMNS)

    types = chunk.same_types([of("Europe/Rome", nullable=False), of("UTC", nullable=True)])
    assert types is not None
    (count,) = counted(types, with_time=False).values()
    assert count == 2


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        ("4ac7a9e9-607c-4c8a-84f3-843f0191e3fd", True),
        ("4AC7A9E9607C4C8A84F3843F0191E3FD", True),
        ("4ac7a9e9607c-4c8a-84f3-843f0191e3fd", False),
        ("{4ac7a9e9-607c-4c8a-84f3-843f0191e3fd}", False),
    ],
)
def test_a_key_is_the_text_of_a_uuid(key: str, is_one: bool) -> None:
    assert bool(chunk.UUID.fullmatch(key)) == is_one


def test_types_lie_in_each_other() -> None:
    inner = pa.struct([("a", pa.decimal128(7, 2)), ("b", pa.list_(pa.utf8(), 3))])
    assert arrow("MAP(VARCHAR, STRUCT(a DECIMAL(7, 2), b VARCHAR[3])[])") == pa.map_(
        pa.utf8(), pa.list_(inner)
    )
    members = [("TAG", pa.int32()), ("tag_", pa.utf8())]
    assert arrow("UNION(TAG INTEGER, tag_ VARCHAR)") == pa.struct(
        [("tag__", pa.uint8()), *members]
    )
