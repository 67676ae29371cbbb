"""Reads at or beyond since never change, whoever compacts, reads, writes and dies meanwhile.

A random schedule of single steps over one broker in memory: a writer that appends, two
compactors with clients of their own whose steps are cut wherever they touch the broker, readers
in the middle of a snapshot, holds that move, collectors with a floor as high as it goes. After
every step, and by every reader, contents are compared with a model that knows only updates.
"""

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams.compaction import plan
from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Compacted, Worker
from streams.compaction.merge_task import Limits
from streams.ids import CapabilityId, Timestamp, Topic
from streams.kafka.log import ChunkRecord, ChunkRef, Chunks, ChunkWrite
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.log.events import Acquire, Append, Downgrade, Drop, Part, Right
from streams.storage.log.outcomes import Acquired, Appended, ChunksReclaimed
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import Kernel
from tests.model.collection import Contents, Update, contents
from tests.support.examples import examples
from tests.support.shard_clients import DESCRIPTION, U1, broker

KERNEL = Kernel()
HOLD = CapabilityId("u1.catalog")
NAMES = "abcdefgh"


class Cut:
    """A broker's chunks; before each call other parties may take their steps."""

    def __init__(self, inner: Chunks, interrupt: Callable[[], None]) -> None:
        self.inner, self.interrupt = inner, interrupt

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        self.interrupt()
        refs = self.inner.write(topic, bodies, headers)
        self.interrupt()
        return refs

    def write_all(self, chunks: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        return [self.write(*write) for write in chunks]

    def fetch(self, topic, refs):
        self.interrupt()
        return self.inner.fetch(topic, refs)

    def fetch_all(self, refs):
        self.interrupt()
        return self.inner.fetch_all(refs)

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        return self.inner.fetch_committed(topic, refs)

    def forget(self, topic, refs):
        self.interrupt()
        self.inner.forget(topic, refs)


class Dead(Exception):
    """A compactor was killed."""


@dataclass
class World:
    """Everybody at one collection. `depth` is how many parties are in the middle of a step."""

    seed: int
    rng: random.Random = field(init=False)
    made: MemoryBroker = field(default_factory=broker)
    updates: list[Update] = field(default_factory=list)
    depth: int = 0
    compacted: int = 0
    read: int = 0
    passed: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.writer = self.client()
        self.writer.create("u1", U1, DESCRIPTION, Timestamp(0), read=HOLD)
        self.others = [self.client() for _ in range(3)]
        for other in self.others:
            other.open("u1")
        self.passing = self.client()
        self.passing.chunks = Cut(self.made.chunks, self.dawdle)
        self.passing.open("u1")
        self.readers = itertools.count()

    def client(self) -> Shards:
        one = Shards(self.made.logs, self.made.chunks, self.made.topics, now_ms=lambda: 0)
        one.chunks = Cut(self.made.chunks, self.interrupt)
        return one

    def interrupt(self) -> None:
        """Let somebody else go on, two levels deep at most."""
        if self.depth and self.depth < 3 and self.rng.random() < 0.3:
            self.step()

    def dawdle(self) -> None:
        """Let others go on for so long that what is being read may be gone."""
        if self.depth == 1:
            for _ in range(self.rng.choice([0, 10])):
                self.step()

    def step(self) -> None:
        """One step of one party."""
        self.depth += 1
        try:
            what = [self.append, self.append, self.compact, self.compact, self.reader]
            self.rng.choice([*what, self.passer_by, self.allow, self.collect])()
        finally:
            self.depth -= 1

    def append(self) -> None:
        """Insert and retract rows over a few times; written again when it was reclaimed."""
        self.writer.sync(U1)
        lower = self.writer.state(U1).upper.time
        upper = lower + self.rng.choice([1, 1, 3])
        rows: list[Update] = []
        for _ in range(self.rng.choice([0, 1, 3])):
            row = (self.rng.choice(NAMES), self.rng.randint(0, 1))
            rows.append((row, self.rng.randrange(lower, upper), self.rng.choice([1, 1, -1])))
        while True:
            part = Part(
                collection=U1,
                capability=write_capability(U1),
                lower=frontier(lower),
                upper=frontier(upper),
                chunks=self.writer.write(U1, table(rows)),
            )
            [outcome] = self.writer.submit([("u1", Append((part,)))])
            if isinstance(outcome, Appended):
                self.updates += rows
                return
            if not isinstance(outcome, ChunksReclaimed):
                return  # another append of ours, in the middle of this one, was faster

    def compact(self) -> None:
        """Merge something, or die on the way."""
        one = self.rng.choice(self.others[:2])
        if self.rng.random() < 0.8:
            one.sync(U1)
        planned = self.rng.choice([plan.geometric, plan.whole])(one.state(U1))
        if not planned:
            return
        limits = Limits(self.rng.choice([1 << 30, 800]), self.rng.choice([1 << 30, 600]))
        dies = self.rng.random() < 0.2
        shards: Any = Dying(one, self.rng.randint(0, 3)) if dies else one
        worker = Worker(shards, KERNEL, self.new_id, None, limits)
        try:
            result = worker.compact(U1, self.rng.choice(planned))
        except Dead:
            return
        self.compacted += isinstance(result, Compacted)

    def new_id(self) -> str:
        return uuid.UUID(int=self.rng.getrandbits(128)).hex

    def reader(self) -> None:
        """Hold a time, with a plan; read it, whatever happens in between."""
        one = self.others[2]
        one.sync(U1)
        hold = CapabilityId(f"reader-{next(self.readers)}")
        plan_ = one.group_state("u1").upto
        event = Acquire(collection=U1, capability=hold, right=Right.READ, plan=plan_)
        [outcome] = one.submit([("u1", event)])
        assert isinstance(outcome, Acquired)
        first, last = outcome.frontier.time, one.state(U1).upper.time - 1
        if first <= last:
            as_of = self.rng.randint(first, last)
            pieces = read.snapshot_pieces(one.state(U1), Timestamp(as_of))
            updates, _ = read.load(one.chunks, one.data_topic(U1), pieces)
            assert sums(updates) == contents(self.updates, as_of)
            self.read += 1
        one.submit([("u1", Drop(U1, hold))])

    def passer_by(self) -> None:
        """Read a time that nobody holds: the right answer, or none."""
        one = self.passing
        one.sync(U1)
        state = one.state(U1)
        if self.depth > 1 or state.since == state.upper:
            return
        as_of = Timestamp(self.rng.randrange(state.since.time, state.upper.time))
        try:
            updates, _ = read.snapshot(one, U1, as_of)
        except read.SinceViolation:
            self.passed += 1
            return
        assert sums(updates) == contents(self.updates, as_of), f"seed {self.seed} at {as_of}"

    def allow(self) -> None:
        """Move since."""
        self.writer.sync(U1)
        state = self.writer.state(U1)
        if state.since.time < state.upper.time - 1:
            to = self.rng.randint(state.since.time, state.upper.time - 1)
            body = Downgrade(collection=U1, capability=HOLD, frontier=frontier(to))
            self.writer.submit([("u1", body)])

    def collect(self) -> None:
        """Reclaim all that nothing names."""
        one = self.rng.choice(self.others[:2])
        collector = Collector(one, MemoryRawReader(self.made.store), lambda: 0)
        if self.rng.random() < 0.5:
            collector.collect("u1")
        else:
            collector.reclaim("u1", collector.ends("u1"))

    def check(self) -> None:
        """Every readable time, as somebody sees it who begins now."""
        one = self.client()
        one.open("u1")
        state = one.state(U1)
        for time in range(state.since.time, state.upper.time):
            updates, _ = read.snapshot(one, U1, Timestamp(time))
            assert sums(updates) == contents(self.updates, time), f"seed {self.seed} at {time}"
        one.close()


class Dying:
    """A client that is killed at a certain use of the broker."""

    def __init__(self, inner: Shards, writes_left: int) -> None:
        self._inner, self._left = inner, writes_left
        self.chunks = Cut(inner.chunks, self.count)

    def count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Dead

    def __getattr__(self, name: str):
        if name == "submit":
            return self._submit
        return getattr(self._inner, name)

    def _submit(self, events):
        self.count()
        outcomes = self._inner.submit(events)
        self.count()
        return outcomes


def table(rows: list[Update]) -> pa.Table:
    return pa.table(
        {
            "c0": pa.array([row[0] for row, _, _ in rows], pa.utf8()),
            "c1": pa.array([row[1] for row, _, _ in rows], pa.int32()),
            "time": pa.array([time for _, time, _ in rows], pa.int64()),
            "diff": pa.array([diff for _, _, diff in rows], pa.int64()),
        }
    )


def sums(updates: pa.Table) -> Contents:
    total: Contents = Counter()
    for row in updates.to_pylist():
        if row:
            total[row["c0"], row["c1"]] += row["diff"]
    return Counter({row: count for row, count in total.items() if count})


@examples(25)
@given(st.integers(0, 1 << 32))
def test_reads_at_or_beyond_since_never_change(seed: int) -> None:
    world = World(seed)
    for _ in range(30):
        world.step()
    world.check()


def test_the_schedules_do_what_they_are_for() -> None:
    worlds = [World(seed) for seed in range(8)]
    for world in worlds:
        for _ in range(30):
            world.step()
            world.check()
    assert sum(world.compacted for world in worlds) > 5
    assert sum(world.read for world in worlds) > 5
    assert sum(world.passed for world in worlds) > 0
