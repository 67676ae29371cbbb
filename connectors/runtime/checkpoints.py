"""Flow checkpoints: the frontier of each binding, as the endpoint stores it.

A source is named after the collection and the table or other place that holds it, `u3;revenue`.
Its `read_through` is a time: all changes before it are written. So one SELECT shows how far the
tables are, and a place that holds another collection is detected. If parts of the keys of a
range are written up to different times, each part is its own source, named with its range:
`u3@00000000-7fffffff;revenue`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from google.protobuf.message import DecodeError

from connectors.runtime.ranges import EVERY_KEY, KeyRange, Reach, joined, within
from schemas.consumer_pb2 import Checkpoint
from schemas.members import Members
from streams.errors import Corrupt, InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp

SEPARATOR, OF_RANGE = ";", "@"
CHECKPOINT = "checkpoint of the endpoint"
NEXT, BIRTH, DETAILS, DEAD = "next", "birth", "details", "dead"
Binding = tuple[CollectionId, str]
"""A collection, and the place that it is kept in."""
Reaches = Mapping[Binding, Sequence[Reach]]
Dead = Mapping[str, Mapping[int, bool]]


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction in progress: the checkpoint after it, and the first time of its bindings.

    `large` are the numbers of the bindings that are spilled to disk: their rows are in the
    order of the spill. In a transaction that is written in steps, `written` rows of the
    bindings at the places `optional` are decided; the other bindings have all of it.
    """

    checkpoint: bytes
    birth: Timestamp
    large: frozenset[int] = frozenset()
    written: int | None = None
    optional: tuple[str, ...] = ()


def with_intent(checkpoint: bytes, intent: Intent) -> bytes:
    """The log entry of a transaction in progress."""
    message = Checkpoint.FromString(checkpoint)
    message.ack_intents[NEXT] = intent.checkpoint
    message.ack_intents[BIRTH] = str(intent.birth).encode()
    details = {
        "large": sorted(intent.large),
        "written": intent.written,
        "optional": intent.optional,
    }
    message.ack_intents[DETAILS] = json.dumps(details).encode()
    return message.SerializeToString(deterministic=True)


def intent_of(checkpoint: bytes) -> Intent | None:
    """The transaction in progress, None if there is none. Errors: InvalidUsage."""
    intents = parsed(checkpoint).ack_intents
    if NEXT not in intents:
        return None
    with checked("transaction on its way"):
        details = Members.of(CHECKPOINT, intents[DETAILS].decode())
        parsed(intents[NEXT])
        return Intent(
            intents[NEXT],
            Timestamp(int(intents[BIRTH])),
            frozenset(details.list_of_counts("large")),
            details.maybe_count("written"),
            details.list_of_texts("optional"),
        )


def places_of(checkpoint: bytes) -> set[str]:
    """The places that a checkpoint says something is written to."""
    sources = parsed(checkpoint).sources
    return {name.partition(SEPARATOR)[2] for name in sources}


def dead_of(checkpoint: bytes) -> Dead:
    """By place the hashes of keys that were refused, and whether the endpoint has a row.

    Errors: InvalidUsage.
    """
    text = parsed(checkpoint).ack_intents.get(DEAD, b"{}")
    with checked("keys left out"):
        places = Members.of(CHECKPOINT, text.decode())
        return {
            place: {hash_of(key): exists for key, exists in places.flags(place).items()}
            for place in places.values
        }


def hash_of(text: str) -> int:
    """The hash of a key. Errors: ValueError."""
    value = int(text)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"expected a hash of 64 bits, actual {value}")
    return value


def parsed(checkpoint: bytes) -> Checkpoint:
    """The message. Errors: InvalidUsage if it is none."""
    try:
        return Checkpoint.FromString(checkpoint)
    except DecodeError as error:
        raise InvalidUsage(f"{CHECKPOINT}: expected a Flow checkpoint: {error}") from error


@contextmanager
def checked(what: str) -> Iterator[None]:
    """Turn errors in a part of a checkpoint into InvalidUsage that names the part."""
    try:
        yield
    except (ValueError, Corrupt) as error:
        raise InvalidUsage(f"{CHECKPOINT}: {what}: {error}") from error


