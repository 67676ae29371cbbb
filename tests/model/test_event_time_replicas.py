"""Replicas that read by event time: exact at every event time, through races and kills."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streams.compute import binding
from streams.compute.binding import Fact
from streams.ids import CollectionId
from streams.plan.metadata import LateRows, OnError, Watermark
from streams.replica.config import Budgets
from tests.support import duckdb_oracle
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

COLUMNS = (("id", "BIGINT"), ("ts", "TIMESTAMP"))
EVENTS = CollectionId("events")
PARTITIONS = 3
AHEAD_MS = 5_000

Placed = Counter[tuple[int, int]]
"""How often a message is there, by its number, and at which time."""


def declared(late_rows: LateRows = "place") -> Watermark:
    return Watermark(
        column="ts", delay_ms=50, late_rows=late_rows, idle_ms=1_000, ahead_ms=AHEAD_MS
    )


class History:
    """A topic with event times, and the Appends that counted: their lower and offsets."""

    def __init__(self, world: World, late_rows: LateRows, on_error: OnError) -> None:
        self.world, self.late_rows = world, late_rows
        self.topic = world.raw("raw", PARTITIONS)
        self.messages: list[list[tuple[int, int | None]]] = [[] for _ in range(PARTITIONS)]
        self.states: list[tuple[int, Mapping[int, int]]] = [(0, {})]
        self.sent = 0
        world.source(
            "events", COLUMNS, self.topic, on_error=on_error, watermark=declared(late_rows)
        )

    def send(self, partition: int, at: int | None) -> None:
        """Send a message with an event time; None: it has none. Too early ones are bad."""
        moment = (
            None if at is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at)
        )
        text = None if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        value = json.dumps({"id": self.sent, "ts": text}).encode()
        self.world.send(self.topic, partition, None, value)
        is_bad = at is None or at > self.world.now + AHEAD_MS
        self.messages[partition].append((self.sent, None if is_bad else at))
        self.sent += 1

    def look(self) -> None:
        """Hear of the Append that may have counted since the last look: of one at most."""
        self.world.shards.sync()
        state = self.world.shards.state(EVENTS)
        if state.upper.time != self.states[-1][0]:
            self.states.append((state.upper.time, dict(state.source or {})))

    def expected(self) -> tuple[Placed, Placed]:
        """Rows and dead letters, from the topic and the offsets of each Append."""
        rows, letters = Placed(), Placed()
        upper = self.states[-1][0]
        for (lower, from_), (_, to) in zip(self.states, self.states[1:], strict=False):
            begin = binding.offsets(from_, 0)
            for partition, stop in binding.offsets(to, 0).items():
                for number, at in self.messages[partition][begin.get(partition, 0) : stop]:
                    is_late = at is not None and at < lower
                    if at is None or (is_late and self.late_rows == "dead_letter"):
                        letters[number, lower] += 1
                    elif max(at, lower) < upper:
                        rows[number, max(at, lower)] += 1
        return rows, letters

    def counts(self) -> tuple[int, int]:
        """How many rows were late and how many messages are bad, by the Appends' offsets."""
        late = bad = 0
        for (lower, from_), (_, to) in zip(self.states, self.states[1:], strict=False):
            begin = binding.offsets(from_, 0)
            for partition, stop in binding.offsets(to, 0).items():
                for _, at in self.messages[partition][begin.get(partition, 0) : stop]:
                    bad += at is None
                    late += at is not None and at < lower
        return late, bad

    def bound(self, fact: Fact) -> int:
        """A count that the shard has."""
        return binding.total(self.states[-1][1], fact)

    def judge(self) -> None:
        """Compare the collections, at all times below upper."""
        assert self.bound(Fact.LATE) == self.counts()[0]
        rows, errors = duckdb_oracle.updates(self.world.shards, self.world.relations["events"])
        letters, _ = duckdb_oracle.updates(
            self.world.shards, self.world.relations["events.errors"]
        )
        wanted_rows, wanted_letters = self.expected()
        assert not errors.num_rows
        assert set(rows["_diff"].to_pylist()) <= {1}
        found = Counter(zip(rows["id"].to_pylist(), rows["_time"].to_pylist(), strict=True))
        assert found == wanted_rows
        sent = [
            (json.loads(value)["id"], time)
            for value, time in zip(
                letters["value"].to_pylist(), letters["_time"].to_pylist(), strict=True
            )
        ]
        assert Counter(sent) == wanted_letters
        assert self.world.upper("events") == self.world.upper("events.errors")

    def step(self, replica: Replica) -> bool:
        """Step each lane once; return whether one of them had work."""
        replica.start()
        busy = []
        for lane in replica.lanes():
            busy.append(replica.step(lane))
            self.look()
        return any(busy)

    def settle(self, replica: Replica) -> None:
        """Let a replica do all there is, with every partition idle."""
        replica.follow()
        quiet = 0
        for _ in range(60):
            self.world.now += 1_500
            quiet = 0 if self.step(replica) else quiet + 1
            if quiet > 2:
                return
        raise AssertionError(
            {f.id: (f.phase, f.trouble) for f in replica.scheduler.flows.values()}
        )


