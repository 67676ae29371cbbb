"""Random histories of event times: several replicas race, die, and the shard stays exact.

Tasks are a few lines here; the decisions are `streams.compute.event_time`. The model recomputes
everything from the topic and the Appends that counted: a message belongs to the Append whose
offsets contain it, and was late if its event time is below that Append's lower. Refused
messages may be settled before, by Appends of their own.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from streams.compute import binding, event_time, idleness
from streams.compute.binding import Fact
from streams.compute.description import BEGINNING
from streams.compute.event_time import Advance, Observed, Progress, Seen
from streams.compute.reclocking import Ends
from streams.plan.metadata import LateRows, Watermark

PARTITIONS = 3
BAD = None
"""The event time of a message that cannot be decoded."""

Message = tuple[int, int]
"""A partition and an offset."""


Placed = Counter[tuple[Message, int]]
"""Messages at their times in the shard."""


@dataclass
class Shard:
    """What counted: upper, binding, rows and refused messages by time; and the Appends.

    `letters` is the upper of refused messages, and how far they are settled.
    """

    upper: int = 0
    bound: Mapping[int, int] = field(default_factory=dict)
    rows: Placed = field(default_factory=Counter)
    refused: Placed = field(default_factory=Counter)
    letters: tuple[int, Mapping[int, int]] = (0, {})
    settlements: int = 0
    appends: list[tuple[int, Mapping[int, int], Mapping[int, int]]] = field(
        default_factory=list
    )


@dataclass
class World:
    declared: Watermark
    topic: list[list[int | None]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    shard: Shard = field(default_factory=Shard)
    now_ms: int = 0

    def ends(self) -> dict[int, Ends]:
        return {p: Ends(0, len(messages)) for p, messages in enumerate(self.topic)}


@dataclass
class Replica:
    """One replica: its progress, its pending rows, and the engine's watermark."""

    world: World
    position: tuple[int, Mapping[int, int]] | None = None
    progress: Progress | None = None
    pending: dict[Message, int] = field(default_factory=dict)
    watermark: int = 0
    planned: tuple[Advance, Seen, dict[Message, int], list[Message]] | None = None
    letters: tuple[int, Mapping[int, int]] = (0, {})

    def die(self) -> None:
        self.position = self.progress = self.planned = None
        self.pending, self.watermark = {}, 0

    def plan(self, budget: int) -> bool:
        world, shard = self.world, self.world.shard
        is_void = self.position != (shard.upper, shard.bound)
        if is_void:
            self.position, self.pending, self.progress = (shard.upper, shard.bound), {}, None
        self.letters = shard.letters
        self.progress = event_time.begin(
            self.progress, shard.bound, world.ends(), world.now_ms, settled=shard.letters[1]
        )
        if is_void:
            self.progress = idleness.as_left(
                self.progress, shard.bound, BEGINNING, shard.upper, world.declared
            )
        assert event_time.broken(self.progress, world.ends()) is None
        advance = event_time.next_advance(
            self.progress,
            shard.upper,
            Observed(
                topic=world.ends(),
                clock_ms=world.now_ms,
                watermark=self.watermark,
                budget=budget,
                may_settle=True,
            ),
            world.declared,
        )
        if advance is None:
            return False
        self.planned = (advance, *self._work(advance))
        return True

    def _work(self, advance: Advance) -> tuple[Seen, dict[Message, int], list[Message]]:
        rows, refused, greatest = dict[Message, int](), list[Message](), dict[int, int]()
        partitions, late, bad = set(), Counter[int](), Counter[int]()
        for ranges, kind in (
            (advance.fresh, "fresh"),
            (advance.again, "again"),
            (advance.owed, "owed"),
        ):
            for partition, (first, end) in ranges.items():
                for offset in range(first, end):
                    at = self.world.topic[partition][offset]
                    is_late = at is not BAD and at < advance.lower
                    late[partition] += is_late and kind == "fresh"
                    is_refused = at is BAD or (
                        is_late and self.world.declared.late_rows == "dead_letter"
                    )
                    is_open = offset >= self.letters[1].get(partition, 0)
                    bad[partition] += is_refused and kind == "fresh"
                    if is_refused and kind != "again" and is_open:
                        refused.append((partition, offset))
                        if kind == "fresh":
                            partitions.add(partition)
                    if at is BAD:
                        continue
                    if kind != "owed":
                        greatest[partition] = max(greatest.get(partition, at), at)
                    if (kind == "again" and is_late) or kind == "owed" or is_refused:
                        continue
                    rows[partition, offset] = max(at, advance.lower)
        skipped = Counter(partition for partition, _ in fresh_bad(self.world, advance))
        return Seen(greatest, tuple(partitions), late, skipped, bad), rows, refused

    def commit(self) -> None:
        """End the micro-batch; the engine has seen the candidate, whoever wins."""
        if self.planned is None:
            return
        (advance, seen, rows, refused), shard = self.planned, self.world.shard
        self.planned = None
        if advance.candidate is not None:
            fed = advance.candidate - self.world.declared.delay_ms
            self.watermark = max(self.watermark, fed)
        assert self.progress is not None
        after = event_time.after(self.progress, advance, seen, self.world.now_ms)
        due = {**self.pending, **rows}
        if (advance.appends or advance.settles) and self.letters != shard.letters:
            return  # another replica was first: void
        if advance.appends or advance.settles:
            reached = max(shard.letters[0] + 1, advance.upper)
            shard.letters = reached, {p: part.settled for p, part in after.items()}
            at = max(self.letters[0], advance.lower)
            shard.refused.update((message, at) for message in refused)
            shard.settlements += advance.settles
        if advance.appends:
            assert self.position == (shard.upper, shard.bound), "letters move with the source"
            now = {message: at for message, at in due.items() if at < advance.upper}
            due = {message: at for message, at in due.items() if at >= advance.upper}
            to = event_time.bound_by(shard.bound, after)
            assert all(to[key] >= number for key, number in shard.bound.items()), "rule 18"
            shard.appends.append((advance.lower, shard.bound, to))
            shard.rows.update(now.items())
            shard.upper, shard.bound = advance.upper, to
            self.position = (shard.upper, to)
        self.progress, self.pending = after, due


