"""Validates messages of a stream; a violation names the side and the broken rule."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from google.protobuf.message import DecodeError

from connectors.protocol.json_pointers import key_of, keys_of
from connectors.protocol.messages import Extensions, Flushed, Open, Opened, Store, Tuples
from connectors.protocol.specs import BindingProperties, check_materialization
from connectors.protocol.violations import (
    Rule,
    Side,
    broken,
    connector_holds,
    driver_holds,
)
from schemas.blobs import Blobs
from schemas.consumer_pb2 import Checkpoint
from schemas.flow_hash import FIRST, LAST, hash_slices
from schemas.flow_tuple import MalformedTuple


def check_open(message: Open, offered: Extensions) -> None:
    """Errors: Violation by the driver."""
    check_materialization(message.materialization)
    check_version("Open", message.version)
    begin, end = message.key_begin, message.key_end
    driver_holds(
        Rule.RANGE,
        begin <= end,
        f"Open: expected a range that begins before it ends, actual {begin:08x} to {end:08x}",
    )
    if message.driver_checkpoint:
        check_json(Side.DRIVER, "Open: driver checkpoint", message.driver_checkpoint)
    beyond = message.extensions.beyond(offered)
    driver_holds(
        Rule.EXTENSION,
        not beyond,
        f"Open: expected extensions that the connector offers, actual {', '.join(beyond)}",
    )


def check_version(what: str, version: str) -> None:
    """Errors: Violation by the driver if it is empty."""
    driver_holds(Rule.VERSION, version, f"{what}: expected a version, actual none")


def check_opened(message: Opened, key_range: tuple[int, int], extensions: Extensions) -> None:
    """Errors: Violation by the connector."""
    check_flow_checkpoint(message.checkpoint)
    for subrange in message.subranges:
        check_flow_checkpoint(subrange.checkpoint)
    if not message.subranges:
        return
    connector_holds(
        Rule.EXTENSION,
        extensions.subranges and not message.checkpoint,
        "Opened: expected one checkpoint: Open did not announce subranges, or both are there",
    )
    begins = [subrange.key_begin for subrange in message.subranges]
    ends = [subrange.key_end for subrange in message.subranges]
    connector_holds(
        Rule.RANGE,
        begins == [key_range[0], *(end + 1 for end in ends[:-1])]
        and ends[-1] == key_range[1]
        and all(begin <= end for begin, end in zip(begins, ends, strict=True)),
        f"Opened: expected subranges of {key_range[0]:08x} to {key_range[1]:08x} in order and"
        f" without a gap, actual {', '.join(map(shown_range, begins, ends))}",
    )


def shown_range(begin: int, end: int) -> str:
    """A key range in messages."""
    return f"{begin:08x} to {end:08x}"


def check_flow_checkpoint(checkpoint: bytes) -> None:
    """Opened returns a checkpoint that a driver once sent."""
    try:
        Checkpoint.FromString(checkpoint)
    except DecodeError as error:
        broken(Side.CONNECTOR, Rule.CHECKPOINT, f"Opened: expected a checkpoint: {error}")


def check_driver_checkpoint(message: Flushed) -> None:
    """Errors: Violation by the connector unless it is JSON, and there if it is a patch."""
    connector_holds(
        Rule.CHECKPOINT,
        message.checkpoint or not message.patch,
        "Flushed: expected a checkpoint that is a patch, actual none",
    )
    if message.checkpoint:
        check_json(Side.CONNECTOR, "Flushed: checkpoint", message.checkpoint)


def check_json(side: Side, what: str, text: bytes) -> None:
    """Errors: Violation of the rule `checkpoint`."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        broken(side, Rule.CHECKPOINT, f"{what}: expected JSON: {error}")


def binding(
    side: Side, what: str, index: int, bindings: Sequence[BindingProperties]
) -> BindingProperties:
    """The binding of a message. Errors: Violation if there is none."""
    if not 0 <= index < len(bindings):
        detail = f"{what}: expected a binding below {len(bindings)}, actual {index}"
        broken(side, Rule.BINDING, detail)
    return bindings[index]


def check_tuples(what: str, tuples: Tuples, width: int) -> None:
    """Errors: Violation by the driver unless there are tuples, and of that width."""
    driver_holds(Rule.EMPTY, len(tuples), f"{what}: expected at least one tuple, actual none")
    try:
        tuples.columns(width)
    except MalformedTuple as error:
        broken(Side.DRIVER, Rule.TUPLE, f"{what}: {error}")


