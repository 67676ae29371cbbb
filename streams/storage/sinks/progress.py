"""The progress of a sink: the last record of each of its transactions.

A transaction is short: at most `LIMIT` records, or `LARGEST_BYTES`. An interval with more takes
several, and its progress then says how many of the interval's records are written and where the
interval ends. The records of an interval and their order follow from the collection's contents
alone (`streams.storage.sinks.sink`), so the next session decides the same interval again and
skips the written ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from schemas import codec
from streams.errors import Corrupt
from streams.ids import CollectionId, Timestamp

LIMIT = 50_000
"""Maximum of records of a transaction: each costs two round trips, whatever it has."""

LARGEST_BYTES = 32 << 20
"""Bytes of a transaction's columns; a single larger record is one transaction."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The changes before `frontier` are in the topic.

    With `until`, so are the first `written` records of the interval [frontier, until).
    """

    frontier: Timestamp
    until: Timestamp | None = None
    written: int = 0


def encode(sink: CollectionId, progress: Progress) -> bytes:
    """Encode a progress record."""
    fields = {
        "sink": sink,
        "frontier": progress.frontier,
        "until": progress.until,
        "written": progress.written,
    }
    return codec.encode("sink_progress", fields)


def decode(value: bytes) -> Progress:
    """Decode a progress record. Errors: Corrupt if it is none."""
    name, record = codec.decode(value)
    if name != "sink_progress":
        raise Corrupt(f"expected a sink's progress, actual a record of schema {name}")
    until = record["until"]
    return Progress(
        Timestamp(record["frontier"]),
        None if until is None else Timestamp(until),
        record["written"],
    )


def limit_of(records: int, nbytes: int) -> int:
    """Return how many records a transaction of an interval has, by the interval's bytes."""
    return max(1, min(LIMIT, records * LARGEST_BYTES // max(1, nbytes)))


def transactions(
    before: Progress, upper: Timestamp, records: int, limit: int
) -> Iterator[tuple[int, int, Progress]]:
    """Cut the interval [before.frontier, upper) of so many records into transactions.

    Each is (first record, end, the progress it ends with); written records are skipped. There
    is at least one, so that an interval without records moves the frontier too.
    """
    start = before.written
    while records - start > limit:
        yield start, start + limit, Progress(before.frontier, upper, start + limit)
        start += limit
    yield start, records, Progress(upper)
