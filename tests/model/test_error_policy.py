"""What becomes of bad messages changes, and is limited: each message once, through kills."""

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streams.compute import binding, error_limit
from streams.compute.binding import Fact
from streams.compute.stalls import OVER_LIMIT
from streams.ids import CollectionId, Topic
from streams.plan.metadata import ErrorLimit, OnError, Watermark
from tests.support import duckdb_oracle
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

COLUMNS = (("k", "BIGINT"), ("ts", "TIMESTAMP"))
EVENTS, LETTERS = CollectionId("events"), CollectionId("events.errors")
DECLARED = Watermark(column="ts", delay_ms=50, late_rows="place", idle_ms=1_000, ahead_ms=10**9)


class History:
    """A topic of two partitions, of whose messages some cannot be decoded."""

    def __init__(self, world: World) -> None:
        self.world, self.topic = world, world.raw("raw", 2)
        self.bad: list[list[bool]] = [[], []]

    def send(self, rng: random.Random, share: float) -> None:
        partition, is_bad = rng.randrange(2), rng.random() < share
        number = 2 * len(self.bad[partition]) + partition
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self.world.now)
        row = {"k": number, "ts": at.strftime("%Y-%m-%d %H:%M:%S.%f")}
        value = b"{" if is_bad else json.dumps(row).encode()
        self.world.send(self.topic, partition, None, value)
        self.bad[partition].append(is_bad)

    def bound(self) -> dict[int, int]:
        self.world.shards.sync()
        return dict(self.world.shards.state(EVENTS).source or {})

    def read(self) -> tuple[int, int]:
        """How many bad messages were read by what counts, and of how many."""
        read = binding.offsets(self.bound(), 0)
        parts = [messages[: read.get(p, 0)] for p, messages in enumerate(self.bad)]
        return sum(map(sum, parts)), sum(map(len, parts))


SNAPSHOT = 40
"""Steps in which a source that has not begun reads its topic in slices of a few messages."""


def attempt(world: World, replica: Replica, steps: int = 12) -> None:
    """What a replica does that may be stalled."""
    replica.follow()
    for _ in range(steps):
        world.now += 40_000
        replica.start()
        for lane in replica.lanes():
            replica.step(lane)
        replica.sync()
        replica.idle()


