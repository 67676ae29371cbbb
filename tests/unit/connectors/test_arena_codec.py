"""Messages as bytes: what goes in comes out, in pieces, and hostile bytes are violations."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.protocol import arena_codec, messages, slices
from connectors.protocol.messages import Extensions, Tuples
from connectors.protocol.violations import Rule, Side, Violation
from schemas.flow_pb2 import Slice
from schemas.materialize_pb2 import TransactionRequest, TransactionResponse
from tests.support.materialization_tasks import store, task

OPEN = messages.Open(
    materialization=task(),
    version="v1",
    key_begin=1,
    key_end=2**32 - 1,
    driver_checkpoint=b'{"a":1}',
    extensions=Extensions(acknowledge=True),
)
REQUESTS = [
    OPEN,
    messages.Load(1, Tuples.of([("a", 1), ("b", 2)])),
    messages.Flush(b"cp"),
    store(1, ("a", 1, 1.5, '{"a":"a"}'), ("b", 2, None, "{}"), width=2, exists=[True, False]),
    store(0, (1, None, "{}"), deletes=[True]),
    messages.StartCommit(),
    messages.Acknowledge(),
]
RESPONSES = [
    messages.Opened(b"cp"),
    messages.Opened(),
    messages.Opened(b"", (messages.Subrange(0, 7, b"cp"), messages.Subrange(8, 9, b""))),
    messages.Loaded(2, [b'{"id":1}', b'{"id":2}']),
    messages.Flushed(),
    messages.Flushed(b'{"a":null}', patch=True),
    messages.StartedCommit(),
    messages.Acknowledged(),
]


@pytest.mark.parametrize("message", REQUESTS, ids=range(len(REQUESTS)))
def test_a_request_is_what_it_was(message):
    (encoded,) = arena_codec.encode_request(message)
    assert arena_codec.parse_request(encoded.SerializeToString()) == message


@pytest.mark.parametrize("message", RESPONSES, ids=range(len(RESPONSES)))
def test_a_response_is_what_it_was(message):
    (encoded,) = arena_codec.encode_response(message)
    assert arena_codec.parse_response(encoded.SerializeToString()) == message


ROWS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8")), st.integers(0, 9)), max_size=40
)


@given(ROWS, st.integers(1, 60), st.integers(1, 7))
def test_rows_are_cut_into_messages_of_bounded_size(rows, size, count):
    """Seed, "Load" and "Store": any number of messages, with slices of their own arenas."""
    message = store(0, *[(text, number, "{}") for text, number in rows])
    patch = pytest.MonkeyPatch()
    patch.setattr(arena_codec, "ARENA_BYTES", size)
    patch.setattr(arena_codec, "ROWS", count)
    with patch.context():
        encoded = [part.SerializeToString() for part in arena_codec.encode_request(message)]
    patch.undo()
    parts: list[Any] = list(map(arena_codec.parse_request, encoded))
    assert all(isinstance(part, messages.Store) for part in parts)
    assert [key for part in parts for key in part.keys.packed] == message.keys.packed
    assert [value for part in parts for value in part.values.packed] == message.values.packed
    assert [document for part in parts for document in part.documents] == message.documents
    for part in parts:
        assert len(part.keys) == len(part.exists) <= count
        used = sum(map(len, [*part.keys.packed, *part.values.packed, *part.documents]))
        assert used <= size or len(part.keys) == 1


def test_slices_may_overlap_and_share_bytes():
    """Seed, "Load": start and end offsets inside of the arena."""
    overlapping = [Slice(begin=0, end=2), Slice(begin=1, end=3), Slice(begin=3, end=3)]
    load = TransactionRequest.Load(arena=b"abc", packed_keys=overlapping)
    message = arena_codec.decode_request(TransactionRequest(load=load))
    assert isinstance(message, messages.Load)
    assert message.keys.packed == [b"ab", b"bc", b""]


BOUND = st.one_of(
    st.integers(0, 3), st.integers(0, 2**32 - 1), st.sampled_from([127, 128, 16383, 16384])
)
SLICES = st.lists(st.tuples(BOUND, BOUND), max_size=20)


@given(SLICES, SLICES, st.booleans())
def test_slices_are_those_of_the_wire(keys, documents, unknown):
    """As the library of Protocol Buffers reads and writes them, also unknown fields."""
    fields = {"packed_keys": keys, "docs_json": documents}
    store = TransactionRequest.Store(arena=b"abc", binding=7)
    for name, pairs in fields.items():
        getattr(store, name).extend(Slice(begin=begin, end=end) for begin, end in pairs)
    alone = TransactionRequest.Store()
    for name, pairs in fields.items():
        number = store.DESCRIPTOR.fields_by_name[name].number
        bounds = np.array(pairs, np.int64).reshape(-1, 2)
        alone.MergeFromString(slices.encode(number, bounds[:, 0], bounds[:, 1]))
    assert (alone.packed_keys, alone.docs_json) == (store.packed_keys, store.docs_json)
    if unknown and keys:
        store.packed_keys[0].MergeFromString(b"\x1a\x02\x08\x01")
    names = ("packed_keys", "packed_values", "docs_json")
    read = [
        list(zip(begins.tolist(), ends.tolist(), strict=True))
        for begins, ends in slices.decode(store, *names)
    ]
    assert read == [keys, [], documents]


@pytest.mark.parametrize(("begin", "end"), [(0, 4), (4, 4), (2, 1), (2**32 - 1, 0)])
def test_a_slice_outside_of_its_arena_is_a_violation(begin, end):
    bad = [Slice(begin=0, end=1), Slice(begin=begin, end=end)]
    load = {"arena": b"abc", "packed_keys": bad}
    with pytest.raises(Violation, match="slice 1: expected a part of an arena of 3") as caught:
        arena_codec.decode_request(TransactionRequest(load=load))
    assert (caught.value.side, caught.value.rule) == (Side.DRIVER, Rule.SLICE)
    loaded = {"arena": b"abc", "docs_json": bad}
    with pytest.raises(Violation) as caught:
        arena_codec.decode_response(TransactionResponse(loaded=loaded))
    assert (caught.value.side, caught.value.rule) == (Side.CONNECTOR, Rule.SLICE)
    for field in ("packed_keys", "packed_values", "docs_json"):
        with pytest.raises(Violation, match="Store"):
            arena_codec.decode_request(TransactionRequest(store={"arena": b"abc", field: bad}))


@pytest.mark.parametrize(
    "message",
    [TransactionRequest(), TransactionRequest(commit={}, prepare={})],
    ids=["none", "two"],
)
def test_a_message_has_one_variant(message):
    with pytest.raises(Violation, match="expected one field") as caught:
        arena_codec.parse_request(message.SerializeToString())
    assert (caught.value.side, caught.value.rule) == (Side.DRIVER, Rule.VARIANT)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_messages_or_violations(data):
    for parse, side in [
        (arena_codec.parse_request, Side.DRIVER),
        (arena_codec.parse_response, Side.CONNECTOR),
    ]:
        try:
            parse(data)
        except Violation as violation:
            assert violation.side is side  # noqa: PT017
