"""Packed tuples of the materialization protocol: the layer's bytes, order, hostile bytes."""

import contextlib
import json

import pytest
from fdb import tuple as layer
from hypothesis import given
from hypothesis import strategies as st

from schemas import flow_tuple
from schemas.flow_tuple import MalformedTuple

TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
INTEGERS = st.integers(flow_tuple.LEAST, flow_tuple.MOST)
DOUBLES = st.floats(allow_nan=False).map(lambda value: value + 0.0)
ELEMENTS = st.one_of(st.none(), st.booleans(), TEXTS, st.binary(), INTEGERS, DOUBLES)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), TEXTS, INTEGERS),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(st.lists(ELEMENTS))
def test_a_tuple_is_that_of_the_tuple_layer(values):
    """Seed, "FoundationDB tuples": keys and values are packed in the layer's format."""
    packed = flow_tuple.pack(values)
    assert packed == layer.pack(tuple(values))
    assert flow_tuple.unpack(packed) == tuple(values)


@pytest.mark.parametrize("kind", [TEXTS, st.binary(), INTEGERS, DOUBLES, st.booleans()])
@given(st.data())
def test_packed_keys_sort_as_keys_component_by_component(kind, data):
    row = st.tuples(kind, st.one_of(st.just(0), st.just(1)))
    rows = data.draw(st.lists(row, min_size=2, max_size=8))
    assert sorted(rows, key=flow_tuple.pack) == sorted(
        rows, key=lambda row: (row[0].encode(), row[1]) if isinstance(row[0], str) else row
    )


@given(JSON)
def test_a_json_value_is_one_element(value):
    element = flow_tuple.element(value)
    if isinstance(value, dict | list):
        assert isinstance(element, bytes)
        assert json.loads(element) == value
    else:
        assert element == value
        assert type(element) is type(value)
    assert flow_tuple.unpack(flow_tuple.pack([element])) == (element,)


def test_objects_are_compact_json_with_sorted_keys():
    assert flow_tuple.element({"b": [1, "ä"], "a": None}) == '{"a":null,"b":[1,"ä"]}'.encode()


@pytest.mark.parametrize(
    ("value", "element"),
    [
        (2**64 - 1, 2**64 - 1),
        (2**64, 18446744073709551616.0),
        (-(2**63), -(2**63)),
        (-(2**63) - 1, -9223372036854775808.0),
        (1.0, 1.0),
    ],
)
def test_whole_numbers_past_64_bits_are_doubles(value, element):
    assert flow_tuple.element(value) == element
    assert type(flow_tuple.element(value)) is type(element)


def test_one_and_one_point_zero_are_two_keys():
    assert flow_tuple.pack([1]) != flow_tuple.pack([1.0])


@pytest.mark.parametrize("value", [10**400, {1, 2}, [float("nan")], {"a": "\ud800"}, b"bytes"])
def test_what_is_no_json_value_is_refused(value):
    with pytest.raises(MalformedTuple):
        flow_tuple.element(value)


def test_text_of_half_a_code_point_is_refused():
    with pytest.raises(MalformedTuple):
        flow_tuple.pack(["\ud800"])


@given(st.lists(ELEMENTS, min_size=1), st.data())
def test_a_tuple_that_is_cut_off_is_never_another_tuple(values, data):
    packed = flow_tuple.pack(values)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with contextlib.suppress(MalformedTuple):
        assert layer.pack(flow_tuple.unpack(cut)) == cut


@given(st.binary(max_size=40))
def test_hostile_bytes_are_refused_or_are_canonical(packed):
    try:
        elements = flow_tuple.unpack(packed)
    except MalformedTuple:
        return
    assert flow_tuple.pack(elements) == packed


@pytest.mark.parametrize(
    "packed",
    [
        b"\x02abc",  # text without its end
        b"\x1c\x01",  # an integer of eight bytes with one
        b"\x21\x00",  # half a double
        b"\x05",  # a nested tuple without its end
        layer.pack(((1,),)),  # nested
        layer.pack((layer.SingleFloat(1.0),)),
        layer.pack((2**70,)),
        b"\x15\x00",  # zero in one byte
        b"\x02\xff\xfe\x00",  # no UTF-8
        b"\x99",
        b"\x05" * 10000,
    ],
)
def test_what_the_protocol_does_not_have_is_refused(packed):
    with pytest.raises(MalformedTuple):
        flow_tuple.unpack(packed)


def test_a_wrong_tuple_among_many_is_named():
    good = [flow_tuple.pack([1, "a"]), flow_tuple.pack([2, "b"])]
    assert flow_tuple.unpack_some(good, [0, 1], 2) == [(1, "a"), (2, "b")]
    with pytest.raises(MalformedTuple, match="tuple 1: cannot unpack 0x99"):
        flow_tuple.unpack_some([good[0], b"\x99", good[1]], range(3), 2)
    with pytest.raises(MalformedTuple, match="tuple 2: expected 2 elements, actual 1"):
        flow_tuple.unpack_some([*good, flow_tuple.pack([1])], range(3), 2)
