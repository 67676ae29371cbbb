"""Replicas that read by event time: exact at every event time, through races and kills."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from streams.compute import binding, stalls
from streams.compute.binding import Fact
from streams.compute.stalls import bad_message
from streams.plan.metadata import LateRows, OnError
from streams.progress import frontier
from streams.replica.config import Budgets
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.status_reports import condition
from tests.support import duckdb_oracle
from tests.support.event_histories import (
    EVENTS,
    PARTITIONS,
    History,
    Placed,
    declared,
    spelled,
)
from tests.support.keyed_event_histories import KeyedHistory
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World


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

    replicas = race_at_random(world, rng, tmp_path, 250, outside)
    history.look()
    for replica in replicas:
        history.settle(replica)
    good = [at for messages in history.messages for _, at in messages if at is not None]
    bad = sum(at is None for messages in history.messages for _, at in messages)
    _, letters = history.expected()
    assert letters.total() >= bad, "none waits"
    assert len(history.states) > 2, "it hardly moved"
    assert world.upper("events") >= max(good) - 50
    history.judge()


def test_that_a_replica_that_stands_by_follows_its_sources_and_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    owner, other = (Replica(world, name, tmp_path / name) for name in "ab")
    other.scheduler.own(is_owner=False, obstacle="")

    def send(first: int) -> None:
        for number in range(first, first + 30):
            history.send(number % PARTITIONS, None if number % 7 == 0 else world.now + number)
        world.now += 1_000

    send(0)
    history.settle(owner)
    history.settle(other)
    send(100)
    upper = world.upper("events")
    history.settle(other)
    assert world.upper("events") == upper, "it appended"
    history.settle(owner)
    history.settle(other)
    flow = other.scheduler.flows[EVENTS]
    assert flow.own is not None
    assert flow.own.frontier == frontier(world.upper("events"))
    assert world.upper("events") > upper
    other.scheduler.own(is_owner=True, obstacle="")
    send(200)
    upper = world.upper("events")
    history.settle(other)
    assert world.upper("events") > upper
    history.judge()


@pytest.mark.parametrize("seed", SEEDS)
def test_that_dead_letters_do_not_wait_for_rows(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but bad messages comes, before the first watermark and after it."""
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world, "dead_letter", "dead_letter")
    for upper in (0, 1_000_000 - 50):

        def outside(_: int, act: float) -> None:
            world.now += rng.choice([0, 0, 700])
            for _ in range(rng.randrange(3) if act > 0.6 else 0):
                history.send(rng.randrange(PARTITIONS), None)

        for replica in race_at_random(world, rng, tmp_path, 60, outside):
            history.settle(replica)
        assert world.upper("events") == upper
        _, letters = history.expected()
        assert letters.total() == history.sent - (3 if upper else 0)
        history.judge()
        if not upper:
            for partition in range(PARTITIONS):
                history.send(partition, 1_000_000)
            history.settle(Replica(world, "last", tmp_path / "last"))


