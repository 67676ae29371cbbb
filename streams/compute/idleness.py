"""Which partitions of a source by event time hold its watermark back. Pure.

A partition is idle when it gave no event time for the declared time and its end has been read
(`event_time.candidate`). An Append moves upper no further than the watermark of each partition
that is active then. So where upper has passed a partition's own watermark the partition was
idle when that Append counted, and is for every replica that goes on from there: idleness needs
no record.
"""

from collections.abc import Sequence
from dataclasses import replace

from streams.compute import continuation
from streams.compute.binding import Offsets
from streams.compute.description import Start
from streams.compute.event_time import Partition, Progress
from streams.plan.metadata import Watermark

HELD_MS = 5_000
"""A partition that gave event times since is not said to hold the watermark back."""


def as_left(
    progress: Progress, bound: Offsets, start: Start, upper: int, declared: Watermark
) -> Progress:
    """Return the progress of a replica that begins at a binding: who was idle stays so.

    `upper` is the shard's.
    """
    going_on = continuation.going_on(bound, start)
    return {
        number: _idle(part, declared.idle_ms)
        if number in going_on and _is_passed(part, upper, declared.delay_ms)
        else part
        for number, part in progress.items()
    }


def holding(progress: Progress, upper: int, now_ms: int, declared: Watermark) -> Sequence[int]:
    """Return the partitions for which upper has waited for some time, in order."""
    passed = {
        n for n, part in progress.items() if _is_passed(part, upper + 1, declared.delay_ms)
    }
    if len(passed) == len(progress):
        return ()  # no partition has given more
    return sorted(
        number
        for number in passed
        if now_ms - progress[number].time_ms >= HELD_MS
        and not _is_idle(progress[number], now_ms, declared.idle_ms)
    )


def _is_passed(partition: Partition, upper: int, delay_ms: int) -> bool:
    """Whether a partition's own watermark is below upper."""
    return partition.greatest is None or partition.greatest - delay_ms < upper


def _is_idle(partition: Partition, now_ms: int, idle_ms: int) -> bool:
    return not partition.is_behind and now_ms - partition.time_ms >= idle_ms


def _idle(partition: Partition, idle_ms: int) -> Partition:
    since_ms = partition.time_ms - idle_ms
    return replace(partition, read_ms=since_ms, time_ms=since_ms)
