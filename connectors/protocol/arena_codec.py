"""Codec of messages in the wire format of November 2021: arenas and slices.

The checkpoint that a transaction reads through travels in Prepare, which is our Flush, and the
connector's own in Prepared. What a side sends is cut into messages of bounded size; what it
receives may be of any size.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from google.protobuf.message import DecodeError, Message

from connectors.protocol import messages
from connectors.protocol import slices as wire_slices
from connectors.protocol.messages import Extensions, Request, Response, Tuples
from connectors.protocol.violations import Rule, Side, broken
from schemas import materialize_pb2 as wire
from schemas.blobs import Blobs, Offsets
from schemas.materialize_pb2 import TransactionRequest, TransactionResponse

WithArena = TransactionRequest.Load | TransactionRequest.Store | TransactionResponse.Loaded

ARENA_BYTES = 256 * 1024
"""At most so much in an arena, unless one row has more."""
ROWS = 4096


def parse_request(data: bytes) -> Request:
    """A request of a transaction stream. Errors: Violation by the driver."""
    try:
        message = TransactionRequest.FromString(data)
    except DecodeError as error:
        broken(Side.DRIVER, Rule.WIRE, f"expected a TransactionRequest: {error}")
    return decode_request(message)


def parse_response(data: bytes) -> Response:
    """A response of a transaction stream. Errors: Violation by the connector."""
    try:
        message = TransactionResponse.FromString(data)
    except DecodeError as error:
        broken(Side.CONNECTOR, Rule.WIRE, f"expected a TransactionResponse: {error}")
    return decode_response(message)


def decode_request(message: TransactionRequest) -> Request:
    """Errors: Violation by the driver: variants, slices."""
    match variant(Side.DRIVER, message):
        case "open":
            return _open(message.open)
        case "load":
            load = message.load
            (pairs,) = wire_slices.decode(load, "packed_keys")
            keys = slices(Side.DRIVER, "Load", load.arena, *pairs)
            return messages.Load(load.binding, Tuples(keys))
        case "prepare":
            return messages.Flush(message.prepare.flow_checkpoint)
        case "store":
            return _store(message.store)
        case "commit":
            return messages.StartCommit()
        case _:
            return messages.Acknowledge()


def decode_response(message: TransactionResponse) -> Response:
    """Errors: Violation by the connector: variants, slices."""
    match variant(Side.CONNECTOR, message):
        case "opened":
            return _opened(message.opened)
        case "loaded":
            loaded = message.loaded
            (pairs,) = wire_slices.decode(loaded, "docs_json")
            documents = slices(Side.CONNECTOR, "Loaded", loaded.arena, *pairs)
            return messages.Loaded(loaded.binding, documents)
        case "prepared":
            prepared = message.prepared
            return messages.Flushed(
                prepared.driver_checkpoint_json, prepared.rfc7396_merge_patch
            )
        case "committed":
            return messages.StartedCommit()
        case _:
            return messages.Acknowledged()


def _opened(message: TransactionResponse.Opened) -> messages.Opened:
    subranges = tuple(
        messages.Subrange(subrange.key_begin, subrange.key_end, subrange.flow_checkpoint)
        for subrange in message.subranges
    )
    return messages.Opened(message.flow_checkpoint, subranges)


def variant(side: Side, message: Message) -> str:
    """The one field that is set. Errors: Violation if none is, or several."""
    names = [field.name for field, _ in message.ListFields()]
    if len(names) != 1:
        what = message.DESCRIPTOR.name
        broken(side, Rule.VARIANT, f"{what}: expected one field, actual {names or 'none'}")
    return names[0]


def slices(side: Side, what: str, arena: bytes, begins: Offsets, ends: Offsets) -> Blobs:
    """The bytes of each slice. Errors: Violation if one is not in the arena."""
    inside = (begins <= ends) & (ends <= len(arena))
    if not inside.all():
        index = int(np.argmin(inside))
        detail = f"{what}: slice {index}: expected a part of an arena of {len(arena)} bytes,"
        broken(side, Rule.SLICE, f"{detail} actual {begins[index]} to {ends[index]}")
    return Blobs.cut(arena, begins, ends)


def _open(message: TransactionRequest.Open) -> messages.Open:
    return messages.Open(
        materialization=message.materialization,
        version=message.version,
        key_begin=message.key_begin,
        key_end=message.key_end,
        driver_checkpoint=message.driver_checkpoint_json,
        extensions=extensions(message.extensions),
    )


def extensions(message: wire.Extensions) -> Extensions:
    """The extensions that a Spec offers, or an Open uses."""
    return Extensions(
        acknowledge=message.acknowledge, delete=message.delete, subranges=message.subranges
    )


def encode_extensions(extensions: Extensions) -> wire.Extensions:
    """The extensions as protobuf."""
    return wire.Extensions(
        acknowledge=extensions.acknowledge,
        delete=extensions.delete,
        subranges=extensions.subranges,
    )


def _store(message: TransactionRequest.Store) -> messages.Store:
    names = ("packed_keys", "packed_values", "docs_json")
    keys, values, documents = (
        slices(Side.DRIVER, f"Store: {what}", message.arena, *pairs)
        for what, pairs in zip(
            ("keys", "values", "documents"), wire_slices.decode(message, *names), strict=True
        )
    )
    return messages.Store(
        binding=message.binding,
        keys=Tuples(keys),
        values=Tuples(values),
        documents=documents,
        exists=list(message.exists),
        deletes=list(message.deletes),
    )


def encode_request(message: Request) -> Iterator[TransactionRequest]:
    """The messages of the wire that say it, in order; Load and Store may be several."""
    match message:
        case messages.Open():
            yield TransactionRequest(open=_encode_open(message))
        case messages.Load():
            for part in pieces([message.keys.packed]):
                load = TransactionRequest.Load(binding=message.binding)
                put(load, packed_keys=message.keys.packed[part])
                yield TransactionRequest(load=load)
        case messages.Flush():
            yield TransactionRequest(prepare={"flow_checkpoint": message.checkpoint})
        case messages.Store():
            yield from _encode_store(message)
        case messages.StartCommit():
            yield TransactionRequest(commit={})
        case messages.Acknowledge():
            yield TransactionRequest(acknowledge={})


def encode_response(message: Response) -> Iterator[TransactionResponse]:
    """The messages of the wire that say it, in order; Loaded may be several."""
    match message:
        case messages.Opened():
            yield TransactionResponse(opened=_encode_opened(message))
        case messages.Loaded():
            documents = Blobs.of(message.documents)
            for part in pieces([documents]):
                loaded = TransactionResponse.Loaded(binding=message.binding)
                put(loaded, docs_json=documents[part])
                yield TransactionResponse(loaded=loaded)
        case messages.Flushed():
            prepared = TransactionResponse.Prepared(
                driver_checkpoint_json=message.checkpoint, rfc7396_merge_patch=message.patch
            )
            yield TransactionResponse(prepared=prepared)
        case messages.StartedCommit():
            yield TransactionResponse(committed={})
        case messages.Acknowledged():
            yield TransactionResponse(acknowledged={})


def _encode_opened(message: messages.Opened) -> TransactionResponse.Opened:
    opened = TransactionResponse.Opened(flow_checkpoint=message.checkpoint)
    for subrange in message.subranges:
        opened.subranges.add(
            key_begin=subrange.key_begin,
            key_end=subrange.key_end,
            flow_checkpoint=subrange.checkpoint,
        )
    return opened


def _encode_open(message: messages.Open) -> TransactionRequest.Open:
    encoded = TransactionRequest.Open(
        materialization=message.materialization,
        version=message.version,
        key_begin=message.key_begin,
        key_end=message.key_end,
        driver_checkpoint_json=message.driver_checkpoint,
    )
    if message.extensions != Extensions():
        encoded.extensions.CopyFrom(encode_extensions(message.extensions))
    return encoded


def _encode_store(message: messages.Store) -> Iterator[TransactionRequest]:
    keys, values = message.keys.packed, message.values.packed
    documents = Blobs.of(message.documents)
    for part in pieces([keys, values, documents]):
        store = TransactionRequest.Store(
            binding=message.binding,
            exists=message.exists[part],
            deletes=message.deletes[part],
        )
        put(
            store, packed_keys=keys[part], packed_values=values[part], docs_json=documents[part]
        )
        yield TransactionRequest(store=store)


def pieces(columns: Sequence[Blobs]) -> Iterator["slice[int, int, int | None]"]:
    """Stretches of rows, each of which fits into a message; a row is never cut."""
    ends = np.sum([column.offsets[1:] for column in columns], axis=0)
    begin, size = 0, 0
    while begin < len(ends):
        fit = int(np.searchsorted(ends, size + ARENA_BYTES, side="right"))
        end = min(max(fit, begin + 1), begin + ROWS)
        yield slice(begin, end)
        begin, size = end, int(ends[end - 1])


def put(message: WithArena, **columns: Blobs) -> None:
    """Fill a message: an arena of columns, one after another, and the slices of each."""
    fields, size = message.DESCRIPTOR.fields_by_name, 0
    for name, column in columns.items():
        offsets = column.offsets + size
        part = wire_slices.encode(fields[name].number, offsets[:-1], offsets[1:])
        message.MergeFromString(part)
        size = int(offsets[-1])
    message.arena = b"".join(column.arena for column in columns.values())
