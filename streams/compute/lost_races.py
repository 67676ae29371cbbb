"""What a replica keeps of what it read by event time when it loses an Append. Pure.

Another replica has appended [U0, U1) from the same binding. What both have read, both have
judged by U0: its rows below U1 are in the shard, those at or beyond U1 are pending still. So
the loser drops the former from its state and reads again only what the winner read beyond it:

    released             read of the loser         bound by the winner
    ────┼──────────────────────┼──────────────────────────┼───────────▶ offsets
        │  kept, if pending    │  read again for pending  │  fresh

What it has read beyond the winner's binding was judged by U0 and is to be judged by U1. The
state does not distinguish these rows from others: then it keeps nothing.
"""

from dataclasses import replace

from streams.compute.event_time import Partition, Progress


def kept(progress: Progress, there: Progress, upper: int) -> Progress | None:
    """Return the progress at the binding of `there`, which begins there; None: keep nothing.

    `upper` is the shard's.
    """
    is_ahead = any(
        part.read > (there[number].bound if number in there else 0)
        for number, part in progress.items()
    )
    if is_ahead:
        return None
    return {
        number: _kept(progress[number], part, upper) if number in progress else part
        for number, part in there.items()
    }


def _kept(own: Partition, there: Partition, upper: int) -> Partition:
    stretches, released = own.stretches, max(own.released, there.released)
    while stretches and (stretches[0].greatest < upper or stretches[0].end <= released):
        released, stretches = max(released, stretches[0].end), stretches[1:]
    knows = own if own.read == there.bound and own.time_ms <= there.time_ms else there
    return replace(
        there,
        read=max(own.read, released),
        released=released,
        stretches=stretches,
        read_ms=knows.read_ms,
        time_ms=knows.time_ms,
        is_behind=own.is_behind,
    )


def has_pending(progress: Progress) -> bool:
    """Whether any rows are pending in the state."""
    return any(part.stretches for part in progress.values())