def check_range(what: str, packed: Blobs, key_begin: int, key_end: int) -> None:
    """Errors: Violation by the driver if a key's hash is not in a range, ends included."""
    if (key_begin, key_end) == (FIRST, LAST):
        return
    offsets = packed.offsets
    hashes = hash_slices(packed.arena, offsets[:-1], offsets[1:])
    inside = (hashes >= key_begin) & (hashes <= key_end)
    if not inside.all():
        index = int(np.argmin(inside))
        detail = (
            f"{what}: key {index}: expected a hash from {key_begin:08x} to {key_end:08x},"
            f" actual {int(hashes[index]):08x} of {some([packed[index]])}"
        )
        broken(Side.DRIVER, Rule.KEY_RANGE, detail)


def check_documents(side: Side, what: str, documents: Sequence[bytes]) -> None:
    """Errors: Violation if there is none, or one is empty."""
    if not documents:
        broken(side, Rule.EMPTY, f"{what}: expected at least one document, actual none")
    sizes = np.diff(Blobs.of(documents).offsets)
    if not sizes.all():
        index = int(np.argmin(sizes))
        broken(side, Rule.DOCUMENT, f"{what}: document {index} is empty")


def check_store(message: Store, bound: BindingProperties, extensions: Extensions) -> None:
    """Errors: Violation by the driver."""
    counts = {
        "keys": len(message.keys),
        "values": len(message.values),
        "documents": len(message.documents),
        "exists": len(message.exists),
    }
    if message.deletes:
        counts["deletes"] = len(message.deletes)
    driver_holds(
        Rule.LENGTHS,
        len(set(counts.values())) == 1,
        f"Store: expected as many of each, actual {counts}",
    )
    check_tuples("Store: keys", message.keys, len(bound.keys))
    check_tuples("Store: values", message.values, len(bound.values))
    check_documents(Side.DRIVER, "Store", message.documents)
    driver_holds(
        Rule.EXTENSION,
        extensions.delete or not any(message.deletes),
        "Store: expected no deletes, which Open did not announce",
    )


def check_returned(returned: int, requested: int) -> None:
    """Errors: Violation by the connector if it returns more than was asked for."""
    connector_holds(
        Rule.REQUESTED,
        returned <= requested,
        f"Loaded: expected at most {requested} documents, actual {returned}",
    )


def document_keys(documents: Sequence[bytes], bound: BindingProperties) -> Blobs:
    """The packed key of each document. Errors: Violation by the connector."""
    pointers, numbers = bound.key_pointers, bound.number_keys
    try:
        return keys_of(documents, pointers, numbers)
    except (ValueError, RecursionError, MalformedTuple):
        packed: list[bytes] = []  # one by one, to name the first that is wrong
    try:
        packed.extend(key_of(document, pointers, numbers) for document in documents)
    except (ValueError, RecursionError, MalformedTuple) as error:
        detail = f"Loaded: document {len(packed)}: expected a JSON object with a key: {error}"
        broken(Side.CONNECTOR, Rule.DOCUMENT, detail)
    return Blobs.of(packed)


def check_requested(
    packed: Sequence[bytes], requested: AbstractSet[bytes], seen: AbstractSet[bytes]
) -> set[bytes]:
    """Loaded keys were asked for, and each document is returned once."""
    batch = set(packed)
    if not batch.issubset(seen):
        detail = f"Loaded: not requested: {some(batch.difference(seen))}"
        broken(Side.CONNECTOR, Rule.REQUESTED, detail)
    check_once(Side.CONNECTOR, Rule.LOADED_ONCE, "Loaded", packed, batch.difference(requested))
    return batch


def check_once(
    side: Side, rule: Rule, what: str, packed: Sequence[bytes], before: AbstractSet[bytes]
) -> None:
    """Errors: Violation if a key is there twice, or was there before."""
    if not before.isdisjoint(packed):
        again = some(before & set(packed))
        broken(side, rule, f"{what}: expected each key once, actual again: {again}")
    if len(set(packed)) < len(packed):
        key, count = Counter(packed).most_common(1)[0]
        detail = f"{what}: expected each key once, actual {count} times: {some([key])}"
        broken(side, rule, detail)


def check_not_committing(packed: Sequence[bytes], committing: AbstractSet[bytes]) -> None:
    """Errors: Violation by the driver if it loads a key before it has seen its commit."""
    if not committing.isdisjoint(packed):
        keys = some(committing & set(packed))
        detail = f"Load: expected no key that is being committed, actual {keys}"
        broken(Side.DRIVER, Rule.COMMITTING, detail)


def some(packed: Iterable[bytes]) -> str:
    """The first of some keys, for a message."""
    keys = sorted(packed)
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"0x{keys[0].hex()}{more}" if keys else "none"
