"""Where a source by event time goes on that resumed in the topic that it had read. Pure.

What it has read and not released is pending: rows beyond upper, which are in no shard
(`streams.compute.event_time`). A generation of its binding that read the same topic therefore
takes over where the one before stood, with two exceptions that the statement decided:

    gaps      offsets that are never read: what the topic no longer holds, and what is skipped
    returns   partitions that are read again from an offset, because the topic lost its end or
              the statement says so; what is pending before the offset stays so. Where it lost
              an end before settled dead letters alone, they are what is read again

          released        read               bad             gap                end
    ─────────┼──────────────┼─────────────────┼───────────────────────┼──────────▶  offsets
             │   pending    │  not bound yet  │  left out by RESUME   │  read on

Where the generation before stood is in the shard. So a gap is the same, independent of which
replica appended since the statement was executed, and a generation that appended nothing is
passed over: the numbers are those of the newest generation since the first one of this topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streams.compute import binding
from streams.compute.binding import Fact, Offsets
from streams.compute.description import Kept, Start

Gaps = tuple[tuple[int, int], ...]
"""Ranges of offsets of a partition, in order and apart."""


def gaps(start: Start, partition: int) -> Gaps:
    """Return the offsets of a partition that are never read."""
    ranges = () if start.kept is None else start.kept.gaps
    return tuple((first, end) for number, first, end in ranges if number == partition)


def past(gaps: Gaps, offset: int) -> int:
    """Return the offset, or the end of the gap that it lies in."""
    return next((end for first, end in gaps if first <= offset < end), offset)


def standing(bound: Offsets, start: Start) -> dict[int, int]:
    """Return the offset at which each partition is read on; empty if nothing was ever read."""
    generation = _newest(bound, start)
    reads = binding.offsets(bound, generation) or dict(start.offsets)
    if start.kept is None or not reads:
        return reads
    for partition, offset in _returns(start, generation).items():
        reads[partition] = min(offset, reads.get(partition, 0))
    for partition, _, _ in start.kept.gaps:
        reads.setdefault(partition, 0)
    return {p: past(gaps(start, p), read) for p, read in reads.items()}


def released(bound: Offsets, start: Start) -> dict[int, int]:
    """Return the offset before which everything is in the shard, or in a gap."""
    generation = _newest(bound, start)
    offsets = binding.offsets(bound, generation) | binding.facts(
        bound, generation, Fact.RELEASED
    )
    reads = standing(bound, start)
    for partition, offset in _returns(start, generation).items():
        offsets[partition] = min(offset, offsets.get(partition, reads.get(partition, 0)))
    return {p: past(gaps(start, p), offset) for p, offset in offsets.items()}


def greatest(bound: Offsets, start: Start) -> dict[int, int]:
    """Return the greatest event time of each partition that was read.

    One that is read again has none yet: it holds the watermark back again.
    """
    generation = _newest(bound, start)
    times, returns = (
        binding.facts(bound, generation, Fact.EVENT_TIME),
        _returns(start, generation),
    )
    return {partition: time for partition, time in times.items() if partition not in returns}


def going_on(bound: Offsets, start: Start) -> frozenset[int]:
    """Return the partitions of this topic that are bound, but for those that are read again."""
    generation = _newest(bound, start)
    read_again = _returns(start, generation)
    return frozenset(binding.offsets(bound, generation)) - frozenset(read_again)


def settled(letters: Offsets, start: Start) -> dict[int, int]:
    """Return the offset before which refused messages are dead letters; `letters` bind it."""
    generation = _newest(letters, start)
    offsets = binding.offsets(letters, generation)
    for partition, offset in _returns(start, generation).items():
        offsets[partition] = min(offset, offsets.get(partition, 0))
    return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where a source is to go on in its topic, and what became of that.

    By partition, `places` has the offset at which it goes on, and `lows` the first one that the
    topic holds. From the offset in `lost` on, the topic lost what was read, and may hold other
    messages. `bad` is the partition and offset of the message at which the source stopped: what
    is before it is read, independent of what is bound.
    """

    places: Mapping[int, int]
    lows: Mapping[int, int] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)
    bad: tuple[int, int] | None = None