def fresh_bad(world: World, advance: Advance) -> list[Message]:
    """The messages that cannot be decoded among those that are read for the first time."""
    return [
        (partition, offset)
        for partition, (first, end) in advance.fresh.items()
        for offset in range(first, end)
        if world.topic[partition][offset] is BAD
    ]


def modelled_counts(world: World) -> tuple[int, int]:
    """How many rows were late and how many messages are bad, by the Appends' bounds."""
    late = bad = 0
    for lower, from_, to in world.shard.appends:
        begin, end = binding.offsets(from_, 0), binding.offsets(to, 0)
        for partition, stop in end.items():
            for at in world.topic[partition][begin.get(partition, 0) : stop]:
                bad += at is BAD
                late += at is not BAD and at < lower
    return late, bad


def modelled(world: World) -> tuple[Placed, Placed]:
    """The shard's rows, and refused messages at the upper by which they were judged.

    From the topic, the bounds of the Appends, and how far messages are settled beyond.
    """
    rows, refused, shard = Placed(), Placed(), world.shard
    settled = (shard.upper, shard.bound, {**binding.offsets(shard.bound, 0)})
    for partition, before in shard.letters[1].items():
        settled[2][partition] = max(before, settled[2].get(partition, 0))
    for lower, from_, to in (*shard.appends, settled):
        begin, end = binding.offsets(from_, 0), binding.offsets(to, 0)
        for partition, stop in end.items():
            for offset in range(begin.get(partition, 0), stop):
                at, message = world.topic[partition][offset], (partition, offset)
                late = at is not BAD and at < lower
                if at is BAD or (late and world.declared.late_rows == "dead_letter"):
                    refused[message, lower] += 1
                elif max(at, lower) < shard.upper:
                    rows[message, max(at, lower)] += 1
    return rows, refused


def check(world: World) -> None:
    rows, refused = modelled(world)
    assert world.shard.rows == rows
    judged = dict(refused.elements())
    assert sorted(message for message, _ in world.shard.refused.elements()) == sorted(judged)
    assert world.shard.upper <= world.shard.letters[0]
    for message, time in world.shard.refused:
        assert judged[message] <= time < world.shard.letters[0]
    counts = [binding.total(world.shard.bound, fact) for fact in (Fact.LATE, Fact.SKIPPED)]
    assert tuple(counts) == modelled_counts(world)


