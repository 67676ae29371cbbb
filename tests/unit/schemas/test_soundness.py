"""Times up to 24:00:00 are sound in chunks, at any depth, and none beyond them."""

import pyarrow as pa
import pytest

from schemas import chunk
from schemas.soundness import validate
from streams.errors import Corrupt
from tests.support import foreign

DAY = 86_400_000_000
TIME = pa.time64("us")
SHAPES = [
    TIME,
    pa.list_(TIME),
    pa.list_(TIME, 1),
    pa.map_(TIME, pa.string()),
    pa.map_(pa.string(), TIME),
    pa.struct([("s", pa.string()), ("l", pa.list_(pa.struct([("t", TIME)])))]),
]


def column(kind: pa.DataType, micros: int) -> pa.Array:
    """One value of the type, all of whose times are this one; and NULL."""

    def value(kind: pa.DataType) -> object:
        if pa.types.is_map(kind):
            return [(value(kind.key_type), value(kind.item_type))]
        if pa.types.is_struct(kind):
            return {field.name: value(field.type) for field in kind.fields}
        if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
            return [value(kind.value_type)]
        return pa.scalar(micros, TIME) if kind == TIME else "x"

    return pa.array([value(kind), None], kind)


@pytest.mark.parametrize("kind", SHAPES, ids=str)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_the_end_of_the_day_is_a_time(kind: pa.DataType, compression: str | None) -> None:
    sound = column(kind, DAY)
    with pytest.raises(pa.ArrowInvalid):
        sound.validate(full=True)
    body = foreign.chunk_of(
        [sound, pa.array(["a", "b"])], ["t", "v"], [1, 1], None, compression
    )
    updates, _ = chunk.decode(body)
    assert updates.column(0).combine_chunks().equals(sound)


@pytest.mark.parametrize("kind", SHAPES, ids=str)
@pytest.mark.parametrize("micros", [DAY + 1, -1, -(2**63), 2**63 - 1])
def test_what_is_no_time_of_a_day_is_corrupt(kind: pa.DataType, micros: int) -> None:
    body = foreign.chunk_of([column(kind, micros)], ["t"], [1, 1])
    with pytest.raises(Corrupt, match="times of a day"):
        chunk.decode(body)


def test_times_of_any_unit_end_with_the_day() -> None:
    for unit, kind in [("s", pa.time32("s")), ("ms", pa.time32("ms")), ("ns", pa.time64("ns"))]:
        end = DAY * {"s": 1, "ms": 1_000, "ns": 1_000_000_000}[unit] // 1_000_000
        validate(pa.record_batch({"t": pa.array([end, None], kind)}))
        with pytest.raises(pa.ArrowInvalid, match="times of a day"):
            validate(pa.record_batch({"t": pa.array([end + 1], kind)}))


def test_a_time_excuses_nothing_else() -> None:
    for unsound in (foreign.outside(), foreign.not_utf8()):
        body = foreign.chunk_of([unsound, column(TIME, DAY)], ["a", "t"], [1, 1])
        with pytest.raises(Corrupt):
            chunk.decode(body)
