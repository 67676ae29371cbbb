"""Messages as the bytes of November 2021: arenas, slices, one variant a message.

The checkpoint that a transaction reads through travels in Prepare, which is our Flush, and the
connector's own in Prepared. What a side sends is cut into messages of bounded size; what it
receives may be of any size.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Request, Response, Tuples
from connectors.protocol.violations import Rule, Side, broken
from schemas import materialize_pb2 as wire
from schemas.flow_pb2 import Slice
from schemas.materialize_pb2 import TransactionRequest, TransactionResponse

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
            keys = slices(Side.DRIVER, "Load", message.load.arena, message.load.packed_keys)
            return messages.Load(message.load.binding, Tuples(keys))
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
            return messages.Opened(message.opened.flow_checkpoint)
        case "loaded":
            loaded = message.loaded
            documents = slices(Side.CONNECTOR, "Loaded", loaded.arena, loaded.docs_json)
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


def variant(side: Side, message: Message) -> str:
    """The one field that is set. Errors: Violation if none is, or several."""
    names = [field.name for field, _ in message.ListFields()]
    if len(names) != 1:
        what = message.DESCRIPTOR.name
        broken(side, Rule.VARIANT, f"{what}: expected one field, actual {names or 'none'}")
    return names[0]


def slices(side: Side, what: str, arena: bytes, ranges: Iterable[Slice]) -> list[bytes]:
    """The bytes of each slice. Errors: Violation if one is not in the arena."""
    pairs = [(each.begin, each.end) for each in ranges]
    size = len(arena)
    for index, (begin, end) in enumerate(pairs):
        if not begin <= end <= size:
            detail = f"{what}: slice {index}: expected a part of an arena of {size} bytes,"
            broken(side, Rule.SLICE, f"{detail} actual {begin} to {end}")
    return [arena[begin:end] for begin, end in pairs]


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
    """What a Spec offers, or an Open uses."""
    return Extensions(acknowledge=message.acknowledge, delete=message.delete)


def _store(message: TransactionRequest.Store) -> messages.Store:
    side, arena = Side.DRIVER, message.arena
    return messages.Store(
        binding=message.binding,
        keys=Tuples(slices(side, "Store: keys", arena, message.packed_keys)),
        values=Tuples(slices(side, "Store: values", arena, message.packed_values)),
        documents=slices(side, "Store: documents", arena, message.docs_json),
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
                arena, (keys,) = arena_of([message.keys.packed[part]])
                load = TransactionRequest.Load(
                    binding=message.binding, arena=arena, packed_keys=keys
                )
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
            yield TransactionResponse(opened={"flow_checkpoint": message.checkpoint})
        case messages.Loaded():
            for part in pieces([message.documents]):
                arena, (documents,) = arena_of([message.documents[part]])
                loaded = TransactionResponse.Loaded(
                    binding=message.binding, arena=arena, docs_json=documents
                )
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


def _encode_open(message: messages.Open) -> TransactionRequest.Open:
    encoded = TransactionRequest.Open(
        materialization=message.materialization,
        version=message.version,
        key_begin=message.key_begin,
        key_end=message.key_end,
        driver_checkpoint_json=message.driver_checkpoint,
    )
    used = message.extensions
    if used != Extensions():
        known = wire.Extensions(acknowledge=used.acknowledge, delete=used.delete)
        encoded.extensions.CopyFrom(known)
    return encoded


def _encode_store(message: messages.Store) -> Iterator[TransactionRequest]:
    columns = [message.keys.packed, message.values.packed, message.documents]
    for part in pieces(columns):
        arena, (keys, values, documents) = arena_of([column[part] for column in columns])
        store = TransactionRequest.Store(
            binding=message.binding,
            arena=arena,
            packed_keys=keys,
            packed_values=values,
            docs_json=documents,
            exists=message.exists[part],
            deletes=message.deletes[part],
        )
        yield TransactionRequest(store=store)


def pieces(columns: Sequence[Sequence[bytes]]) -> Iterator["slice[int, int, int | None]"]:
    """Stretches of rows, each of which fits into a message; a row is never cut."""
    ends = np.sum([ends_of(column) for column in columns], axis=0)
    begin, size = 0, 0
    while begin < len(ends):
        fit = int(np.searchsorted(ends, size + ARENA_BYTES, side="right"))
        end = min(max(fit, begin + 1), begin + ROWS)
        yield slice(begin, end)
        begin, size = end, int(ends[end - 1])


def arena_of(columns: Sequence[Sequence[bytes]]) -> tuple[bytes, list[list[Slice]]]:
    """An arena of columns, one after another, and the slices of each."""
    arena, ranges = b"", []
    for column in columns:
        ends = (ends_of(column) + len(arena)).tolist()
        begins = [len(arena), *ends[:-1]]
        pairs = zip(begins, ends, strict=True)
        ranges.append([Slice(begin=begin, end=end) for begin, end in pairs])
        arena += b"".join(column)
    return arena, ranges


def ends_of(column: Sequence[bytes]) -> NDArray[np.int64]:
    """Where each value ends if all are put one after another."""
    return np.cumsum(np.fromiter(map(len, column), np.int64, len(column)))
