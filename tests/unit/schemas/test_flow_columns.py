"""Packed tuples, many together: the same bytes, values and refusals as one by one."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fdb import tuple as layer
from hypothesis import example, given
from hypothesis import strategies as st

from schemas import flow_tuple
from schemas.blobs import Blobs
from schemas.flow_columns import Elements, pack_columns, unpack_columns
from schemas.flow_tuple import MalformedTuple

TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
EDGES = [
    value
    for count in range(1, 9)
    for size in (1 << 8 * count - 1, (1 << 8 * count) - 1, 1 << 8 * count)
    for value in (size - 1, size, -size, -size - 1, 1 - size)
    if flow_tuple.LEAST <= value <= flow_tuple.MOST
]
INTEGERS = st.one_of(
    st.integers(flow_tuple.LEAST, flow_tuple.MOST), st.sampled_from(EDGES), st.integers(-3, 3)
)
DOUBLES = st.floats(allow_nan=False)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False).map(str)
KINDS = (TEXTS, st.binary(), INTEGERS, DOUBLES, st.booleans(), DECIMALS, st.none())
MIXED = st.one_of(*KINDS)
COLUMN = st.one_of(*KINDS, MIXED, *(st.none() | kind for kind in KINDS))


@st.composite
def tables(draw: Any) -> list[tuple[Any, ...]]:
    """Rows of columns, each of one type, of one and nulls, or of all."""
    kinds = draw(st.lists(st.sampled_from([*KINDS, MIXED, st.none() | TEXTS]), max_size=4))
    size = draw(st.integers(0, 40))
    columns = [draw(st.lists(kind, min_size=size, max_size=size)) for kind in kinds]
    return list(zip(*columns, strict=True)) if columns else [()] * size


def same(left: Any, right: Any) -> bool:
    """Equal, of one type, and 0.0 is not -0.0."""
    return repr(left) == repr(right)


def packed_together(rows: list[tuple[Any, ...]]) -> list[bytes]:
    columns = [Elements.of(values) for values in zip(*rows, strict=True)]
    return list(pack_columns(columns, len(rows)))


def unpacked_together(packed: Any, width: int) -> list[tuple[Any, ...]]:
    columns = unpack_columns(packed, width)
    objects = [column.objects() for column in columns]
    return list(zip(*objects, strict=True)) if objects else [()] * len(packed)


@given(tables())
@example([("a\0", b"\0\xff", 1.5)] * 20 + [("b", b"", -0.0)] * 20)
def test_columns_pack_as_the_tuple_layer_does(rows: list[tuple[Any, ...]]) -> None:
    assert packed_together(rows) == [layer.pack(row) for row in rows]


@given(tables())
@example([(value, -1) for value in EDGES])
@example([("a",), ("b\0c",)] * 20)
def test_columns_unpack_as_the_tuple_layer_does(rows: list[tuple[Any, ...]]) -> None:
    packed = [layer.pack(row) for row in rows]
    width = len(rows[0]) if rows else 0
    assert same(unpacked_together(packed, width), rows)
    columns = unpack_columns(packed, width)
    assert [len(part) for column in columns for part in column.parts] == [
        len(rows) for column in columns for _ in column.parts
    ]
    assert list(pack_columns(columns, len(rows))) == packed


def outcome(unpack: Any, packed: Any, width: int) -> str:
    try:
        return repr(unpack(packed, width))
    except MalformedTuple as error:
        return f"refused: {error}"


def one_by_one(packed: Any, width: int) -> Any:
    return flow_tuple.unpack_some(packed, range(len(packed)), width)


HOSTILE = st.one_of(
    st.binary(max_size=12),
    st.lists(MIXED, max_size=3).map(lambda row: layer.pack(tuple(row))),
    st.lists(MIXED, min_size=1, max_size=3).map(lambda row: layer.pack(tuple(row))[:-1]),
    st.sampled_from(
        [
            layer.pack(((1,),)),
            layer.pack((layer.SingleFloat(1.0),)),
            layer.pack((2**70,)),
            layer.pack((-(2**63) - 1,)),
            b"\x15\x00",
            b"\x13\xff",
            b"\x0c" + b"\x7f" * 8,
            b"\x02\xff\xfe\x00",
            b"\x02\xed\xa0\x80\x00",
            b"\x02abc",
            b"\x02a\x00\xff",
            b"\xff",
            b"\x1c\x01",
            b"\x21\x00",
            b"\x99",
            b"",
        ]
    ),
)


@given(st.lists(HOSTILE, max_size=3), st.integers(0, 3), st.data())
def test_what_one_by_one_is_refused_is_refused_together(
    hostile: list[bytes], width: int, data: Any
) -> None:
    """Among tuples that are well formed, with the same words."""
    rows = data.draw(st.lists(st.tuples(*[MIXED] * width), min_size=20, max_size=20))
    packed = [layer.pack(row) for row in rows]
    for text in hostile:
        packed.insert(data.draw(st.integers(0, len(packed))), text)
    assert outcome(unpacked_together, packed, width) == outcome(one_by_one, packed, width)


def test_unpacking_touches_no_tuple_that_is_regular(monkeypatch: Any) -> None:
    """Of a thousand with one that has a NUL, that one alone is unpacked by itself."""
    places: list[int] = []
    some = flow_tuple.unpack_some

    def counted(packed: Any, which: Any, width: int) -> Any:
        places.extend(which)
        return some(packed, which, width)

    monkeypatch.setattr(flow_tuple, "unpack_some", counted)
    rows = [("a\0b" if place == 7 else f"{place}", place) for place in range(1000)]
    assert unpacked_together([layer.pack(row) for row in rows], 2) == rows
    assert places == [7]


@given(st.lists(st.binary(max_size=6), max_size=8), st.data())
def test_slices_of_an_arena_are_cut_wherever_they_lie(parts: list[bytes], data: Any) -> None:
    arena = b"".join(parts)
    inside = st.integers(0, len(arena))
    pairs = data.draw(st.lists(st.tuples(inside, inside).map(sorted)))
    begins = np.array([begin for begin, _ in pairs], np.int64)
    ends = np.array([end for _, end in pairs], np.int64)
    assert Blobs.cut(arena, begins, ends) == [arena[begin:end] for begin, end in pairs]
    blobs = Blobs.of(parts)
    assert Blobs.cut(blobs.arena, blobs.offsets[:-1], blobs.offsets[1:]) == parts
    assert blobs[1:3] == parts[1:3]
    assert blobs[1:3].arena == b"".join(parts[1:3])


def test_unsigned_arrays_are_split_where_63_bits_end() -> None:
    values = [1, None, 2**64 - 1]
    column = Elements.of_array(pa.array(values, pa.uint64()))
    assert column.types == [pa.int64(), pa.uint64()]
    assert column.objects() == values


@pytest.mark.parametrize("value", ["\ud800", [1], 2**64, -(2**63) - 1])
def test_what_is_no_element_is_refused(value: Any) -> None:
    with pytest.raises(MalformedTuple, match="expected values of JSON"):
        Elements.of([value])
