"""Reclocking: decides how an ingestion binds offsets of a raw topic to times. Pure.

The shard of the source carries its *binding*: for each partition the offset before which all
messages are ingested. An interval takes the messages from the binding to some later offsets,
all at one time, and its Append names both ends. It counts only if its lower is the shard's
upper and its from-offsets are the shard's binding (rule 18): intervals join without gap or
overlap in time *and* in offsets, independent of the writer.

    time of an interval [lower, upper)   =  max(now, lower);  upper = time + 1
    hence upper > lower, whatever the wall clock did (rule 27)
    time of the first one                =  lower, which is the source's since

So all messages that were in the topic when the source was created are there at each readable
time: a reader never sees an empty or half-loaded source, and waits for the first interval.

Now is the earlier of two clocks, ours and the broker's: a time cannot be taken back, and every
join waits for the other inputs of a source that is ahead. While their difference is unknown
nothing is bound to a time.

Ingestion is not a deterministic dataflow: two replicas read the same topic at different moments
and bind it differently. So a loser's chunks are neither clipped nor linked again: it discards
them and its keyed state, because they were computed against a binding that did not count, and
rebuilds the state from the shard, which at `upper - 1` holds exactly the messages up to the
binding. For the same reason a checkpoint record of an ingestion is written after its Append was
read back as counted, never before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streams.compute import binding, continuation
from streams.compute.binding import Offsets
from streams.compute.description import BEGINNING, Start
from streams.ids import Timestamp
from streams.progress import Antichain

MAX_SKEW_MS = 5_000
"""A writer whose clock is further than this from the broker's stops ticking (rule 27)."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an ingestion: a frontier, and the binding there."""

    frontier: Antichain
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Ends:
    """The offsets of a partition: the first one still there, and the last stable offset."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks that this writer knows.

    An idle source ticks every `tick_ms`; `skew_ms` is our clock less the broker's, None if
    unknown.
    """

    now_ms: int
    tick_ms: int
    skew_ms: int | None

    @property
    def earlier_ms(self) -> int:
        """The time by the earlier of the two clocks, as far as known."""
        return self.now_ms - max(0, self.skew_ms or 0)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Take every message of `from_offsets .. to_offsets`, all at `time`, `lower` or later.

    Both are bindings (`streams.compute.binding`). A partition that is not in `from_offsets` is
    read from where the source starts. The Append covers `[lower, upper)` and carries both
    mappings whole.
    """

    lower: Antichain
    upper: Antichain
    time: Timestamp
    from_offsets: Offsets
    to_offsets: Offsets


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing to take: append the empty `[lower, upper)`.

    The binding stays, unless it is to be `reached` (`streams.compute.rebasing`).
    """

    lower: Antichain
    upper: Antichain
    offsets: Offsets
    reached: Offsets | None = None


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Drop the keyed state; rebuild it from the shard at `at`, which another replica wrote."""

    at: Position


@dataclass(frozen=True, slots=True)
class Follow:
    """Only time has moved: continue at `at` with the same state."""

    at: Position


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to do until messages arrive, or `until_ms`.

    None: until the clock is right, or a new description of the source comes.
    """

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Broken:
    """The topic no longer holds the messages after the binding; an operator must decide.

    Either retention overtook the ingestion (`low` is past `expected`) or the topic was
    truncated or created again (`high` is before it).
    """

    partition: int
    expected: int
    ends: Ends


Ingestion = Ingest | Tick | Rebuild | Follow | Pause | Broken


def next_interval(
    own: Position,
    shard: Position,
    topic: Mapping[int, Ends],
    clock: Clock,
    budget: int | None = None,
    start: Start = BEGINNING,
) -> Ingestion:
    """Return the next action, `own` being the position of the ingestion's own state.

    Units: `budget` counts messages. The very first interval takes all there is, whatever the
    budget: the messages in the topic at the creation of the source are one snapshot at one
    time. A shard whose binding has a later generation than `start` is left alone: the source
    has resumed elsewhere, and its new description is on the way.
    """
    if own != shard:
        return decide_lost(own, shard)
    bound = binding.offsets(shard.offsets, start.generation)
    begin = read_positions(shard.offsets, start)
    broken = _broken(begin, topic)
    if broken is not None:
        return broken
    has_resumed = binding.generation(shard.offsets) > start.generation
    if clock.skew_ms is None or has_resumed:
        return Pause(None)
    lower = shard.frontier
    now = Timestamp(max(clock.earlier_ms, lower.time))
    time = now if shard.offsets else lower.time
    upper = Antichain((Timestamp(now + 1),))
    limit = None if not shard.offsets else budget
    reached = _reached(begin, topic, limit)
    if reached != bound:
        to_offsets = binding.extended(shard.offsets, start.generation, reached)
        return Ingest(lower, upper, time, shard.offsets, to_offsets)
    if abs(clock.skew_ms) > MAX_SKEW_MS:
        return Pause(None)
    due_ms = lower.time + clock.tick_ms
    return Tick(lower, upper, shard.offsets) if clock.earlier_ms >= due_ms else Pause(due_ms)


def read_positions(bound: Offsets, start: Start) -> dict[int, int]:
    """Return the offset at which each partition is read on, by the shard's binding `bound`.

    That is where the generation of `start` has come to or else begins; a partition that is
    missing is read from its first message on.
    """
    return continuation.standing(bound, start)


def up_to(
    topic: Mapping[int, Ends], begin: Offsets, partition: int, offset: int
) -> dict[int, Ends]:
    """Return the ends for reading one partition up to an offset, and no other one on."""
    stay = {p: replace(ends, high=begin.get(p, ends.low)) for p, ends in topic.items()}
    return {**stay, partition: replace(topic[partition], high=offset)}


def decide_lost(own: Position, shard: Position) -> Rebuild | Follow:
    """Return what a replica does if the shard is not at the position of its own state.

    An equal binding means that the other replica only ticked: `own` is the position *before*
    the attempt that lost, so its state is still that of the binding.
    """
    if dict(own.offsets) == dict(shard.offsets):
        return Follow(shard)
    return Rebuild(shard)


def ranges(
    step: Ingest, topic: Mapping[int, Ends], start: Start = BEGINNING
) -> dict[int, tuple[int, int]]:
    """For each partition with messages to read: the first offset, and the end."""
    begin = read_positions(step.from_offsets, start)
    reached = binding.offsets(step.to_offsets, start.generation)
    ranges_ = {p: (begin.get(p, topic[p].low), stop) for p, stop in reached.items()}
    return {p: (first, stop) for p, (first, stop) in ranges_.items() if first < stop}


def _broken(offsets: Offsets, topic: Mapping[int, Ends]) -> Broken | None:
    for partition, expected in sorted(offsets.items()):
        ends = topic.get(partition, Ends(0, 0))
        if not ends.low <= expected <= ends.high:
            return Broken(partition, expected, ends)
    return None


def _reached(offsets: Offsets, topic: Mapping[int, Ends], limit: int | None) -> dict[int, int]:
    """Return the end offsets to read to: fairly divided among the partitions with messages."""
    starts = {p: offsets.get(p, ends.low) for p, ends in topic.items()}
    waiting = [p for p, ends in topic.items() if ends.high > starts[p]]
    share = None if limit is None else max(1, limit // max(1, len(waiting)))
    reached = dict(offsets)
    for partition, ends in topic.items():
        start = starts[partition]
        reached[partition] = ends.high if share is None else min(ends.high, start + share)
    return reached
