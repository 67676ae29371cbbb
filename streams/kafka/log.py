"""What storage asks of Kafka: logs that decide an order, and chunks found again by reference.

Two implementations of each: in memory (`streams.kafka.memory`, the strict one, used by tests
and by the in-process kit) and on a broker (`streams.kafka.broker`). Both pass
`tests/contract`.

A *log* is a topic with one partition. A record is durable when `append` returns; when it
raises `Indeterminate` the record may or may not be there, and may still surface later. The
order of offsets is the only order there is.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.values import value


@value(frozen=True, slots=True)
class Entry:
    """One record of a log as read back. `at_ms` is the broker's append time, never ours.

    Without `is_append_time` it is the time that the record's writer chose, or none: a log's
    clock cannot be told by it, and whoever keeps one halts there (rule 11).
    """

    topic: Topic
    offset: Offset
    at_ms: int
    value: bytes
    is_append_time: bool = True


KEY_ERRORS = "surrogateescape"
"""How a key that is no UTF-8 is text and bytes again: found in a topic, it can be forgotten."""

Limit = int | float | str


@dataclass(frozen=True, slots=True)
class Range:
    """No value of the column is below `low` or above `high`; NULL and NaN may be there too."""

    low: Limit
    high: Limit


@value(frozen=True, slots=True)
class ChunkRef:
    """Where a chunk lies and what must be found there.

    `key` is the record's key (a fresh UUID, rule 6), `checksum` the CRC-32 of its value (the
    IEEE polynomial, as in zlib, gzip and `java.util.zip.CRC32`: at hand in every language); a
    reader checks both. `rows` counts updates, errors included; `size` is in bytes. `ranges`, if
    they are known, bound the values of each column, so that a reader may leave the chunk where
    it is; they are no part of its identity.
    """

    partition: int
    offset: Offset
    key: str
    checksum: int
    rows: int
    size: int
    ranges: tuple[Range | None, ...] = field(default=(), compare=False)


class Truncated(Determinate):
    """A log does not hold the position that a reader needs (rule 12).

    With `is_lost` it does not hold any more what was folded of it: nothing heals that.
    """

    is_lost = False

    def __init__(self, topic: Topic, position: int, reason: str) -> None:
        super().__init__(topic, position, reason)
        self.topic, self.position, self.reason = topic, position, reason

    def __str__(self) -> str:
        return f"log {self.topic} cannot be read from offset {self.position}: {self.reason}"


class Unanswered(Determinate):
    """No broker answers, or none that may: nothing was done, and asking again may help."""


class WronglyTimed(Corrupt):
    """A record has its writer's time, not the broker's: it halts its group (rule 11)."""

    def __init__(self, topic: Topic, offset: int) -> None:
        super().__init__(topic, offset)
        self.topic, self.offset = topic, offset

    def __str__(self) -> str:
        return (
            f"log {self.topic} at offset {self.offset}: expected the broker's append time, "
            "found the writer's: set message.timestamp.type of the topic to LogAppendTime, then"
            " see 'slackwater shard verify' for what to do about this record"
        )


class Tail(Protocol):
    """One reader that follows many logs at once, each from its own offset."""

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow more logs, each from its start on.

        Errors: InvalidUsage when one is already followed, Determinate when one does not exist;
        then none of them is.
        """

    def remove(self, topic: Topic) -> None:
        """Stop following `topic`; what was read of it but not yet polled is discarded."""

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        """Whatever has come, in offset order for each topic; empty after `wait_ms` of nothing.

        Errors: `Truncated` when the log no longer holds the position, or the topic is gone
        (rule 12); that topic is followed no more, the others are.
        """

    def silent_ms(self) -> int:
        """For how long no broker has answered, as the last poll saw it; 0 when one does."""

    def close(self) -> None:
        """Release the connection."""


Stored = Offset | Determinate | Indeterminate
"""What became of one record: where it is, or why it is not or may not be there."""


def all_stored(results: Sequence[Stored]) -> tuple[Offset, ...]:
    """The offsets of records that were stored together.

    Errors: Determinate when none was stored, else Indeterminate, of the first failure.
    """
    offsets = tuple(each for each in results if isinstance(each, int))
    failed = [each for each in results if not isinstance(each, int)]
    if not failed:
        return offsets
    if not offsets and all(isinstance(each, Determinate) for each in failed):
        raise failed[0]
    text = str(failed[0])
    said = f"{len(offsets)} of {len(results)} stored: {text}" if offsets else text
    raise Indeterminate(said) from failed[0]


class Logs(Protocol):
    """Many single-partition topics behind one connection."""

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        """Append each value to its topic, in the order given for each topic; durable on return.

        Errors: Determinate (nothing was written), Indeterminate (some may have been).
        """

    def append_each(
        self, records: Sequence[tuple[Topic, bytes]], stragglers_ms: int, /
    ) -> tuple[Stored, ...]:
        """As `append`, but what fails of one log is said of its records alone.

        What is not stored `stragglers_ms` after the first that is counts as Indeterminate.
        """

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """The first offset still held and the offset the next record will get."""

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """The bounds of many logs, by a few questions however many they are."""

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """Whether a log holds no record at `start` or beyond, though offsets are given away.

        What lies there are the marks of transactions.
        """

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """A reader that follows the given logs."""

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Delete the records below `before` for good (DeleteRecords)."""


class ChunkWrite(NamedTuple):
    """Bodies, given with their row counts, and where they go."""

    topic: Topic
    bodies: Sequence[tuple[bytes, int]]
    headers: Mapping[str, bytes]


def described(headers: Mapping[str, bytes], body: bytes, rows: int) -> dict[str, bytes]:
    """The headers of a chunk: those of its collection, and what is said of this body."""
    return {**headers, "rows": b"%d" % rows, "crc32": b"%08x" % zlib.crc32(body)}


class ChunkRecord(NamedTuple):
    """A chunk's record as it lies there. A header that is there twice has all its values."""

    body: bytes
    headers: Sequence[tuple[str, bytes | None]]


class Chunks(Protocol):
    """Chunk bodies in data topics (`cleanup.policy=compact`)."""

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Write bodies, given with their row counts, each under a fresh key; durable on return.

        Errors: Determinate, Indeterminate. A body without a delivered offset is written again
        under a new key (rule 6), so that an error leaves at worst orphans.
        """

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Write the bodies of many topics in one flush; the references of each, in order.

        Errors: as `write`; then any of them may have been stored, as orphans.
        """

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """The bodies, in the order asked for.

        Errors: Corrupt when a record is missing, or is not the one that was written: key and
        checksum are checked, and a higher offset in its place means missing.
        """

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """A few chunks of each of many topics at once. Errors: as `fetch`."""

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """The records as whoever reads committed data sees them, in the order asked for.

        Errors: as `fetch`; a record is missing also when a transaction holds it that is open or
        was aborted, or when one is open that began before it in its partition.
        """

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Write a tombstone for each chunk: the broker reclaims it in its own time.

        A reference to a place where no record can be is passed over.
        """
