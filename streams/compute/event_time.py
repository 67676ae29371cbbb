"""Event time: how far a source with a watermark is read, and which times are final. Pure.

Such a source binds updates to the event times of its rows, not to a clock. Its shard's upper is
the watermark: all times below are final. With m(p) the greatest event time that was read of
partition p:

    candidate  =  min of m(p) over the active partitions;  if none is, max over all
    watermark  =  max over time of (candidate - delay)
    upper      =  max(upper before, watermark), once watermark <= candidate - delay

A partition is idle when its end has been read and it gave no event time for the declared time.
Messages without one keep it active only while there are more than a micro-batch reads, or the
first of them are unread: they might be rows. A replica reads ahead of the binding: a row at or
beyond upper is *pending* in its state, and one below upper is late. The judge of lateness is
the shard's upper when the row is read, which is the lower of the interval to which the row
belongs.

    pending(offsets O, upper U)  =  rows at offsets < O with event times >= U
    shard(O, U)                  =  all other rows at offsets < O

Hence pending rows need no store: any replica rebuilds them from the topic. It reads from the
offset before which everything is in the shard (`Fact.RELEASED`) to the binding, and keeps what
is at or beyond upper. So it does after a restart, and after another replica's Append counted
instead of its own: what it judged by the former upper is void. The engine's watermark is not,
and may be of messages that are to be read again; upper moves again when they have been, or rows
within the delay would be late.

An interval is appended when the watermark is beyond upper, in the micro-batch that feeds the
engine the candidate: its Append has the watermark that the engine commits at the end of it
(D279). Until then reading changes state only. A message that is refused meanwhile (undecodable,
or late) is *owed*: its range is read again, for what was refused alone, by the next Append. Its
lower is the same, and so is what is refused.

Nothing but rows moves upper, so dead letters do not wait for it: after `SETTLE_MS` those that
are owed are appended alone, and the messages before the offsets that were read are *settled*.
The collection of dead letters then runs ahead of the source, by a millisecond each time; its
binding has the settled offsets. Every Append of the source moves that collection too, so of two
writers one counts; and it has all that is settled, which was judged by the same lower. What
becomes a row or an error of the source itself does wait: at a time that upper has passed no row
may be missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from streams.compute import binding, continuation, reclocking
from streams.compute.binding import Fact, Offsets
from streams.compute.description import BEGINNING, Start
from streams.compute.reclocking import Broken, Ends
from streams.plan.metadata import Watermark

SETTLE_MS = 1_000
"""How long refused messages wait for upper before they are settled without it."""

MOST_STRETCHES = 64
"""The number of stretches of a partition; more are merged, and released together."""

NOWHERE: Mapping[int, int] = {}

Ranges = Mapping[int, tuple[int, int]]
"""For each partition the first offset, and the end."""

NOTHING: Ranges = {}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of a partition up to `end`, and the greatest event time of their rows."""

    end: int
    greatest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """How far a replica has read a partition.

    `bound` is where the shard's binding stands, and messages before `released` are all in the
    shard. `greatest` is the greatest event time, None before the first row. `stretches` divide
    what is read and not released. `owed` was read without an Append, and has refused messages.
    `read_ms` is this replica's monotonic clock when the last message was read
    (D341), and `time_ms` when the last one with an event time was. `is_behind` says that there
    was more to read then. `late`, `skipped`, `bad` and `messages` count messages before `read`
    (`Fact`). Refused messages before `settled` are dead letters already. `waiting` counts those
    that are owed, since `owed_ms`. No offset here lies in one of the `gaps`, which are never
    read. `losses` is how often the topic was seen to lose an end before it was read.
    """

    read: int
    bound: int
    released: int
    greatest: int | None
    read_ms: int
    time_ms: int
    is_behind: bool = False
    stretches: tuple[Stretch, ...] = ()
    owed: tuple[int, int] | None = None
    late: int = 0
    skipped: int = 0
    bad: int = 0
    messages: int = 0
    settled: int = 0
    waiting: int = 0
    owed_ms: int = 0
    gaps: continuation.Gaps = ()
    losses: int = 0


