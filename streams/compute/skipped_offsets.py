"""What a source skipped when it resumed elsewhere: the rows in its dead letters about it. Pure.

Where a generation of the binding ended is in the shard, and where the next one begins is in the
description. So what lies between is the same for every replica, and the first Append of a
generation has it: of two writers one counts (rule 18), and no later one says it again. A
generation that appended nothing left nothing behind, so what was skipped on the way to it is
said by the next one that appends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streams.compute import continuation
from streams.compute.binding import Offsets
from streams.compute.description import TopicStart
from streams.compute.reclocking import read_positions
from streams.ids import Topic

PREFIX = "skipped: "
"""How the reason of such a row begins; that of a message never does."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets of a partition that are not read, the first of them, and the reason."""

    topic: Topic
    partition: int
    first: int
    reason: str


def skipped(starts: Sequence[TopicStart], bound: Offsets, since: int) -> tuple[Skipped, ...]:
    """Return what was skipped after the generation `since`; `bound` is the source's binding.

    `starts` are of all that the source read, in order.
    """
    return tuple(
        skip
        for before, after in pairwise(starts)
        if after.start.generation > since
        for skip in _between(before, after, bound)
    )


def _between(before: TopicStart, after: TopicStart, bound: Offsets) -> Iterable[Skipped]:
    if before.topic_id != after.topic_id:
        return _given_up(before, after, bound)
    if after.start.kept is not None:
        return _gaps(before, after, bound)
    ended = read_positions(bound, before.start)
    return [
        _range(before, partition, ended.get(partition, 0), offset)
        for partition, offset in after.start.offsets
        if ended.get(partition, 0) < offset
    ]


def _given_up(before: TopicStart, after: TopicStart, bound: Offsets) -> Iterable[Skipped]:
    """The rest of a topic that is not read any more: whether it had any is not known."""
    released = continuation.released(bound, before.start)
    elsewhere = f'the source resumed in topic "{after.topic}", id {after.topic_id}'
    for partition, ended in sorted(read_positions(bound, before.start).items()):
        first = min(released.get(partition, ended), ended)
        what = f"all offsets from {ended} on of the topic with id {before.topic_id}"
        if first < ended:
            what = f"rows of offsets {first} to {ended - 1} that were pending, and {what}"
        yield Skipped(before.topic, partition, first, f"{PREFIX}{what}, since {elsewhere}")


def _gaps(before: TopicStart, after: TopicStart, bound: Offsets) -> Iterable[Skipped]:
    """The offsets that a source with a watermark leaves out in the topic that it had read."""
    kept, ended = after.start.kept, read_positions(bound, before.start)
    assert kept is not None, "it went on in its topic"
    for partition in sorted({number for number, _, _ in kept.gaps}):
        read = ended.get(partition, 0)
        for first, end in continuation.added(before.start, after.start, partition):
            if first < read:
                yield _range(before, partition, first, min(end, read), pending=True)
            if read < end:
                yield _range(before, partition, max(first, read), end)


def _range(
    before: TopicStart, partition: int, first: int, end: int, *, pending: bool = False
) -> Skipped:
    what = (
        f"rows of offsets {first} to {end - 1} that were pending"
        if pending
        else (f"offsets {first} to {end - 1}")
    )
    reason = f"{PREFIX}{what}, by ALTER SOURCE ... RESUME FROM"
    return Skipped(before.topic, partition, first, reason)
