"""Verifies a log from its start against its Rollups and reports every flaw.

Verification is read-only. It begins at the earliest offset from which the log can be folded and
continues after each flaw as if an operator had skipped it, so it finds all flaws in one run.
"""

import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from streams.errors import Corrupt, InvalidUsage
from streams.ids import EventId, Offset
from streams.kafka.log import Chunks, Entry, Logs
from streams.storage.client.bootstrap import LogRange, past_of, read_all, state_of
from streams.storage.client.group import Group
from streams.storage.log.skipping import Skip, encode
from streams.storage.log.state import State

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Number of chunks fetched together: up to about 1 MiB each."""

MOST_OFFSETS = 1_000
"""Longest gap in the offsets that can be skipped: more are a loss, not transaction markers."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One flaw. With an `offset` it is about the record there, or its absence.

    `checksum` is the CRC-32 of the record's value, None if there is no record.
    """

    reason: str
    offset: Offset | None = None
    checksum: int | None = None
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The flaws of a group's log: records of [low, end) were folded on from `start`."""

    group: Group
    low: Offset
    end: Offset
    start: Offset
    skipped: tuple[Skip, ...]
    flaws: tuple[Flaw, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there are no flaws."""
        return not self.flaws

    def flaw_at(self, offset: int) -> Flaw:
        """Return the flaw at an offset. Errors: InvalidUsage if there is none."""
        for flaw in self.flaws:
            if flaw.offset == offset:
                return flaw
        offsets = sorted(flaw.offset for flaw in self.flaws if flaw.offset is not None)
        raise InvalidUsage(
            f"nothing is wrong with the log of {self.group.names.group} at offset {offset}:"
            f" expected one of {offsets}"
        )


def verify(logs: Logs, chunks: Chunks, group: Group, *, with_chunks: bool = False) -> Verdict:
    """Check a group's log and, optionally, that each chunk it names exists.

    Errors: Truncated, Determinate: the log cannot be read.
    """
    topic = group.names.log
    bounds = logs.bounds(topic)
    past = past_of(group, bounds, read_all(logs, {topic: bounds})[topic])
    flaws: list[Flaw] = []
    state = earliest(chunks, past, flaws)
    if state is None:
        lost = Flaw(
            f"the log begins at offset {past.low}, and no rollup covers the records before"
        )
        return Verdict(group, past.low, past.end, past.low, (), (*flaws, lost))
    group.begin(state, past.skips)
    for entry in past.entries:
        flaws.extend(flaws_of(group, entry))
    flaws.extend(gap_of(group, past.end))
    flaws.extend(lost_rollups(chunks, group))
    flaws.extend(lost_chunks(chunks, group) if with_chunks else ())
    start, skipped = Offset(state.upto + 1), tuple(past.skips.values())
    return Verdict(group, past.low, past.end, start, skipped, tuple(flaws))


def earliest(chunks: Chunks, past: LogRange, flaws: list[Flaw]) -> State | None:
    """Return the earliest state from which the log can be folded, and unreadable Rollups."""
    for start in (*reversed(past.earlier), *past.furthest):
        try:
            return state_of(chunks, past.group, start, {})
        except Corrupt as cause:
            flaws.append(Flaw(f"rollup up to {start.upto if start else -1}: {cause}"))
    return None


def flaws_of(group: Group, entry: Entry) -> Iterator[Flaw]:
    """Return the flaws of a record and of the offsets before it; the fold continues."""
    yield from gap_of(group, entry.offset)
    before, retained = group.state, tuple(group.retained)
    try:
        group.fold(entry)
    except Exception as cause:  # any failure of the fold is caused by this record
        log.debug("a record cannot be folded", exc_info=True)
        said = str(cause) if isinstance(cause, Corrupt) else repr(cause)
        yield Flaw(said, entry.offset, zlib.crc32(entry.value), entry.value)
        group.state = before
        group.retained.clear()
        group.retained.extend(retained)
        group.pass_over(entry.offset)


def gap_of(group: Group, end: Offset) -> Iterator[Flaw]:
    """Return the flaws of the offsets up to `end` at which there is no record."""
    first = group.state.upto + 1
    if first >= end:
        return
    try:
        group.pass_gap(Offset(end - 1))
    except Corrupt as cause:
        missing = range(first, end)
        named = missing if len(missing) <= MOST_OFFSETS else ()
        yield from (Flaw(f"no record: {cause}", Offset(offset)) for offset in named)
        if not named:
            yield Flaw(f"{len(missing)} records are lost: {cause}")
        group.pass_over(Offset(end - 1))


def lost_rollups(chunks: Chunks, group: Group) -> Iterator[Flaw]:
    """Return the Rollups that have to be kept and cannot be read."""
    for rollup in group.state.rollups:
        try:
            chunks.fetch(group.names.data, rollup.chunks)
        except Corrupt as cause:
            yield Flaw(f"rollup up to {rollup.upto} cannot be read: {cause}")


def lost_chunks(chunks: Chunks, group: Group) -> Iterator[Flaw]:
    """Return the chunks of collections that cannot be fetched."""
    for collection in group.state.collections.values():
        linked = [chunk for batch in collection.batches for chunk in batch.chunks]
        for first in range(0, len(linked), AT_ONCE):
            some = linked[first : first + AT_ONCE]
            try:
                chunks.fetch(group.names.data, some)
            except Corrupt as cause:
                yield Flaw(f"collection {collection.id}: {cause}")


def skip(logs: Logs, verdict: Verdict, offset: int, id_: EventId, reason: str) -> Skip:
    """Make all readers skip the flaw at an offset; return the skip record.

    Errors: InvalidUsage if there is no flaw; Determinate, Indeterminate.
    """
    flaw, group = verdict.flaw_at(offset), verdict.group
    seen = Offset(verdict.end - 1)
    word = Skip(id_, group.uuid, seen, Offset(offset), flaw.checksum, reason)
    logs.append([(group.names.log, encode(word))])
    return word