@pytest.mark.parametrize("late_rows", ["place", "dead_letter"])
@pytest.mark.parametrize("seed", SEEDS)
def test_that_racing_replicas_are_exact_at_every_event_time(
    seed: int, late_rows: LateRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world, late_rows, "dead_letter")

    def outside(_: int, act: float) -> None:
        history.look()
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            at: int | None = world.now + rng.randrange(-100, 100)
            if rng.random() < 0.2:
                at = rng.choice([None, world.now - 2_000, world.now + 900, world.now + 10**6])
            history.send(rng.randrange(PARTITIONS), at)

    replicas = race_at_random(world, rng, tmp_path, 150, outside)
    history.look()
    for replica in replicas:
        history.settle(replica)
    good = [at for messages in history.messages for _, at in messages if at is not None]
    assert len(history.states) > 2, "it hardly moved"
    assert world.upper("events") >= max(good) - 50
    history.judge()


@pytest.mark.parametrize("seed", SEEDS)
def test_that_racing_replicas_count_late_and_skipped_messages_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world, "place", "skip")

    def outside(_: int, act: float) -> None:
        history.look()
        assert (history.bound(Fact.LATE), history.bound(Fact.SKIPPED)) == history.counts()
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            at: int | None = world.now + rng.randrange(-100, 100)
            if rng.random() < 0.3:
                at = rng.choice([None, world.now - 150_000, world.now + 10**6])
            history.send(rng.randrange(PARTITIONS), at)

    for _ in range(2):  # in the second race upper is there from the first one
        for replica in race_at_random(world, rng, tmp_path, 100, outside):
            history.settle(replica)
    late, bad = history.counts()
    assert late, "none was late"
    assert bad == sum(at is None for messages in history.messages for _, at in messages)
    assert (history.bound(Fact.LATE), history.bound(Fact.SKIPPED)) == (late, bad)


def test_that_a_view_over_event_time_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    query = "SELECT count(*) AS n, max(id) AS latest FROM events"
    world.view("v", query, as_of=0)
    replica = Replica(world, "r", tmp_path, Budgets(messages=4))
    for number in range(30):
        history.send(number % PARTITIONS, world.now + 10 * number)
    history.settle(replica)
    upper = world.upper("v")
    assert upper == world.upper("events") == 1_000_000 + 290 - 50
    inputs, _ = duckdb_oracle.updates(world.shards, world.relations["events"])
    output, _ = duckdb_oracle.updates(world.shards, world.relations["v"])
    assert duckdb_oracle.judge(query, output, {"events": inputs}, (0, upper)) > 1
    history.judge()


@pytest.mark.parametrize(
    ("late_rows", "on_error", "at"), [("fail", "dead_letter", 1_000), ("place", "fail", None)]
)
def test_that_a_source_stops_before_a_message(
    late_rows: LateRows,
    on_error: OnError,
    at: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.patch(monkeypatch)
    history = History(world, late_rows, on_error)
    replica = Replica(world, "r", tmp_path)
    for partition in range(PARTITIONS):
        history.send(partition, world.now)
    history.settle(replica)
    upper = world.upper("events")
    assert upper == 1_000_000 - 50
    history.send(1, upper + 1_000)
    history.send(1, at)
    history.send(1, upper + 9_000)
    replica.follow()
    for _ in range(20):
        world.now += 40_000
        history.step(replica)
    trouble = replica.scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert "partition 1, offset 2" in trouble.message
    assert binding.offsets(history.states[-1][1], 0).get(1, 0) <= 2


def test_that_a_source_whose_pending_messages_are_gone_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    for at in (0, 500, 400, 600):
        history.send(0, world.now + at)
    history.settle(Replica(world, "r", tmp_path / "r", Budgets(messages=1)))
    released = binding.facts(history.states[-1][1], 0, binding.Fact.RELEASED)
    assert released[0] == 3
    world.broker.store.partition(history.topic, 0).low = 4
    replica = Replica(world, "other", tmp_path / "other")
    replica.follow()
    for _ in range(4):
        history.step(replica)
    trouble = replica.scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert "offset 3 on are pending" in trouble.message


def test_that_no_partition_is_idle_by_ends_of_an_earlier_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker answered, or the process was stopped: nobody knows what has come since."""
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    replica = Replica(world, "r", tmp_path)
    for partition, at in enumerate((0, 700, 400)):
        history.send(partition, world.now + at)
    replica.follow()

    def steps() -> int:
        for _ in range(12):
            world.now += 40
            history.step(replica)
        return world.upper("events")

    assert steps() == 1_000_000 - 50
    replica.asked_ms, world.now = world.now, world.now + 40_000
    assert steps() == 1_000_000 - 50
    replica.asked_ms = None
    assert steps() == 1_000_000 + 700 - 50
