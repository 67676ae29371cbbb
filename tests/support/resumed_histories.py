"""A source by event time that resumes elsewhere: topics that lose messages, and what is to be.

`Truth` is told of each statement and of each Append that counted, and keeps for every partition
the offset that is read next, the set of offsets that are never read, and each pending message.
The code under test has ranges in a binding for that.
"""

import copy
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streams.compute import binding, continuation, event_time, idleness
from streams.compute.continuation import Wanted
from streams.compute.description import Start
from streams.compute.event_time import Advance, Observed, Progress, Ranges, Seen
from streams.compute.reclocking import Ends
from streams.plan.metadata import LateRows, Watermark

PARTITIONS = 3
BAD = None
"""The event time of a message that cannot be decoded."""

Reads = Mapping[int, int]
OnError = Literal["dead_letter", "fail"]


class Message(NamedTuple):
    """One of a kind, also where its offset is used again."""

    number: int
    at: int | None


@dataclass
class Log:
    """A partition of the topic."""

    low: int = 0
    messages: list[Message] = field(default_factory=list)

    @property
    def ends(self) -> Ends:
        return Ends(self.low, len(self.messages))


@dataclass(frozen=True)
class Statement:
    """RESUME FROM; `stood` is where the source stood when it was executed."""

    start: Start
    stood: Reads
    wanted: Wanted