@pytest.mark.parametrize(
    ("on_error", "count"), [("inline", 2), ("skip", 2), ("dead_letter", 0)]
)
def test_that_refused_messages_that_wait_are_counted(
    on_error: OnError, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", on_error)
    replica = Replica(world, "r", tmp_path)
    for partition in (0, 2):
        history.send(partition, None)
    history.settle(replica)
    flow = replica.scheduler.flows[EVENTS]
    progress = condition(flow, 0, Skew(), elapsed_ms=world.now).progress
    assert progress == (f"{count} refused messages wait for upper" if count else "")


def test_that_partitions_that_hold_the_watermark_back_are_named_until_they_are_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    idle_ms = 20_000
    world.alter("events", watermark=replace(declared(), idle_ms=idle_ms))
    replica = Replica(world, "r", tmp_path)
    replica.follow()

    def said() -> str:
        world.now += 1_000
        history.send(0, world.now)
        history.send(2, None)
        history.step(replica)
        flow = replica.scheduler.flows[EVENTS]
        return condition(flow, 0, Skew(), elapsed_ms=world.now).progress

    assert "watermark" not in said()
    texts = {said() for _ in range(idle_ms // 1_000 - 2)}
    assert any(text.endswith("partitions 1, 2 hold the watermark back") for text in texts)
    assert world.upper("events") == 0
    texts = {said() for _ in range(10)}
    assert any("watermark" not in text for text in texts)
    assert world.upper("events") > 0
    assert "watermark" not in said()


def judged_errors(history: History) -> Placed:
    """Bad messages at the lower of the Append that binds them."""
    judged = Placed()
    for (lower, from_), (_, to) in pairwise(history.states):
        begin = binding.offsets(from_, 0)
        for partition, stop in binding.offsets(to, 0).items():
            for number, at in history.messages[partition][begin.get(partition, 0) : stop]:
                judged[number, lower] += at is None
    return +judged


@pytest.mark.parametrize("seed", SEEDS)
def test_that_an_error_comes_once_at_the_upper_by_which_it_was_judged(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a read at a final time has answered, it answers for ever (D317)."""
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world, "place", "inline")
    source = world.descriptions[0].source
    assert source is not None

    def outside(_: int, act: float) -> None:
        history.look()
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            at = None if rng.random() < 0.3 else world.now + rng.randrange(-100, 100)
            history.send(rng.randrange(PARTITIONS), at)

    for _ in range(3):  # upper hardly moves in a race, and when it has settled
        for replica in race_at_random(world, rng, tmp_path, 80, outside):
            history.settle(replica)
    _, errors = duckdb_oracle.updates(world.shards, world.relations["events"])
    placed = Placed()
    for row in errors.to_pylist():
        place = bad_message(source, row["error"])
        assert place is not None
        partition, offset = place
        placed[history.messages[partition][offset][0], row["time"]] += row["diff"]
    assert placed == judged_errors(history)
    assert len({time for _, time in placed}) > 2, "few Appends had errors"


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


@pytest.mark.parametrize("keyed", [False, True], ids=["none", "upsert"])
def test_that_pending_rows_that_the_topic_lost_are_read_again(
    *, keyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end went back to what is bound, and beyond what was read: nothing says so later."""
    world = World()
    world.patch(monkeypatch)
    history = (
        KeyedHistory(world, "place", "value") if keyed else History(world, "place", "fail")
    )
    replica, now = Replica(world, "r", tmp_path), world.now

    def send(*times: int) -> None:
        for at in times:
            value = json.dumps({"id": at, "ts": spelled(at)}).encode()
            world.send(history.topic, 0, json.dumps(str(at)).encode(), value)

    send(now, now + 100)
    history.settle(replica)
    bound = binding.offsets(world.shards.state(EVENTS).source or {}, 0)
    assert bound[0] == 2
    send(now + 60, now + 70)
    history.settle(replica)
    assert binding.offsets(world.shards.state(EVENTS).source or {}, 0) == bound
    partition = world.broker.store.partition(history.topic, 0)
    del partition.records[2:]
    partition.end = 2
    world.lost = {history.topic: {0: 2}}
    send(now + 80, now + 90, now + 1_000)
    history.settle(replica)
    world.shards.sync()
    rows, _ = duckdb_oracle.updates(world.shards, world.relations["events"])
    ids = {row["id"] for row in rows.to_pylist() if row["_diff"] > 0}
    assert ids == {now, now + 80, now + 90, now + 100}


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "after a restart"])
def test_that_a_source_whose_settled_dead_letters_the_topic_lost_says_so(
    *, is_seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or upper would stand without a word until the topic is as long as it was."""
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    replica = Replica(world, "r", tmp_path / "r")
    history.send(0, world.now)
    history.settle(replica)
    for _ in range(4):
        history.send(0, None)
    history.settle(replica)
    assert binding.offsets(world.shards.state(EVENTS).source or {}, 0)[0] == 1
    lose_end(world, history, 2)
    if is_seen:
        world.lost = {history.topic: {0: 2}}
    else:
        replica = Replica(world, "again", tmp_path / "again")
        monkeypatch.setattr(stalls, "SETTLED", 0)
    history.send(0, world.now + 2_000)
    history.settle(replica)
    trouble = replica.scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert trouble.message.startswith('topic "raw"')
    said = "(from offset 2 on)" if is_seen else "expected to reach offset 5, actual an end at 3"
    assert said in trouble.message


def test_that_a_source_reads_on_after_its_topic_lost_what_nobody_had_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it binds behind the lost end, it has read since."""
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    replica = Replica(world, "r", tmp_path)
    for at in (0, 100):
        history.send(0, world.now + at)
    history.settle(replica)
    lose_end(world, history, 2)
    world.lost = {history.topic: {0: 2}}
    for later in (200, 1_000, None, 3_000):
        history.send(0, None if later is None else world.now + later)
        history.settle(replica)
    assert replica.scheduler.flows[EVENTS].trouble is None
    history.judge()


def lose_end(world: World, history: History, end: int) -> None:
    """The first partition loses what is behind an offset."""
    partition = world.broker.store.partition(history.topic, 0)
    del partition.records[end:]
    partition.end = end
    del history.messages[0][end:]


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


@pytest.mark.parametrize("by_ms", [40_000, -40_000])
def test_that_a_clock_that_is_set_makes_no_partition_idle_or_busy(
    by_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ahead, the rows of a partition would be late; back, upper would stand so long (D341)."""
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    replica = Replica(world, "r", tmp_path)
    for partition, at in enumerate((0, 700, 400)):
        history.send(partition, world.now + at)
    replica.follow()

    def steps(step_ms: int) -> int:
        for _ in range(12):
            world.now += step_ms
            history.step(replica)
        return world.upper("events")

    assert steps(40) == 1_000_000 - 50
    replica.ahead_ms = by_ms
    assert steps(40) == 1_000_000 - 50
    assert steps(100) == 1_000_000 + 700 - 50


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