@pytest.mark.parametrize("on_error", ["dead_letter", "inline", "skip"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_append_that_would_pass_the_limit_is_not_made(
    seed: int, on_error: OnError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world)
    world.source(
        "events", COLUMNS, history.topic, on_error=on_error, error_limit=ErrorLimit(number=6)
    )

    def check() -> tuple[int, int]:
        """The binding has exactly what it binds, and never more than the limit."""
        source, bound = world.descriptions[0].source, history.bound()
        assert source is not None
        assert error_limit.totals(source, bound) == history.read()
        counts = error_limit.counts(source, bound)
        assert counts[0] <= 6
        return counts

    def outside(_: int, act: float) -> None:
        check()
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            history.send(rng, 0.08)

    replicas = race_at_random(world, rng, tmp_path, 150, outside)
    for _ in range(40):
        history.send(rng, 0.5)
    attempt(world, replicas[0], SNAPSHOT)
    trouble = replicas[0].scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert trouble.message.startswith(OVER_LIMIT)
    assert "ERROR LIMIT 6 would be passed" in trouble.message
    refused, messages = check()
    world.alter(
        "events",
        error_limit=ErrorLimit(number=100, refused_before=refused, messages_before=messages),
    )
    for replica in replicas:
        attempt(world, replica, SNAPSHOT)
    assert binding.offsets(history.bound(), 0) == {p: len(m) for p, m in enumerate(history.bad)}
    source = world.descriptions[0].source
    assert source is not None
    bad, every = history.read()
    assert error_limit.counts(source, history.bound()) == (bad - refused, every - messages)


def test_a_share_stops_a_snapshot_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.patch(monkeypatch)
    history, rng = History(world), random.Random(0)
    for _ in range(1_100):
        history.send(rng, 0.1)
    limit = ErrorLimit(millionths=10_000)
    world.source("events", COLUMNS, history.topic, on_error="skip", error_limit=limit)
    replica = Replica(world, "r", tmp_path)
    attempt(world, replica)
    assert history.bound() == {}
    trouble = replica.scheduler.flows[EVENTS].trouble
    assert trouble is not None
    assert "ERROR LIMIT '1 %' would be passed" in trouble.message
    world.alter("events", error_limit=None)
    attempt(world, replica)
    assert history.read()[1] == 1_100


def judge(history: History, by_event_time: bool) -> None:
    """Each bad message is an error, a dead letter or skipped; the others are rows."""
    world = history.world
    bad, every = history.read()
    assert every == sum(map(len, history.bad))
    rows, errors = duckdb_oracle.updates(world.shards, world.relations["events"])
    letters, _ = duckdb_oracle.updates(world.shards, world.relations["events.errors"])
    skipped = binding.total(history.bound(), Fact.SKIPPED)
    places = Counter(
        zip(letters["partition"].to_pylist(), letters["offset"].to_pylist(), strict=True)
    )
    assert set(places.values()) <= {1}
    counts = [letters.num_rows, *([] if by_event_time else [errors.num_rows, skipped])]
    assert min(counts) > 0, "a policy had no messages"
    assert errors.num_rows + letters.num_rows + skipped == bad
    assert binding.total(history.bound(), Fact.REFUSED) == errors.num_rows
    good = {
        2 * offset + p
        for p, messages in enumerate(history.bad)
        for offset, is_bad in enumerate(messages)
        if not is_bad
    }
    keys = rows["k"].to_pylist()
    assert len(keys) == len(set(keys))
    assert set(keys) <= good
    if not by_event_time:
        assert set(keys) == good


@pytest.mark.parametrize("by_event_time", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_bad_message_is_what_one_policy_says(
    seed: int, by_event_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas hear of a change at different times, and die."""
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world)
    watermark = DECLARED if by_event_time else None
    first: OnError = "dead_letter" if by_event_time else "skip"
    world.source("events", COLUMNS, history.topic, on_error=first, watermark=watermark)

    policies: list[OnError] = ["inline", "dead_letter", "skip", "dead_letter", "inline"]
    if by_event_time:  # dead letters last, as hardly anything counts before there are rows
        policies = ["skip", "inline", "dead_letter", "inline", "dead_letter"]

    def outside(round_: int, act: float) -> None:
        if round_ % 40 == 39:
            world.alter("events", on_error=policies[round_ // 40])
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            history.send(rng, 0.4)

    replicas = race_at_random(world, rng, tmp_path, 200, outside)
    for replica in replicas:
        attempt(world, replica, 20)
    for policy in dict.fromkeys(policies):  # the race may have bound nothing under one of them
        world.alter("events", on_error=policy)
        world.now += 100_000
        for chance in (1.0, 1.0, 0.0, 0.0, 0.0):
            history.send(rng, chance)
        for replica in replicas:
            attempt(world, replica, 20)
    for _ in range(3):
        world.now += 100_000
        for _ in range(6):
            history.send(rng, 0.0)
        for replica in replicas:
            attempt(world, replica, 20)
    judge(history, by_event_time)
    assert binding.revision(history.bound()) == len(policies) + len(set(policies))


def test_an_earlier_revision_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, rng = World(), random.Random(0)
    world.patch(monkeypatch)
    history = History(world)
    world.source("events", COLUMNS, history.topic, on_error="skip")
    behind, ahead = (Replica(world, name, tmp_path / name) for name in ("a", "b"))
    attempt(world, behind)
    world.alter("events", on_error="dead_letter")
    attempt(world, ahead)
    history.send(rng, 1.0)
    assert behind.scheduler.flows[EVENTS].description.source.revision == 0  # type: ignore[union-attr]
    for _ in range(5):
        world.now += 40_000
        for lane in behind.lanes():
            behind.step(lane)
        behind.idle()
    assert history.read() == (0, 0)
    attempt(world, ahead)
    world.shards.sync()
    letters, _ = duckdb_oracle.updates(world.shards, world.relations[LETTERS])
    assert letters["topic"].to_pylist() == [Topic("raw")]
    assert binding.total(history.bound(), Fact.SKIPPED) == 0