Progress = Mapping[int, Partition]
"""How far a replica has read a topic, by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """A micro-batch of a source: what it reads, and the interval [lower, upper).

    With upper = lower nothing is appended, or `settles` dead letters alone. `again` is read for
    rows that are pending, `owed` for refused messages. `candidate` is fed to the engine's
    watermark; None: it is there already. Of the partitions that are `behind` not all fresh
    messages are read. With `follows` another replica has appended the interval, and that is the
    progress after it (`streams.compute.lost_races`).
    """

    lower: int
    upper: int
    fresh: Ranges = field(default_factory=dict)
    again: Ranges = field(default_factory=dict)
    owed: Ranges = field(default_factory=dict)
    candidate: int | None = None
    settles: bool = False
    behind: frozenset[int] = frozenset()
    follows: Progress | None = None

    @property
    def appends(self) -> bool:
        """Whether the micro-batch appends an interval."""
        return self.lower < self.upper and self.follows is None


@dataclass(frozen=True, slots=True)
class Seen:
    """What tasks report of the messages that they read.

    `greatest` has the greatest event time of each partition that has rows, `refused` the
    partitions with errors or dead letters: both of sources with a watermark. By partition,
    `late` counts late rows, kept or not, `skipped` messages that were left out
    (ON ERROR SKIP), `bad` all that cannot be decoded, and `messages` all, of a source with an
    ERROR LIMIT; they are of messages that are read for the first time.
    """

    greatest: Mapping[int, int] = field(default_factory=dict)
    refused: tuple[int, ...] = ()
    late: Mapping[int, int] = field(default_factory=dict)
    skipped: Mapping[int, int] = field(default_factory=dict)
    bad: Mapping[int, int] = field(default_factory=dict)
    messages: Mapping[int, int] = field(default_factory=dict)


def begin(
    progress: Progress | None,
    bound: Offsets,
    topic: Mapping[int, Ends],
    now_ms: int,
    start: Start = BEGINNING,
    settled: Mapping[int, int] = NOWHERE,
) -> Progress:
    """Return the progress with every partition of the topic; None: without any state.

    Without state a replica stands before the first message that may be pending. A partition
    of which nothing is bound or read begins with what the topic holds. `settled` has the
    offsets before which refused messages are dead letters.
    """
    progress = {p: _settled(part, settled.get(p, 0)) for p, part in (progress or {}).items()}
    reads = reclocking.read_positions(bound, start)
    if not reads:
        progress = {
            p: part for p, part in progress.items() if not _is_overtaken(part, topic.get(p))
        }
    released = continuation.released(bound, start)
    greatest = continuation.greatest(bound, start)
    late = binding.facts(bound, start.generation, Fact.LATE)
    skipped = binding.facts(bound, start.generation, Fact.SKIPPED)
    bad = binding.facts(bound, start.generation, Fact.REFUSED)
    messages = binding.facts(bound, start.generation, Fact.MESSAGES)
    added = {}
    for partition in (set(reads) | set(topic)) - set(progress):
        low = topic[partition].low if partition in topic and not reads else 0
        gaps = continuation.gaps(start, partition)
        read = reads.get(partition, continuation.past(gaps, low))
        first = released.get(partition, read)
        added[partition] = Partition(
            read=first,
            bound=read,
            released=first,
            greatest=greatest.get(partition),
            read_ms=now_ms,
            time_ms=now_ms,
            late=late.get(partition, 0),
            skipped=skipped.get(partition, 0),
            bad=bad.get(partition, 0),
            messages=messages.get(partition, 0),
            settled=settled.get(partition, 0),
            gaps=gaps,
        )
    return {**progress, **added}


def aware(progress: Progress, losses: int) -> Progress:
    """Return the progress of a replica that knows of so many losses."""
    return {number: replace(part, losses=losses) for number, part in progress.items()}


def has_lost(progress: Progress, shrunk: Mapping[int, int], losses: int) -> bool:
    """Whether the topic may have lost messages of which rows are pending.

    `shrunk` has the lowest end of each partition whose end went back, which it did so often.
    """
    return any(
        part.losses != losses and part.read > shrunk.get(number, part.read)
        for number, part in progress.items()
    )


def _is_overtaken(partition: Partition, ends: Ends | None) -> bool:
    """Whether retention has removed the first messages of a partition before any was read."""
    return ends is not None and not partition.stretches and partition.read < ends.low


def broken(progress: Progress, topic: Mapping[int, Ends]) -> Broken | None:
    """Return the partition that no longer holds what is read next, if there is one."""
    for number, partition in sorted(progress.items()):
        ends = topic.get(number, Ends(0, 0))
        if not ends.low <= partition.read <= ends.high:
            return Broken(number, partition.read, ends)
    return None


def candidate(
    progress: Progress,
    topic: Mapping[int, Ends],
    now_ms: int,
    idle_ms: int,
    fresh: Ranges = NOTHING,
) -> int | None:
    """Return what the watermark may follow, before the delay; None if it cannot move yet.

    `fresh` is what the micro-batch reads that it is fed in.
    """
    active = [
        partition
        for number, partition in progress.items()
        if now_ms - partition.time_ms < idle_ms
        or (number in topic and not _is_read(partition, topic[number].high, fresh.get(number)))
    ]
    if active:
        if any(partition.greatest is None for partition in active):
            return None
        return min(partition.greatest or 0 for partition in active)
    return max(
        (part.greatest for part in progress.values() if part.greatest is not None),
        default=None,
    )


def _is_read(partition: Partition, end: int, fresh: tuple[int, int] | None) -> bool:
    """Whether a partition is read, or by now if what is read there has no event times."""
    if partition.read >= end:
        return True
    return fresh is not None and fresh[1] >= end and partition.time_ms < partition.read_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a replica knows when it plans a micro-batch.

    `watermark` is the engine's after the last one; it follows the candidates that it was fed.
    `clock_ms` is the replica's monotonic clock when the ends of the topic were asked
    for; `budget` the number of messages that a micro-batch reads. With `may_settle` dead
    letters need not wait for upper; with `has_skipped` there are some at once, of messages that
    are never read.
    """

    topic: Mapping[int, Ends]
    clock_ms: int
    watermark: int
    budget: int
    may_settle: bool = False
    has_skipped: bool = False


