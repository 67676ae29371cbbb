"""A topic that gets more partitions while a source reads it by event time."""

import random
from pathlib import Path

import pytest

from streams.compute import binding
from streams.compute.binding import Fact
from tests.support.event_histories import PARTITIONS, History
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World


def grow(world: World, history: History) -> None:
    """One partition more."""
    history.messages.append([])
    world.broker.store.grow(history.topic, len(history.messages))


@pytest.mark.parametrize("seed", SEEDS)
def test_that_racing_replicas_are_exact_with_partitions_that_are_added(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world, "dead_letter", "dead_letter")

    def outside(round_: int, act: float) -> None:
        history.look()
        if round_ in {40, 80}:
            grow(world, history)
        for _ in range(rng.randrange(4) if act > 0.5 else 0):
            at: int | None = world.now + rng.randrange(-100, 100)
            if rng.random() < 0.2:
                at = rng.choice([None, world.now - 2_000, world.now + 900])
            history.send(rng.randrange(len(history.messages)), at)

    replicas = race_at_random(world, rng, tmp_path, 150, outside)
    for replica in replicas:
        history.settle(replica)
    bound = binding.offsets(history.states[-1][1], 0)
    assert set(bound) == set(range(PARTITIONS + 2))
    history.judge()


def test_that_a_partition_that_is_added_holds_the_watermark_back_until_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are late by no more than what upper was when it came."""
    world = World()
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    replica = Replica(world, "r", tmp_path)
    replica.follow()
    began, every = world.now, range(PARTITIONS)

    def upper_after(at: int, *partitions: int, past_ms: int = 40) -> int:
        for partition in partitions:
            history.send(partition, began + at)
        for _ in range(4):
            world.now += past_ms
            history.step(replica)
        return world.upper("events") - began

    assert upper_after(100, *every) == 50
    grow(world, history)
    assert upper_after(300, *every) == 50, "it may have rows of any time"
    assert upper_after(120, PARTITIONS) == 70
    assert upper_after(400, *every) == 70, "it is slower"
    assert upper_after(350, PARTITIONS) == 300
    assert upper_after(900, *every, past_ms=400) == 850, "it is idle"
    history.settle(replica)
    history.judge()
    assert history.bound(Fact.LATE) == 0
