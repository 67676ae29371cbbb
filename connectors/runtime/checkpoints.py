"""Flow checkpoints: the frontier of each binding, as the endpoint stores it.

A source is named by the collection and the place that it is kept in, `u3;revenue`; what it was
read through is a time: all changes before it are written. So what is in the tables can be read
with one SELECT, and a place that another collection was written to is seen. Where parts of the
keys of a range are written up to different times, each is a source of its own, named with its
range: `u3@00000000-7fffffff;revenue`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from connectors.runtime.ranges import KeyRange, Reach, joined, within
from schemas.consumer_pb2 import Checkpoint
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp

SEPARATOR, OF_RANGE = ";", "@"
NEXT, BIRTH, DETAILS, DEAD = "next", "birth", "details", "dead"
Binding = tuple[CollectionId, str]
"""A collection, and the place that it is kept in."""
Reaches = Mapping[Binding, Sequence[Reach]]
Dead = Mapping[str, Mapping[int, bool]]


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that was about to be written: where it leads, and its bindings' birth.

    `large` are the bindings, by number, that wait on disk: their rows have an order of its own.
    Of one that is written in steps, `written` rows of the bindings at the places `optional` are
    decided; the others have it whole.
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
    """The transaction that was on its way, if one was."""
    intents = Checkpoint.FromString(checkpoint).ack_intents
    if NEXT not in intents:
        return None
    details = json.loads(intents[DETAILS])
    return Intent(
        intents[NEXT],
        Timestamp(int(intents[BIRTH])),
        frozenset(details["large"]),
        details["written"],
        tuple(details["optional"]),
    )


def places_of(checkpoint: bytes) -> set[str]:
    """The places that a checkpoint says something is written to."""
    sources = Checkpoint.FromString(checkpoint).sources
    return {name.partition(SEPARATOR)[2] for name in sources}


def dead_of(checkpoint: bytes) -> Dead:
    """By place the hashes of keys that were refused, and whether the endpoint has a row."""
    text = Checkpoint.FromString(checkpoint).ack_intents.get(DEAD, b"{}")
    places: dict[str, dict[str, bool]] = json.loads(text)
    return {
        place: {int(key): exists for key, exists in keys.items()}
        for place, keys in places.items()
    }


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
    try:
        sources = Checkpoint.FromString(checkpoint).sources
    except DecodeError as error:
        raise InvalidUsage(
            f"checkpoint of the endpoint: expected a Flow checkpoint: {error}"
        ) from error
    written: dict[Binding, list[Reach]] = {}
    holders: dict[str, str] = {}
    for name, source in sources.items():
        source_key, _, place = name.partition(SEPARATOR)
        collection, _, part = source_key.partition(OF_RANGE)
        begin, end = (int(text, 16) for text in part.split("-")) if part else key_range
        holders[place] = collection
        reach = Reach(begin, end, Timestamp(source.read_through))
        written.setdefault((CollectionId(collection), place), []).append(reach)
    for collection, place in bindings:
        check_holder(place, collection, holders.get(place, collection))
    return {binding: complete(written.get(binding, []), key_range) for binding in bindings}


def check_holder(place: str, collection: str, holder: str) -> None:
    """A place holds one collection. Errors: InvalidUsage."""
    if holder != collection:
        raise InvalidUsage(
            f"{place} holds collection {holder}, expected {collection}: drop the table and"
            " its task's checkpoint, or name another place"
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
