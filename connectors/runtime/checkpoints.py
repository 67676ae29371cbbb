"""Flow checkpoints: how far each binding was read, as the endpoint keeps it.

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
NEXT, BIRTH, LARGE = "next", "birth", "large"
Binding = tuple[CollectionId, str]
"""A collection, and the place that it is kept in."""
Reaches = Mapping[Binding, Sequence[Reach]]


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that was about to be written: where it leads, and its bindings' birth.

    `large` are the bindings, by number, that wait on disk: their rows have an order of its own.
    """

    checkpoint: bytes
    birth: Timestamp
    large: frozenset[int] = frozenset()


def with_intent(checkpoint: bytes, intent: Intent) -> bytes:
    """What a log holds while a transaction is on its way."""
    message = Checkpoint.FromString(checkpoint)
    message.ack_intents[NEXT] = intent.checkpoint
    message.ack_intents[BIRTH] = str(intent.birth).encode()
    message.ack_intents[LARGE] = json.dumps(sorted(intent.large)).encode()
    return message.SerializeToString(deterministic=True)


def intent_of(checkpoint: bytes) -> Intent | None:
    """The transaction that was on its way, if one was."""
    intents = Checkpoint.FromString(checkpoint).ack_intents
    if NEXT not in intents:
        return None
    large = frozenset(json.loads(intents[LARGE]))
    return Intent(intents[NEXT], Timestamp(int(intents[BIRTH])), large)


def encode(written: Reaches, key_range: KeyRange) -> bytes:
    """The checkpoint of a range: how far its keys are written in each binding."""
    sources = {
        name: Checkpoint.Source(read_through=frontier)
        for binding, reaches in written.items()
        for name, frontier in named(binding, within(reaches, key_range))
    }
    return Checkpoint(sources=sources).SerializeToString(deterministic=True)


def named(binding: Binding, reaches: Sequence[Reach]) -> Iterator[tuple[str, Timestamp]]:
    """The sources of a binding; what was not begun has none."""
    collection, place = binding
    for each in reaches:
        if each.frontier is None:
            continue
        part = f"{OF_RANGE}{each.key_begin:08x}-{each.key_end:08x}" if len(reaches) > 1 else ""
        yield f"{collection}{part}{SEPARATOR}{place}", each.frontier


def decode(checkpoint: bytes, bindings: Sequence[Binding], key_range: KeyRange) -> Reaches:
    """How far the keys of a range are written in each binding.

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
        held, _, place = name.partition(SEPARATOR)
        collection, _, part = held.partition(OF_RANGE)
        begin, end = (int(text, 16) for text in part.split("-")) if part else key_range
        holders[place] = collection
        reach = Reach(begin, end, Timestamp(source.read_through))
        written.setdefault((CollectionId(collection), place), []).append(reach)
    for collection, place in bindings:
        check_holder(place, collection, holders.get(place, collection))
    return {each: complete(written.get(each, []), key_range) for each in bindings}


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
    for each in within(reaches, key_range):
        if begin < each.key_begin:
            parts.append(Reach(begin, each.key_begin - 1, None))
        parts.append(each)
        begin = each.key_end + 1
    if begin <= end:
        parts.append(Reach(begin, end, None))
    return joined(parts)
