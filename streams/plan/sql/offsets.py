"""The clauses that say at which offsets reading a topic begins or resumes.

START FROM EARLIEST | LATEST | OFFSETS (partition => offset, ...) | TIMESTAMP '...'
RESUME FROM [TOPIC '...'] [EARLIEST | ...]
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from streams.errors import InvalidStatement
from streams.plan.sql.tokens import Cursor

USAGE = "EARLIEST | LATEST | OFFSETS (partition => offset, ...) | TIMESTAMP '...'"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Earliest:
    """At the first offset that the topic holds."""


@dataclass(frozen=True, slots=True)
class Latest:
    """At the end of the topic: only messages that come from now on."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """At these offsets, pairs of partition and offset; other partitions at their first one."""

    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AtTime:
    """At the first message of each partition whose time is `ms` or later."""

    ms: int


Place = Earliest | Latest | Offsets | AtTime

EARLIEST = Earliest()


@dataclass(frozen=True, slots=True)
class ResumeSource:
    """Have a source that is stalled read on elsewhere; without a topic, in its own."""

    name: str
    topic: str | None
    place: Place


def place(cursor: Cursor) -> Place:
    """Read the clause. Errors: InvalidStatement."""
    match cursor.choose(("EARLIEST", "LATEST", "OFFSETS", "TIMESTAMP")):
        case "EARLIEST":
            return EARLIEST
        case "LATEST":
            return Latest()
        case "OFFSETS":
            return _offsets(cursor)
        case _:
            return AtTime(_milliseconds(cursor.string("a time, as '2026-01-31 12:00:00'")))


def resume(cursor: Cursor, name: str) -> ResumeSource:
    """Read what follows RESUME. Errors: InvalidStatement."""
    cursor.expect("FROM")
    topic = cursor.string("a topic in quotes") if cursor.accept("TOPIC") else None
    is_given = topic is None or cursor.current is not None
    return ResumeSource(name, topic, place(cursor) if is_given else EARLIEST)


def _offsets(cursor: Cursor) -> Offsets:
    cursor.expect("(")
    pairs = [_pair(cursor)]
    while cursor.accept(","):
        pairs.append(_pair(cursor))
    cursor.expect(")")
    partitions = [partition for partition, _ in pairs]
    twice = {partition for partition in partitions if partitions.count(partition) > 1}
    if twice:
        raise InvalidStatement(f"partition {min(twice)} appears twice in OFFSETS")
    return Offsets(tuple(sorted(pairs)))


def _pair(cursor: Cursor) -> tuple[int, int]:
    partition = cursor.integer("a partition")
    cursor.expect("=>")
    return partition, cursor.integer("an offset")


def _milliseconds(text: str) -> int:
    """Milliseconds since the epoch; a time without an offset is UTC."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidStatement(
            f"'{text}' is not a time",
            "expected a date and time, as '2026-01-31 12:00:00' (UTC) or"
            " '2026-01-31 12:00:00+02:00'",
        ) from None
    moment = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    if moment < _EPOCH:
        raise InvalidStatement(f"'{text}' is before 1970", "no message has such a time")
    return (moment - _EPOCH) // timedelta(milliseconds=1)
