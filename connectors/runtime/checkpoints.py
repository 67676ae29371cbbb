"""Flow checkpoints: how far each binding was read, as the endpoint keeps it.

A source is named by the collection and the place that it is kept in, `u3;revenue`; what it was
read through is a time: all changes before it are written. So what is in the tables can be read
with one SELECT, and a place that another collection was written to is seen.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from schemas.consumer_pb2 import Checkpoint
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp

SEPARATOR = ";"
NEXT, BIRTH, LARGE = "next", "birth", "large"


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


def encode(frontiers: Mapping[tuple[CollectionId, str], Timestamp]) -> bytes:
    """The checkpoint of bindings that were begun, by collection and place."""
    sources = {
        SEPARATOR.join(binding): Checkpoint.Source(read_through=frontier)
        for binding, frontier in frontiers.items()
    }
    return Checkpoint(sources=sources).SerializeToString(deterministic=True)


def decode(
    checkpoint: bytes, bindings: Sequence[tuple[CollectionId, str]]
) -> Mapping[tuple[CollectionId, str], Timestamp]:
    """The frontiers of those bindings that were begun.

    Errors: InvalidUsage if it is no checkpoint, or a place holds another collection.
    """
    try:
        sources = Checkpoint.FromString(checkpoint).sources
    except DecodeError as error:
        raise InvalidUsage(
            f"checkpoint of the endpoint: expected a Flow checkpoint: {error}"
        ) from error
    holders: dict[str, str] = {}
    for name in sources:
        held, _, place = name.partition(SEPARATOR)
        holders[place] = held
    for collection, place in bindings:
        holder = holders.get(place, collection)
        if holder != collection:
            raise InvalidUsage(
                f"{place} holds collection {holder}, expected {collection}: drop the table and"
                " its task's checkpoint, or name another place"
            )
    return {
        binding: Timestamp(sources[SEPARATOR.join(binding)].read_through)
        for binding in bindings
        if SEPARATOR.join(binding) in sources
    }