def next_advance(
    progress: Progress, upper: int, observed: Observed, declared: Watermark
) -> Advance | None:
    """Return the next micro-batch; None if there is nothing to do.

    `upper` is the shard's, at which `progress` stands.
    """
    again = _again(progress, observed.budget)
    if again:
        return Advance(lower=upper, upper=upper, again=again)
    fresh = _fresh(progress, observed.topic, observed.budget)
    fed = candidate(progress, observed.topic, observed.clock_ms, declared.idle_ms, fresh)
    followed = -1 if fed is None else fed - declared.delay_ms
    reached = max(upper, followed) if followed >= observed.watermark else upper
    if any(partition.read < partition.settled for partition in progress.values()):
        reached = upper
    if followed <= observed.watermark:
        fed = None
    owed = {
        number: partition.owed
        for number, partition in progress.items()
        if partition.owed is not None
    }
    is_due = observed.has_skipped or _is_due(progress, observed.clock_ms)
    if reached == upper and observed.may_settle and is_due:
        return Advance(lower=upper, upper=upper, owed=owed, settles=True)
    if not fresh and fed is None and reached == upper:
        return None
    owed = owed if reached > upper else {}
    behind = frozenset(p for p, (_, end) in fresh.items() if end < observed.topic[p].high)
    return Advance(
        lower=upper, upper=reached, fresh=fresh, owed=owed, candidate=fed, behind=behind
    )


def _is_due(progress: Progress, now_ms: int) -> bool:
    """Whether refused messages have waited for long enough."""
    owing = [part for part in progress.values() if part.owed is not None]
    return any(now_ms - part.owed_ms >= SETTLE_MS for part in owing)


def waiting(progress: Progress, now_ms: int) -> int:
    """Return how many refused messages wait for upper, once they have waited for long."""
    if not _is_due(progress, now_ms):
        return 0
    return sum(part.waiting for part in progress.values())


def after(progress: Progress, advance: Advance, seen: Seen, now_ms: int) -> Progress:
    """Return the progress after a micro-batch, and after its Append counted if it has one."""
    if advance.follows is not None:
        return advance.follows
    moved = {
        number: _read(partition, number, advance, seen, now_ms)
        for number, partition in progress.items()
    }
    if advance.settles:
        return {number: _settled(part, part.read) for number, part in moved.items()}
    if not advance.appends:
        return moved
    return {number: _appended(part, advance.upper) for number, part in moved.items()}


