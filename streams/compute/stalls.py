"""Detects that a topic cannot be read on from where a source stands, without loss. Pure.

No offset is ever skipped silently: if one can no longer be read, `reading_obstacle` says why,
until an operator lets the source resume elsewhere (`ALTER SOURCE ... RESUME FROM`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.compute.description import IngestionDescription
from streams.compute.reclocking import Broken, Ends, read_positions

SETTLED = 20
"""Number of equal answers in a row after which they are not considered outdated."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """Why nothing more can be read without skipping offsets."""

    reason: str


@dataclass(frozen=True, slots=True)
class StaleEnds:
    """The known ends of the topic are older than the binding: ask again."""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The broker's last answer about a topic: its id (None: it is gone) and its ends.

    `shrunk` has the lowest end of each partition whose end was seen to go back under this id,
    which no append-only log does, and `losses` counts how often one was; `repeats` is how often
    in a row this was the answer.
    `asked_ms` is the wall clock before the ends were asked for (None: just now): whatever was
    acknowledged by then is below them. `asked_elapsed_ms` is the same moment by the clock that
    nobody sets. `message_bytes` is the mean size of a message, 0 if it is unknown.
    """

    id: str | None
    ends: Mapping[int, Ends]
    shrunk: Mapping[int, int] = field(default_factory=dict)
    losses: int = field(default=0, compare=False)
    repeats: int = field(default=0, compare=False)
    asked_ms: int | None = field(default=None, compare=False)
    asked_elapsed_ms: int | None = field(default=None, compare=False)
    message_bytes: int = field(default=0, compare=False)


NOWHERE: Mapping[int, int] = {}


def reading_obstacle(
    source: IngestionDescription,
    bound: Mapping[int, int],
    observation: TopicReport,
    settled: Mapping[int, int] = NOWHERE,
) -> Stalled | StaleEnds | None:
    """Return why the topic cannot be read on from the shard's binding `bound`, or None.

    A partition without an offset is new, and must still hold its offset 0; only a source that
    has read nothing and was given no offsets starts at whatever is held. An end before the
    binding is first treated as an outdated answer: another replica may have read further.
    `settled` has the offsets before which dead letters were appended, which may be ahead of the
    binding: the topic may lose no end before them either, or other messages would be taken for
    those that are settled.
    """
    name = f'topic "{source.topic}"'
    if observation.id is None:
        return Stalled(f"{name} does not exist")
    if observation.id != source.topic_id:
        return Stalled(
            f"{name} was re-created: expected id {source.topic_id}, actual {observation.id}"
        )
    start = source.start
    at = read_positions(bound, start)
    reached = {p: max(at.get(p, 0), settled.get(p, 0)) for p in {*at, *settled}}
    lost = [
        f"partition {partition} (from offset {end} on)"
        for partition, end in sorted(observation.shrunk.items())
        if reached.get(partition, 0) > end
    ]
    if lost:
        return Stalled(f"{name} has lost records at the end of {', '.join(lost)}")
    for partition in sorted({*at, *observation.ends}) if at else sorted(settled):
        ends = observation.ends.get(partition)
        first = at.get(partition, 0 if at or ends is None else ends.low)
        reason = _gap(first, reached.get(partition, 0), ends)
        if reason is not None:
            stalled = Stalled(f"{name}, partition {partition}: {reason}")
            is_lasting = observation.repeats >= SETTLED or _overtaken(at, observation.ends)
            return stalled if is_lasting else StaleEnds()
    return None


UNDECODABLE = "cannot decode message: "
"""How the text about a message that cannot be decoded begins; its place follows."""

_BAD_MESSAGE = re.compile(
    UNDECODABLE + r"topic ([\w.-]+), partition (\d+), offset (\d+):", re.ASCII
)

_LOST_END = re.compile(r"partition (\d+) \(from offset (\d+) on\)", re.ASCII)

OVER_LIMIT = "too many messages cannot be decoded: "
"""How the text about an ERROR LIMIT begins (`streams.compute.error_limit`)."""


def bad_message(source: IngestionDescription, reason: str) -> tuple[int, int] | None:
    """Return the partition and offset of the message at which a source stops (ON ERROR FAIL).

    None if the reason is another one.
    """
    match = _BAD_MESSAGE.match(reason)
    if match is None or match[1] != source.topic:
        return None
    return int(match[2]), int(match[3])


def lost_ends(reason: str) -> dict[int, int]:
    """Return the partitions that lost records at their ends, and from which offset on."""
    return {int(partition): int(end) for partition, end in _LOST_END.findall(reason)}


def pending_are_gone(source: IngestionDescription, broken: Broken, bound: int) -> str:
    """Return why a source by event time cannot read pending rows again, and the way out.

    `bound` is where the binding stands in that partition.
    """
    number, ends = broken.partition, broken.ends
    place = min(max(bound, ends.low), ends.high)
    return (
        f'topic "{source.topic}", partition {number}: rows from offset {broken.expected} on are'
        f" pending until the watermark passes them, but the topic holds offsets {ends.low} to"
        f" {ends.high}; to go on without those that are gone: ALTER SOURCE ... RESUME FROM"
        f" OFFSETS ({number} => {place})"
    )


def is_of_topic(source: IngestionDescription, reason: str) -> bool:
    """Whether a replica's reason for a stall is of `reading_obstacle`, not of clock or disk."""
    return reason.startswith(f'topic "{source.topic}"')


def _overtaken(at: Mapping[int, int], ends: Mapping[int, Ends]) -> bool:
    """Whether unread records are gone: no later answer brings them back."""
    return bool(at) and any(at.get(p, 0) < end.low for p, end in ends.items())


def _gap(expected: int, reached: int, ends: Ends | None) -> str | None:
    """Why a partition cannot be read from an offset on, which holds those before `reached`."""
    if ends is None:
        return f"expected offset {expected}, actual no such partition"
    if expected < ends.low:
        return f"offsets {expected} to {ends.low - 1} were deleted before they were read"
    if ends.high < max(expected, reached):
        return (
            f"expected to reach offset {max(expected, reached)}, actual an end at {ends.high}"
        )
    return None