@dataclass
class Truth:
    """What the shard has to hold."""

    late_rows: LateRows
    generation: int = 0
    read: dict[int, int] = field(default_factory=dict)
    skipped: dict[int, set[int]] = field(default_factory=dict)
    settled: dict[int, set[int]] = field(default_factory=dict)
    pending: dict[tuple[int, int], tuple[Message, int]] = field(default_factory=dict)
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    letters: Counter[int] = field(default_factory=Counter)
    left_out: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often a statement left out an offset of a partition."""
    late: int = 0
    waiting: list[Statement] = field(default_factory=list)

    def ahead(self) -> "Truth":
        """What it comes to once all statements hold."""
        after = copy.deepcopy(self)
        after.begin(1 << 20)
        return after

    def begin(self, generation: int) -> None:
        """A writer of this generation counted: what was stated before holds."""
        while self.waiting and self.waiting[0].start.generation <= generation:
            self._apply(self.waiting.pop(0))

    def _apply(self, said: Statement) -> None:
        self.generation, wanted = said.start.generation, said.wanted
        if said.start.kept is None:  # another topic
            self.read, self.pending, self.skipped = dict(wanted.places), {}, {}
            self.settled = {}
            return
        for partition, place in wanted.places.items():
            skipped = self.skipped.setdefault(partition, set())
            before = set(skipped)
            lost, low = wanted.lost.get(partition), wanted.lows[partition]
            stood = said.stood.get(partition, 0)
            if lost is not None and stood <= lost and stood <= place:
                self.settled[partition] = {
                    offset for offset in self.settled.get(partition, set()) if offset < lost
                }
                skipped -= {offset for offset in skipped if offset >= max(place, lost)}
                skipped |= set(range(lost, place))
                keep = 1 << 40
            elif lost is not None or place < stood:
                self.read[partition] = place
                self.settled[partition] = {
                    offset for offset in self.settled.get(partition, set()) if offset < place
                }
                skipped -= {offset for offset in skipped if offset >= place}
                skipped |= set(range(place if lost is None else lost, place))
                keep = place if lost is None else min(lost, place)
            else:
                stop = said.stood.get(partition, 0)
                if wanted.bad is not None and wanted.bad[0] == partition:
                    stop = max(stop, wanted.bad[1])
                skipped |= set(range(stop, place))
                keep = 1 << 40
            self.left_out.update((partition, offset) for offset in skipped - before)
            self.pending = {
                (p, offset): pending
                for (p, offset), pending in self.pending.items()
                if p != partition or (low <= offset < keep and offset not in skipped)
            }

    def next(self, partition: int) -> int:
        """The offset that is read next."""
        offset = self.read.get(partition, 0)
        while offset in self.skipped.get(partition, ()):
            offset += 1
        return offset

    def appended(
        self, generation: int, lower: int, upper: int, to: Reads, logs: list[Log]
    ) -> None:
        self.begin(generation)
        self._judge(lower, to, logs)
        self._refuse(lower, to, logs, settles=False)
        self.read |= to
        for key, (message, time) in tuple(self.pending.items()):
            if time < upper:
                self.rows[message.number, time] += 1
                del self.pending[key]

    def settles(self, generation: int, lower: int, to: Reads, logs: list[Log]) -> None:
        """Dead letters alone were appended."""
        self.begin(generation)
        self._refuse(lower, to, logs, settles=True)

    def _fresh(self, to: Reads, logs: list[Log]) -> list[tuple[int, int, Message]]:
        return [
            (partition, offset, logs[partition].messages[offset])
            for partition, end in to.items()
            for offset in range(self.read.get(partition, 0), end)
            if offset not in self.skipped.get(partition, ())
        ]

    def _is_refused(self, at: int | None, lower: int) -> bool:
        return at is BAD or (at < lower and self.late_rows == "dead_letter")

    def _judge(self, lower: int, to: Reads, logs: list[Log]) -> None:
        for partition, offset, message in self._fresh(to, logs):
            self.late += message.at is not BAD and message.at < lower
            if message.at is not BAD and not self._is_refused(message.at, lower):
                self.pending[partition, offset] = message, max(message.at, lower)

    def _refuse(self, lower: int, to: Reads, logs: list[Log], *, settles: bool) -> None:
        for partition, offset, message in self._fresh(to, logs):
            settled = self.settled.setdefault(partition, set())
            if self._is_refused(message.at, lower) and offset not in settled:
                self.letters[message.number] += 1
            if settles:
                settled.add(offset)


@dataclass
class Shard:
    """What counted. `letters` is the upper of dead letters, and their binding."""

    upper: int = 0
    bound: Mapping[int, int] = field(default_factory=dict)
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    letters: tuple[int, Mapping[int, int]] = (0, {})


@dataclass
class World:
    """The topic, the catalog, the shard, and the truth."""

    declared: Watermark
    on_error: OnError
    bad_share: float = 0.07
    logs: list[Log] = field(default_factory=lambda: [Log() for _ in range(PARTITIONS)])
    topic: int = 0
    sent: int = 0
    start: Start = field(default_factory=Start)
    start_topic: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    """Where partitions were seen to end before what was read, since the last statement."""
    shard: Shard = field(default_factory=Shard)
    now_ms: int = 0
    truth: Truth = field(init=False)

    def __post_init__(self) -> None:
        self.truth = Truth(self.declared.late_rows)

    def ends(self) -> dict[int, Ends]:
        return {number: log.ends for number, log in enumerate(self.logs)}

    def send(self, partition: int, at: int | None) -> None:
        self.logs[partition].messages.append(Message(self.sent, at))
        self.sent += 1

    def retain(self, partition: int, count: int) -> None:
        """Retention takes the first messages, once something was read."""
        log = self.logs[partition]
        if self.shard.bound:
            log.low = min(len(log.messages), log.low + count)

    def cut(self, partition: int, count: int, replicas: "list[Replica]") -> None:
        """The topic loses its end, below what is bound or settled for whichever replica.

        What is under way is given up: it has read messages that are gone.
        """
        log, starts = (
            self.logs[partition],
            [self.start, *(replica.heard for replica in replicas)],
        )
        stood = min(self.known(start).get(partition, 0) for start in starts)
        end = len(log.messages) - count
        if self.start_topic != self.topic or not log.low <= end < stood <= len(log.messages):
            return
        del log.messages[end:]
        for cuts in (self.cuts, *(replica.cuts for replica in replicas)):
            cuts[partition] = min(end, cuts.get(partition, end))
        self._forget(replicas)

    def known(self, start: Start) -> dict[int, int]:
        """The offsets before which all is bound, or refused and settled."""
        stood = continuation.standing(self.shard.bound, start)
        settled = continuation.settled(self.shard.letters[1], start)
        return {p: max(stood.get(p, 0), settled.get(p, 0)) for p in {*stood, *settled}}

    @staticmethod
    def _forget(replicas: "list[Replica]") -> None:
        for replica in replicas:
            replica.planned = None

    def make_anew(self, replicas: "list[Replica]") -> None:
        """The topic is deleted and created again."""
        self._forget(replicas)
        self.logs, self.topic = [Log() for _ in range(PARTITIONS)], self.topic + 1
        self.cuts = {}

    def resume(self, places: Mapping[int, int], bad: tuple[int, int] | None = None) -> None:
        """Execute the statement: partitions that are not in `places` go on where they stand."""
        stood, reached = (
            continuation.standing(self.shard.bound, self.start),
            self.known(self.start),
        )
        wanted = Wanted(
            places={p: places.get(p, stood.get(p, log.low)) for p, log in enumerate(self.logs)},
            lows={p: log.low for p, log in enumerate(self.logs)},
            lost={p: end for p, end in self.cuts.items() if end < reached.get(p, 0)},
            bad=bad,
        )
        if self.topic == self.start_topic:
            start = continuation.resumed(self.start, self.shard.bound, wanted)
        else:
            lows = {p: places.get(p, log.low) for p, log in enumerate(self.logs)}
            wanted = Wanted(places=lows)
            start = Start(self.start.generation + 1, tuple(sorted(lows.items())))
        ahead = self.truth.ahead()
        reads = {number: ahead.next(number) for number in range(PARTITIONS)}
        self.truth.waiting.append(Statement(start, reads, wanted))
        self.start, self.start_topic, self.cuts = start, self.topic, {}

    def check(self) -> None:
        shard, truth = self.shard, self.truth
        assert shard.rows == truth.rows
        assert shard.refused == truth.letters
        assert binding.total(shard.bound, binding.Fact.LATE) == truth.late
        assert shard.upper <= shard.letters[0]


@dataclass
class Replica:
    """One replica: what it was told, its progress, its pending rows, the engine's watermark."""

    world: World
    heard: Start = field(default_factory=Start)
    topic: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    """Ends that went back since the statement that it was told of."""
    position: tuple[int, Mapping[int, int]] | None = None
    progress: Progress | None = None
    pending: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    watermark: int = 0
    planned: tuple[Advance, Seen, dict[tuple[int, int], tuple[int, int]], list[int]] | None = (
        None
    )
    letters: tuple[int, Mapping[int, int]] = (0, {})

    def die(self) -> None:
        self.position = self.progress = self.planned = None
        self.pending, self.watermark = {}, 0

    def hear(self) -> None:
        """Be told of the newest statement."""
        if self.heard != self.world.start:
            self.die()
            self.cuts = dict(self.world.cuts)
        self.heard, self.topic = self.world.start, self.world.start_topic

    def bad(self) -> tuple[int, int] | None:
        """The message at which it stops, once it has read all before it."""
        for number, part in (self.progress or {}).items():
            log = self.world.logs[number]
            if part.read < len(log.messages) and log.messages[part.read].at is BAD:
                return number, part.read
        return None

    def is_stalled(self) -> bool:
        """Whether the topic cannot be read on from where the binding stands."""
        world, bound = self.world, self.world.shard.bound
        stood, ends = continuation.standing(bound, self.heard), world.ends()
        if world.topic != self.topic:
            return True
        reached = world.known(self.heard)
        if any(end < reached.get(p, 0) for p, end in self.cuts.items()):
            return True
        if any(ends[p].high < at for p, at in reached.items()):
            return True
        return any(at < ends[p].low for p, at in stood.items())

    def plan(self, budget: int) -> bool:
        world, shard = self.world, self.world.shard
        generation = max(binding.generation(shard.bound), binding.generation(shard.letters[1]))
        if self.is_stalled() or generation > self.heard.generation:
            return False
        is_void = self.position != (shard.upper, shard.bound)
        if is_void:
            self.position, self.pending, self.progress = (shard.upper, shard.bound), {}, None
        self.letters = shard.letters
        self.progress = event_time.begin(
            self.progress,
            shard.bound,
            world.ends(),
            world.now_ms,
            self.heard,
            continuation.settled(shard.letters[1], self.heard),
        )
        if is_void:
            self.progress = idleness.as_left(
                self.progress, shard.bound, self.heard, shard.upper, world.declared
            )
        if event_time.broken(self.progress, world.ends()) is not None:
            return False
        observed = Observed(
            topic=self._ends(self.progress),
            clock_ms=world.now_ms,
            watermark=self.watermark,
            budget=budget,
            may_settle=True,
        )
        advance = event_time.next_advance(self.progress, shard.upper, observed, world.declared)
        if advance is None:
            return False
        self.planned = (advance, *self._work(advance))
        return True

    def _ends(self, progress: Progress) -> Mapping[int, Ends]:
        """How far it reads: up to the first message at which it stops."""
        ends = self.world.ends()
        if self.world.on_error != "fail":
            return ends
        for number, log in enumerate(self.world.logs):
            gaps = continuation.gaps(self.heard, number)
            stops = (
                offset
                for offset in range(progress[number].read, len(log.messages))
                if log.messages[offset].at is BAD and continuation.past(gaps, offset) == offset
            )
            ends[number] = Ends(log.low, next(stops, len(log.messages)))
        return ends

    def _offsets(self, ranges: Ranges) -> list[tuple[int, int]]:
        """The offsets that a load of these ranges has, without what the topic lost."""
        assert self.progress is not None
        return [
            (partition, offset)
            for partition, (first, end) in ranges.items()
            for offset in range(first, end)
            if continuation.past(self.progress[partition].gaps, offset) == offset
        ]

    def _work(
        self, advance: Advance
    ) -> tuple[Seen, dict[tuple[int, int], tuple[int, int]], list[int]]:
        rows, letters = dict[tuple[int, int], tuple[int, int]](), list[int]()
        greatest, late, bad, refused = dict[int, int](), Counter[int](), Counter[int](), set()
        assert self.progress is not None
        for kind in ("fresh", "again", "owed"):
            for partition, offset in self._offsets(getattr(advance, kind)):
                message = self.world.logs[partition].messages[offset]
                at, is_fresh = message.at, kind == "fresh"
                is_late = at is not BAD and at < advance.lower
                is_refused = at is BAD or (
                    is_late and self.world.declared.late_rows == "dead_letter"
                )
                late[partition] += is_late and is_fresh
                bad[partition] += is_refused and is_fresh
                is_open = offset >= self.progress[partition].settled
                if is_refused and is_open and kind != "again":
                    letters.append(message.number)
                    refused |= {partition} if is_fresh else set()
                if at is BAD or kind == "owed":
                    continue
                greatest[partition] = max(greatest.get(partition, at), at)
                if not is_refused and not (kind == "again" and is_late):
                    rows[partition, offset] = message.number, max(at, advance.lower)
        return Seen(greatest, tuple(refused), late, {}, bad), rows, letters

    def commit(self) -> None:
        """End the micro-batch; the engine has seen the candidate, whoever wins."""
        if self.planned is None:
            return
        (advance, seen, rows, letters), shard = self.planned, self.world.shard
        self.planned = None
        if advance.candidate is not None:
            fed = advance.candidate - self.world.declared.delay_ms
            self.watermark = max(self.watermark, fed)
        assert self.progress is not None
        after = event_time.after(self.progress, advance, seen, self.world.now_ms)
        due = {**self.pending, **rows}
        if advance.appends or advance.settles:
            if self.letters != shard.letters or self.position != (shard.upper, shard.bound):
                return  # another replica was first: void
            self._count(advance, after, letters)
        if advance.appends:
            now = {key: row for key, row in due.items() if row[1] < advance.upper}
            due = {key: row for key, row in due.items() if row[1] >= advance.upper}
            shard.rows.update(now.values())
        self.progress, self.pending = after, due

    def _count(self, advance: Advance, after: Progress, letters: list[int]) -> None:
        world, shard, generation = self.world, self.world.shard, self.heard.generation
        settled = {number: part.settled for number, part in after.items()}
        to_letters = binding.extended(shard.letters[1], generation, settled)
        _assert_grows(shard.letters[1], to_letters)
        shard.letters = max(shard.letters[0] + 1, advance.upper), to_letters
        shard.refused.update(letters)
        if not advance.appends:
            world.truth.settles(generation, advance.lower, settled, world.logs)
            return
        to = event_time.bound_by(shard.bound, after, self.heard)
        _assert_grows(shard.bound, to)
        reads = {number: part.read for number, part in after.items()}
        world.truth.appended(generation, advance.lower, advance.upper, reads, world.logs)
        shard.upper, shard.bound = advance.upper, to
        self.position = (shard.upper, to)


def _assert_grows(before: Mapping[int, int], after: Mapping[int, int]) -> None:
    assert all(after[key] >= number for key, number in before.items()), "rule 18"


def produce(world: World, rng: random.Random) -> None:
    """Add a message: mostly in order, sometimes early, late or undecodable."""
    draw, at = rng.random(), world.now_ms + rng.randrange(-30, 31)
    if draw < 0.15:
        at -= rng.randrange(500)
    elif draw < 0.3:
        at += rng.randrange(300)
    world.send(rng.randrange(PARTITIONS), BAD if rng.random() < world.bad_share else at)


def somewhere(world: World, rng: random.Random) -> dict[int, int]:
    """Offsets that a statement may name: earliest, latest, or of some partitions."""
    match rng.randrange(4):
        case 0:
            return {number: log.low for number, log in enumerate(world.logs)}
        case 1:
            return {number: len(log.messages) for number, log in enumerate(world.logs)}
        case _:
            return {
                number: rng.randint(log.low, len(log.messages))
                for number, log in enumerate(world.logs)
                if rng.random() < 0.4
            }