def produce(world: World, generator: random.Random) -> None:
    """Add a message: mostly in order, sometimes early, late or undecodable."""
    partition = generator.randrange(PARTITIONS)
    draw = generator.random()
    at = world.now_ms + generator.randrange(-30, 31)
    if draw < 0.1:
        at -= generator.randrange(500)
    elif draw < 0.15:
        at += generator.randrange(300)
    world.topic[partition].append(BAD if draw > 0.93 else at)


@pytest.mark.parametrize("late_rows", ["place", "dead_letter"])
@pytest.mark.parametrize("seed", range(60))
def test_that_racing_replicas_are_exact_at_every_event_time(
    seed: int, late_rows: LateRows
) -> None:
    generator = random.Random(seed)
    declared = Watermark(
        column="ts", delay_ms=20, late_rows=late_rows, idle_ms=100, ahead_ms=10**9
    )
    world = World(declared)
    replicas = [Replica(world) for _ in range(1 + seed % 3)]
    for _ in range(400):
        world.now_ms += generator.randrange(10)
        replica = generator.choice(replicas)
        match generator.randrange(10):
            case 0 | 1 | 2 | 3:
                produce(world, generator)
            case 4 | 5 | 6:
                if replica.planned is None:
                    replica.plan(generator.choice([1, 3, 100]))
            case 7 | 8:
                replica.commit()
                check(world)
            case _ if generator.random() < 0.2:
                replica.die()
            case _:
                pass
    last = settle(world, replicas)
    refused = {message for message, _ in world.shard.refused}
    bad = {
        (partition, offset)
        for partition, messages in enumerate(world.topic)
        for offset, at in enumerate(messages)
        if at is BAD
    }
    assert bad <= refused, "none waits for upper"
    latest = max(at for messages in world.topic for at in messages if at is not None)
    assert world.shard.upper == max(latest - declared.delay_ms, last)
    bound = binding.offsets(world.shard.bound, 0)
    released = binding.facts(world.shard.bound, 0, binding.Fact.RELEASED)
    assert all(released[partition] <= bound[partition] for partition in bound)


def test_that_no_row_in_order_is_late_when_a_replica_lost_after_reading_far_ahead() -> None:
    """The engine's watermark is then of messages that it has yet to read again."""
    declared = Watermark(
        column="ts", delay_ms=5, late_rows="dead_letter", idle_ms=100, ahead_ms=10**9
    )
    world = World(declared, topic=[[1_000 + n for n in range(100)], [], []])
    ahead, other = Replica(world), Replica(world)
    for _ in range(2):  # nobody knows yet that the other partitions are idle
        assert ahead.plan(50)
        ahead.commit()
    assert other.plan(10)
    other.commit()
    world.now_ms += 200
    assert ahead.plan(50)  # it would append up to the watermark of all messages
    assert other.plan(10)
    other.commit()
    ahead.commit()
    assert world.shard.upper == 1_004
    assert ahead.watermark == 1_094
    for latest in (1_099, 1_200):
        while ahead.plan(10):
            ahead.commit()
            check(world)
        world.now_ms += 200  # the others are idle again
        while ahead.plan(10):
            ahead.commit()
            check(world)
        assert world.shard.upper == latest - declared.delay_ms
        world.topic[0].append(1_200)
    assert modelled_counts(world) == (0, 0)


def test_that_refused_messages_are_settled_without_any_row() -> None:
    """Once, while upper and the binding stay, also by a replica that starts anew."""
    declared = Watermark(
        column="ts", delay_ms=5, late_rows="dead_letter", idle_ms=100, ahead_ms=10**9
    )
    world = World(declared, topic=[[BAD, BAD], [], [BAD]])
    for round_ in range(3):
        replica = Replica(world)
        for _ in range(5):
            world.now_ms += event_time.SETTLE_MS
            if replica.plan(50):
                replica.commit()
        check(world)
        assert (world.shard.upper, world.shard.bound) == (0, {})
        assert len(world.shard.refused) == 3 + round_
        assert world.shard.settlements == 1 + round_
        world.topic[1].append(BAD)


def test_that_a_replica_that_has_read_less_than_is_settled_loses_no_row() -> None:
    """The last row is not late where it was settled, and would be after an Append before it."""
    declared = Watermark(
        column="ts", delay_ms=5, late_rows="dead_letter", idle_ms=2_000, ahead_ms=10**9
    )
    world = World(declared, topic=[[BAD, 100, 30], [], []])
    ahead, behind = Replica(world), Replica(world)
    assert ahead.plan(50)
    ahead.commit()
    world.now_ms += event_time.SETTLE_MS
    assert ahead.plan(50)
    ahead.commit()
    assert world.shard.letters == (1, {0: 3, 1: 0, 2: 0})
    for _ in range(60):
        if behind.plan(2):
            behind.commit()
            check(world)
        world.now_ms += 101
    assert world.shard.upper == 95
    assert world.shard.rows == {((0, 2), 30): 1}