def resumed(before: Start, bound: Offsets, wanted: Wanted) -> Start:
    """Return the start of the next generation, in the same topic."""
    if not standing(bound, before):  # nothing is bound: from now on it begins at these
        before = replace(before, offsets=tuple(sorted(wanted.lows.items())))
    stood, newest = standing(bound, before), _newest(bound, before)
    done = binding.facts(bound, newest, Fact.RELEASED)
    open_ = released(bound, before)
    kept = before.kept or Kept(before.generation)
    generation = before.generation + 1
    returns = {partition: (at, offset) for partition, at, offset in kept.returns if at > newest}
    ranges: list[tuple[int, int, int]] = []
    for partition, place in sorted(wanted.places.items()):
        read = stood.get(partition, 0)
        first = min(open_.get(partition, read), place)
        again = _back(wanted, partition, read)
        if again is not None:
            returns[partition] = (generation, again)
        whole = done.get(partition, 0)  # gaps before it have had their effect
        if partition in returns:
            whole = min(whole, returns[partition][1])
        ranges += [
            (partition, start, end)
            for start, end in _gaps_until(before, wanted, partition, first, read)
            if end > whole
        ]
    back = tuple((partition, at, offset) for partition, (at, offset) in sorted(returns.items()))
    return Start(generation, before.offsets, Kept(kept.since, back, tuple(ranges)))


def _back(wanted: Wanted, partition: int, read: int) -> int | None:
    """Return from where a partition is read again that was read up to `read`, if it is.

    Where it lost an end that was not read and goes on before it, refused messages up to that
    end stay settled.
    """
    place, lost = wanted.places[partition], wanted.lost.get(partition)
    if place < read or lost is None:
        return place if place < read else None
    return max(place, lost) if lost >= read else place


def _gaps_until(before: Start, wanted: Wanted, partition: int, first: int, read: int) -> Gaps:
    """The gaps of a partition that was read up to `read`, and is pending from `first` on."""
    place, earlier = wanted.places[partition], gaps(before, partition)
    stop = read
    if partition in wanted.lost:
        stop = wanted.lost[partition]
    elif wanted.bad is not None and wanted.bad[0] == partition:
        stop = max(read, wanted.bad[1])
    back = _back(wanted, partition, read)
    if back is not None:
        earlier = tuple((start, min(end, back)) for start, end in earlier)
    gone = (first, min(wanted.lows.get(partition, 0), read, place))
    return _merged((*earlier, gone, (stop, place)))


def added(before: Start, after: Start, partition: int) -> Gaps:
    """Return the offsets in the gaps of a start that are in none of the start before it."""
    ranges: list[tuple[int, int]] = []
    for first, end in gaps(after, partition):
        begin = first
        for known_first, known_end in gaps(before, partition):
            ranges.append((begin, min(end, known_first)))
            begin = max(begin, known_end)
        ranges.append((begin, end))
    return _merged(tuple(ranges))


def _merged(ranges: tuple[tuple[int, int], ...]) -> Gaps:
    """The ranges that are not empty, in order, and one where they touch."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(range_ for range_ in ranges if range_[0] < range_[1]):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple(merged)


def _newest(bound: Offsets, start: Start) -> int:
    """The newest generation of this topic that binds anything; -1 if none does."""
    since = start.generation if start.kept is None else start.kept.since
    return binding.newest(bound, since, start.generation)


def _returns(start: Start, generation: int) -> dict[int, int]:
    """Where partitions are read again in generations later than this one."""
    returns = () if start.kept is None else start.kept.returns
    return {partition: offset for partition, at, offset in returns if at > generation}