def encode(written: Reaches, key_range: KeyRange, dead: Dead) -> bytes:
    """The checkpoint of a range: how far its keys are written in each binding."""
    sources = {
        name: Checkpoint.Source(read_through=frontier)
        for binding, reaches in written.items()
        for name, frontier in named(binding, within(reaches, key_range))
    }
    message = Checkpoint(sources=sources)
    if any(dead.values()):
        message.ack_intents[DEAD] = json.dumps(dead, sort_keys=True).encode()
    return message.SerializeToString(deterministic=True)


def named(binding: Binding, reaches: Sequence[Reach]) -> Iterator[tuple[str, Timestamp]]:
    """The sources of a binding; none before its first commit."""
    collection, place = binding
    for reach in reaches:
        if reach.frontier is None:
            continue
        part = (
            f"{OF_RANGE}{reach.key_begin:08x}-{reach.key_end:08x}" if len(reaches) > 1 else ""
        )
        yield f"{collection}{part}{SEPARATOR}{place}", reach.frontier


def decode(checkpoint: bytes, bindings: Sequence[Binding], key_range: KeyRange) -> Reaches:
    """The reaches of a key range in each binding.

    Errors: InvalidUsage if it is no checkpoint, or a place holds another collection.
    """
    sources = parsed(checkpoint).sources
    written: dict[Binding, list[Reach]] = {}
    holders: dict[str, set[str]] = {}
    for name, source in sources.items():
        source_key, _, place = name.partition(SEPARATOR)
        collection, _, part = source_key.partition(OF_RANGE)
        begin, end = range_of(part) if part else key_range
        if source.read_through < MINIMUM_TIME:
            raise InvalidUsage(
                f"{CHECKPOINT}: {name}: expected a time, actual {source.read_through}"
            )
        holders.setdefault(place, set()).add(collection)
        reach = Reach(begin, end, Timestamp(source.read_through))
        written.setdefault((CollectionId(collection), place), []).append(reach)
    for collection, place in bindings:
        check_holder(place, collection, holders.get(place, {collection}))
    for (collection, place), reaches in written.items():
        check_apart(f"{collection}{SEPARATOR}{place}", reaches)
    return {binding: complete(written.get(binding, []), key_range) for binding in bindings}


def range_of(text: str) -> KeyRange:
    """The key range in the name of a source. Errors: InvalidUsage."""
    with checked(f"range {text}"):
        begin, end = (int(bound, 16) for bound in text.split("-"))
        if not 0 <= begin <= end <= EVERY_KEY[1]:
            raise ValueError("expected both ends of a range of 32 bits")
        return begin, end


def check_holder(place: str, collection: str, holders: AbstractSet[str]) -> None:
    """A place holds one collection. Errors: InvalidUsage."""
    if holders != {collection}:
        raise InvalidUsage(
            f"{place} holds collection {', '.join(sorted(holders))}, expected {collection}:"
            " raise the binding's backfill, or name another place"
        )


def check_apart(name: str, reaches: Sequence[Reach]) -> None:
    """Each key is in one part at most. Errors: InvalidUsage."""
    ordered = sorted(reaches, key=lambda reach: reach.key_begin)
    for reach, following in pairwise(ordered):
        if following.key_begin <= reach.key_end:
            raise InvalidUsage(
                f"{CHECKPOINT}: {name}: expected each key in one range, actual"
                f" {following.key_begin:08x} in two"
            )


def complete(reaches: Sequence[Reach], key_range: KeyRange) -> Sequence[Reach]:
    """With the keys of the range that nothing is written of."""
    begin, end = key_range
    parts: list[Reach] = []
    for reach in within(reaches, key_range):
        if begin < reach.key_begin:
            parts.append(Reach(begin, reach.key_begin - 1, None))
        parts.append(reach)
        begin = reach.key_end + 1
    if begin <= end:
        parts.append(Reach(begin, end, None))
    return joined(parts)