def test_that_refused_messages_wait_where_they_may_not_be_settled() -> None:
    topic = {0: Ends(0, 3)}
    progress = event_time.begin(None, {}, topic, now_ms=0)
    advance = Advance(lower=0, upper=0, fresh={0: (0, 3)})
    seen = Seen(refused=(0,), bad={0: 2})
    progress = event_time.after(progress, advance, seen, now_ms=10)
    declared = Watermark(
        column="ts", delay_ms=5, late_rows="place", idle_ms=100, ahead_ms=10**9
    )
    later = 10 + event_time.SETTLE_MS
    observed = Observed(topic=topic, clock_ms=later, watermark=0, budget=9)
    assert event_time.next_advance(progress, 0, observed, declared) is None
    assert event_time.waiting(progress, later - 1) == 0
    assert event_time.waiting(progress, later) == 2
    state = event_time.begin(progress, {}, topic, now_ms=later, settled={0: 2})
    assert state[0].owed == (2, 3)
    assert event_time.begin(state, {}, topic, later, settled={0: 3})[0].owed is None


def test_a_source_that_has_read_nothing_begins_with_what_is_held() -> None:
    """Retention may go on before the first message is read; then nothing is missing."""
    unread = event_time.begin(None, {}, {0: Ends(0, 5)}, 7)
    ends = {0: Ends(3, 5)}
    begun = event_time.begin(unread, {}, ends, 8)
    assert begun[0].read == 3
    assert event_time.broken(begun, ends) is None
    again = Advance(lower=0, upper=0, fresh={0: (3, 4)})
    read = event_time.after(begun, again, Seen({0: 1_000}), 9)
    later = event_time.begin(read, {}, {0: Ends(5, 6)}, 10)
    assert event_time.broken(later, {0: Ends(5, 6)}) is not None, "its rows are pending"


def settle(world: World, replicas: list[Replica]) -> int:
    """Let one replica do all there is, with all partitions idle; return upper before."""
    before = world.shard.upper
    survivor = replicas[0]
    survivor.die()
    for _ in range(300):
        world.now_ms += 101
        if not survivor.plan(50):
            break
        survivor.commit()
        check(world)
    else:
        raise AssertionError("it does not settle")
    return before


def test_that_everything_is_released_once_upper_has_passed_it() -> None:
    declared = Watermark(
        column="ts", delay_ms=10, late_rows="place", idle_ms=100, ahead_ms=10**9
    )
    world = World(declared, topic=[[100, 300, 200], [150], [400]])
    settle(world, [Replica(world)])
    assert world.shard.upper == 390
    released = binding.facts(world.shard.bound, 0, binding.Fact.RELEASED)
    assert released == {0: 3, 1: 1, 2: 0}
    assert binding.facts(world.shard.bound, 0, binding.Fact.EVENT_TIME) == {
        0: 300,
        1: 150,
        2: 400,
    }


def test_that_many_stretches_are_merged_without_releasing_early() -> None:
    topic = {0: Ends(0, 1_000)}
    progress = event_time.begin(None, {}, topic, now_ms=0)
    for offset in range(1_000):
        advance = Advance(lower=0, upper=0, fresh={0: (offset, offset + 1)})
        progress = event_time.after(progress, advance, Seen({0: offset}), now_ms=0)
    assert len(progress[0].stretches) <= event_time.MOST_STRETCHES
    appended = event_time.after(progress, Advance(lower=0, upper=500), Seen({}), now_ms=0)
    assert 0 < appended[0].released <= 500
    assert appended[0].stretches[0].greatest >= 500


def test_that_a_topic_that_lost_pending_messages_is_broken() -> None:
    bound = binding.extended({}, 0, {0: 10})
    bound = binding.extended(bound, 0, {0: 4}, binding.Fact.RELEASED)
    topic = {0: Ends(6, 12)}
    broken = event_time.broken(event_time.begin(None, bound, topic, 0), topic)
    assert broken is not None
    assert broken.expected == 4