def bound_by(
    bound: Offsets, progress: Progress, start: Start = BEGINNING, counts: Sequence[Fact] = ()
) -> dict[int, int]:
    """Return the binding of an Append after which the progress is this.

    `counts` are those of REFUSED and MESSAGES that the source has.
    """
    numbers = {
        Fact.READ: {number: part.read for number, part in progress.items()},
        Fact.EVENT_TIME: {
            number: part.greatest
            for number, part in progress.items()
            if part.greatest is not None
        },
        Fact.RELEASED: {number: part.released for number, part in progress.items()},
        Fact.LATE: {number: part.late for number, part in progress.items() if part.late},
        Fact.SKIPPED: {
            number: part.skipped for number, part in progress.items() if part.skipped
        },
    }
    if Fact.REFUSED in counts:
        numbers[Fact.REFUSED] = {n: part.bad for n, part in progress.items() if part.bad}
    if Fact.MESSAGES in counts:
        numbers[Fact.MESSAGES] = {n: p.messages for n, p in progress.items() if p.messages}
    extended = dict(bound)
    for fact, of_fact in numbers.items():
        extended = binding.extended(extended, start.generation, of_fact, fact)
    return extended


def _again(progress: Progress, budget: int) -> Ranges:
    """What is to be read again before anything else, up to the binding."""
    behind = {number: part for number, part in progress.items() if part.read < part.bound}
    share = max(1, budget // max(1, len(behind)))
    return {
        number: (part.read, min(part.bound, part.read + share))
        for number, part in behind.items()
    }


def _fresh(progress: Progress, topic: Mapping[int, Ends], budget: int) -> Ranges:
    waiting = {
        number: part
        for number, part in progress.items()
        if number in topic and part.read < topic[number].high
    }
    share = max(1, budget // max(1, len(waiting)))
    return {
        number: (part.read, min(topic[number].high, part.read + share))
        for number, part in waiting.items()
    }


def _read(
    partition: Partition, number: int, advance: Advance, seen: Seen, now_ms: int
) -> Partition:
    """A partition after messages of it were read."""
    range_ = advance.fresh.get(number) or advance.again.get(number)
    if range_ is None:
        return partition
    first, end = range_[0], continuation.past(partition.gaps, range_[1])
    row = seen.greatest.get(number)
    before = partition.greatest
    greatest = before if row is None else max(0, row, before or 0)
    owed, since, is_fresh = partition.owed, partition.owed_ms, number in advance.fresh
    if number in seen.refused and is_fresh and not advance.appends:
        since = now_ms if owed is None else since
        owed = (max(first, partition.settled) if owed is None else owed[0], end)
    stretch = Stretch(end, 0 if row is None else max(0, row))
    return replace(
        partition,
        read=end,
        greatest=greatest,
        read_ms=now_ms if is_fresh else partition.read_ms,
        time_ms=partition.time_ms if row is None or not is_fresh else now_ms,
        is_behind=number in advance.behind if is_fresh else partition.is_behind,
        stretches=_merged((*partition.stretches, stretch)),
        owed=owed,
        late=partition.late + seen.late.get(number, 0),
        skipped=partition.skipped + seen.skipped.get(number, 0),
        bad=partition.bad + seen.bad.get(number, 0),
        messages=partition.messages + seen.messages.get(number, 0),
        waiting=0 if owed is None else partition.waiting + seen.bad.get(number, 0),
        owed_ms=since,
    )


def _merged(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """The stretches; of too many, the neighbours become one that span the least event time."""
    if len(stretches) <= MOST_STRETCHES:
        return stretches
    greatest = list(accumulate((stretch.greatest for stretch in stretches), max))
    spans = [end - before for before, end in zip((0, *greatest), greatest[1:], strict=False)]
    place = spans.index(min(spans))
    both = Stretch(stretches[place + 1].end, greatest[place + 1])
    return (*stretches[:place], both, *stretches[place + 2 :])


def _appended(partition: Partition, upper: int) -> Partition:
    """A partition after an Append up to `upper`: what is below it is released."""
    stretches, released = partition.stretches, partition.released
    while stretches and stretches[0].greatest < upper:
        released, stretches = stretches[0].end, stretches[1:]
    after = replace(partition, bound=partition.read, released=released, stretches=stretches)
    return _settled(after, after.read)


def _settled(partition: Partition, before: int) -> Partition:
    """A partition whose refused messages before an offset are appended."""
    if before <= partition.settled:
        return partition
    owed = partition.owed
    if owed is None or owed[1] <= before:
        return replace(partition, settled=before, owed=None, waiting=0)
    return replace(partition, settled=before, owed=(max(owed[0], before), owed[1]))
