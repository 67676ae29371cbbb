"""A log is checked from its start against its Rollups, and what is wrong is said exactly.

Checking changes nothing. It begins at the earliest place from which the log can be folded, goes
on behind each flaw as if an operator had it passed over, and so finds all of them at once.
"""

import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from streams.errors import Corrupt, InvalidUsage
from streams.ids import EventId, Offset
from streams.kafka.log import Chunks, Entry, Logs
from streams.storage.bootstrap import Past, past_of, read_all, state_of
from streams.storage.group import Group
from streams.storage.skipping import Skip, encode
from streams.storage.state import State

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Chunks that are fetched at a time: up to about 1 MiB each."""

MOST_OFFSETS = 1_000
"""Offsets without a record in a row that can be passed over: more are a loss, not marks."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong. With an `offset` it is about the record there, or that there is none.

    `checksum` is the CRC-32 of the record's value, None when there is no record.
    """

    reason: str
    offset: Offset | None = None
    checksum: int | None = None
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in a group's log: records of [low, end) were folded on from `start`."""

    group: Group
    low: Offset
    end: Offset
    start: Offset
    skipped: tuple[Skip, ...]
    flaws: tuple[Flaw, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaws

    def flaw_at(self, offset: int) -> Flaw:
        """What is wrong at an offset. Errors: InvalidUsage when nothing is."""
        for each in self.flaws:
            if each.offset == offset:
                return each
        known = sorted(each.offset for each in self.flaws if each.offset is not None)
        raise InvalidUsage(
            f"nothing is wrong with the log of {self.group.names.group} at offset {offset}:"
            f" expected one of {known}"
        )


def verify(logs: Logs, chunks: Chunks, group: Group, *, with_chunks: bool = False) -> Verdict:
    """Check a group's log, and if wished that each chunk which it names is there.

    Errors: Truncated, Determinate: the log cannot be read.
    """
    topic = group.names.log
    bounds = logs.bounds(topic)
    past = past_of(group, bounds, read_all(logs, {topic: bounds})[topic])
    flaws: list[Flaw] = []
    state = earliest(chunks, past, flaws)
    if state is None:
        lost = Flaw(f"the log begins at offset {past.low}, and no rollup covers what is before")
        return Verdict(group, past.low, past.end, past.low, (), (*flaws, lost))
    group.begin(state, past.skips)
    for entry in past.entries:
        flaws.extend(flaws_of(group, entry))
    flaws.extend(gap_of(group, past.end))
    flaws.extend(lost_rollups(chunks, group))
    flaws.extend(lost_chunks(chunks, group) if with_chunks else ())
    start, skipped = Offset(state.upto + 1), tuple(past.skips.values())
    return Verdict(group, past.low, past.end, start, skipped, tuple(flaws))


def earliest(chunks: Chunks, past: Past, flaws: list[Flaw]) -> State | None:
    """The earliest state from which the log can be folded; Rollups that cannot be read."""
    for start in (*reversed(past.earlier), *past.furthest):
        try:
            return state_of(chunks, past.group, start, {})
        except Corrupt as cause:
            flaws.append(Flaw(f"rollup up to {start.upto if start else -1}: {cause}"))
    return None


def flaws_of(group: Group, entry: Entry) -> Iterator[Flaw]:
    """What is wrong with a record, or with the offsets before it; the fold goes on then."""
    yield from gap_of(group, entry.offset)
    before, retained = group.state, tuple(group.retained)
    try:
        group.fold(entry)
    except Exception as cause:  # whatever it is that a fold fails on, it is this record
        log.debug("a record cannot be folded", exc_info=True)
        said = str(cause) if isinstance(cause, Corrupt) else repr(cause)
        yield Flaw(said, entry.offset, zlib.crc32(entry.value), entry.value)
        group.state = before
        group.retained.clear()
        group.retained.extend(retained)
        group.pass_over(entry.offset)


def gap_of(group: Group, end: Offset) -> Iterator[Flaw]:
    """What is wrong with offsets up to `end` at which there is no record."""
    first = group.state.upto + 1
    if first >= end:
        return
    try:
        group.pass_gap(Offset(end - 1))
    except Corrupt as cause:
        missing = range(first, end)
        named = missing if len(missing) <= MOST_OFFSETS else ()
        yield from (Flaw(f"no record: {cause}", Offset(each)) for each in named)
        if not named:
            yield Flaw(f"{len(missing)} records are lost: {cause}")
        group.pass_over(Offset(end - 1))


def lost_rollups(chunks: Chunks, group: Group) -> Iterator[Flaw]:
    """The Rollups that have to be kept, and cannot be read."""
    for each in group.state.rollups:
        try:
            chunks.fetch(group.names.data, each.chunks)
        except Corrupt as cause:
            yield Flaw(f"rollup up to {each.upto} cannot be read: {cause}")


def lost_chunks(chunks: Chunks, group: Group) -> Iterator[Flaw]:
    """The chunks of collections that cannot be fetched."""
    for collection in group.state.collections.values():
        linked = [chunk for batch in collection.batches for chunk in batch.chunks]
        for first in range(0, len(linked), AT_ONCE):
            some = linked[first : first + AT_ONCE]
            try:
                chunks.fetch(group.names.data, some)
            except Corrupt as cause:
                yield Flaw(f"collection {collection.id}: {cause}")


def skip(logs: Logs, verdict: Verdict, offset: int, id_: EventId, reason: str) -> Skip:
    """Have all readers pass over what is wrong at an offset; the word as it was written.

    Errors: InvalidUsage when nothing is wrong there; Determinate, Indeterminate.
    """
    flaw, group = verdict.flaw_at(offset), verdict.group
    seen = Offset(verdict.end - 1)
    word = Skip(id_, group.uuid, seen, Offset(offset), flaw.checksum, reason)
    logs.append([(group.names.log, encode(word))])
    return word
