"""The ports to Kafka: logs, which decide an order, and chunks, which are read by reference.

Two implementations of each: in memory (`streams.kafka.memory.logs`, the strict one, used by
tests and by the in-process kit) and on a broker (`streams.kafka.client.broker`). Both pass
`tests/contract`.

A *log* is a topic with one partition. A record is durable when `append` returns; when it raises
`Indeterminate` the record may or may not be there, and may still surface later. The order of
offsets is the only order.
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
    """One record of a log as read. `at_ms` is the broker's append time, never our clock.

    Without `is_append_time` it is the time that the producer chose, or none: a log's clock
    cannot be derived from it, and a fold halts there (rule 11).
    """

    topic: Topic
    offset: Offset
    at_ms: int
    value: bytes
    is_append_time: bool = True


KEY_ERRORS = "surrogateescape"
"""Error handler for keys that are not UTF-8, so that they round-trip as text."""

Limit = int | float | str


@dataclass(frozen=True, slots=True)
class Range:
    """Every value of the column is between `low` and `high`, or is NULL or NaN."""

    low: Limit
    high: Limit


@value(frozen=True, slots=True)
class ChunkRef:
    """The place of a chunk, and what must be found there.

    `key` is the record's key (a fresh UUID, rule 6), `checksum` the CRC-32 of its value (the
    IEEE polynomial, as in zlib, gzip and `java.util.zip.CRC32`: available in every language); a
    reader checks both. `rows` counts updates, errors included; `size` is in bytes. `ranges`, if
    known, bound the values of each column, so that a reader may skip the chunk; they are not
    part of its identity.
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

    With `is_lost` it no longer holds records that were folded: this cannot heal.
    """

    is_lost = False

    def __init__(self, topic: Topic, position: int, reason: str) -> None:
        super().__init__(topic, position, reason)
        self.topic, self.position, self.reason = topic, position, reason

    def __str__(self) -> str:
        return f"log {self.topic} cannot be read from offset {self.position}: {self.reason}"


class Unanswered(Determinate):
    """No broker answers, or none with permission: nothing was done, and a retry may help."""


class WronglyTimed(Corrupt):
    """A record has its producer's timestamp, not the broker's: it halts its group (rule 11)."""

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
    """A reader that follows many logs at once, each from its own offset."""

    def add(self, starts: Mapping[Topic, Offset]) -> None:
        """Follow more logs, each from its given offset.

        Errors: InvalidUsage if one is already followed, Determinate if one does not exist; then
        none of them is added.
        """

    def remove(self, topic: Topic) -> None:
        """Stop following `topic`; its records that were read but not polled are discarded."""

    def poll(self, wait_ms: int) -> tuple[Entry, ...]:
        """Return new records, in offset order for each topic; none after `wait_ms` without any.

        Errors: `Truncated` if the log no longer holds the position, or the topic is gone (rule
        12); that topic is no longer followed, the others are.
        """

    def silent_ms(self) -> int:
        """Return for how long no broker has answered, as of the last poll; 0 if one does."""

    def close(self) -> None:
        """Release the connection."""


Stored = Offset | Determinate | Indeterminate
"""The result for one record: its offset, or the error."""


def all_stored(results: Sequence[Stored]) -> tuple[Offset, ...]:
    """Return the offsets of records that were stored together.

    Errors: Determinate if none was stored, else Indeterminate, with the first failure as cause.
    """
    offsets = tuple(result for result in results if isinstance(result, int))
    failed = [result for result in results if not isinstance(result, int)]
    if not failed:
        return offsets
    if not offsets and all(isinstance(error, Determinate) for error in failed):
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
        """Like `append`, but a failure of one log affects only its own records.

        Records that are not stored `stragglers_ms` after the first one are Indeterminate.
        """

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        """Return the first offset still held and the offset of the next record."""

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        """Return the bounds of many logs with a constant number of requests."""

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        """Whether a log holds no record at `start` or beyond, though its end offset is higher.

        Those offsets are transaction markers.
        """

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        """Return a reader that follows the given logs."""

    def truncate(self, topic: Topic, before: Offset) -> None:
        """Delete the records below `before` permanently (DeleteRecords)."""


class ChunkWrite(NamedTuple):
    """Bodies with their row counts, and the topic they go to."""

    topic: Topic
    bodies: Sequence[tuple[bytes, int]]
    headers: Mapping[str, bytes]


def described(headers: Mapping[str, bytes], body: bytes, rows: int) -> dict[str, bytes]:
    """Return the headers of a chunk: those of its collection, and those of this body."""
    return {**headers, "rows": b"%d" % rows, "crc32": b"%08x" % zlib.crc32(body)}


class ChunkRecord(NamedTuple):
    """A chunk's record as stored. A header that occurs twice has both values."""

    body: bytes
    headers: Sequence[tuple[str, bytes | None]]


class Chunks(Protocol):
    """Chunk bodies in data topics (`cleanup.policy=compact`)."""

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Write bodies with their row counts, each under a fresh key; durable on return.

        Errors: Determinate, Indeterminate. A body without a delivered offset is written again
        under a new key (rule 6), so an error leaves at worst orphans.
        """

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Write the bodies of many topics with one flush; return their references in order.

        Errors: as `write`; then any of them may have been stored, as orphans.
        """

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Return the bodies, in the order of the references.

        Errors: Corrupt if a record is missing, or is not the one that was written: key and
        checksum are checked, and a record at a higher offset means that it is missing.
        """

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """Fetch a few chunks of each of many topics at once. Errors: as `fetch`."""

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """Return the records visible with read_committed, in the order of the references.

        Errors: as `fetch`; a record is missing also if its transaction is open or was aborted,
        or if an earlier transaction of its partition is still open.
        """

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Write a tombstone for each chunk: the broker deletes it at the next compaction.

        A reference to a place where no record can be is ignored.
        """
