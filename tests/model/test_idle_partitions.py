"""Partitions that hold the watermark back, and those that are idle, through restarts."""

import random

import pytest

from streams.compute import event_time, idleness
from streams.compute.event_time import Advance, Seen
from streams.compute.reclocking import Ends
from streams.plan.metadata import Watermark
from tests.model.test_event_time import BAD, Replica, World, check


@pytest.mark.parametrize("seed", range(20))
def test_that_a_replica_that_starts_again_makes_no_row_late(seed: int) -> None:
    """Partitions that were idle stay so, others do not become so earlier."""
    declared = Watermark(
        column="ts", delay_ms=20, late_rows="place", idle_ms=100, ahead_ms=10**9
    )
    worlds = [World(declared), World(declared)]
    steady, mortal = (Replica(world) for world in worlds)
    generator, caught_up = random.Random(seed), 0
    for _ in range(300):
        partition = generator.choice([0, 0, 0, 0, 1, 1, 2])
        at = worlds[0].now_ms + generator.randrange(-30, 31)
        past_ms = generator.choice([1, 5, 20])
        for world in worlds:
            world.now_ms += past_ms
            world.topic[partition].append(at)
        if generator.random() < 0.2:
            mortal.die()
        for replica in (steady, mortal):
            while replica.plan(10_000):
                replica.commit()
        assert worlds[1].shard.upper <= worlds[0].shard.upper
        caught_up += worlds[1].shard.upper == worlds[0].shard.upper
    assert caught_up > 150
    for world in worlds:
        check(world)


def test_that_a_partition_that_was_idle_is_so_after_a_restart() -> None:
    declared = Watermark(
        column="ts", delay_ms=5, late_rows="place", idle_ms=1_000, ahead_ms=10**9
    )
    world = World(declared, topic=[[100], [100], []])
    replica = Replica(world)

    def steps() -> int:
        for _ in range(6):
            if replica.plan(50):
                replica.commit()
        return world.shard.upper

    assert steps() == 0, "the third one may have a row yet"
    world.now_ms += 1_000
    steps()
    world.topic[0].append(300)
    assert steps() == 295, "now both others are idle"
    world.topic[0].append(400)
    assert steps() == 395
    replica.die()
    world.topic[0].append(500)
    assert steps() == 495
    world.topic[1] += [480, 490]
    world.topic[0].append(600)
    assert steps() == 495, "it holds the watermark back again"


def test_that_a_partition_of_undecodable_messages_is_idle() -> None:
    """Whether or not one has come that is not read yet; more than a few keep it active."""
    declared = Watermark(
        column="ts", delay_ms=5, late_rows="place", idle_ms=1_000, ahead_ms=10**9
    )
    world = World(declared, topic=[[100], [BAD], []])
    replica = Replica(world)
    for _ in range(30):
        world.now_ms += 100
        world.topic[0].append(100 + world.now_ms)
        world.topic[1].append(BAD)
        if replica.plan(50):
            replica.commit()
    assert world.shard.upper > 2_000
    before = world.shard.upper
    world.now_ms += 100
    world.topic[0].append(10_000)
    world.topic[1] += [BAD] * 1_000
    for _ in range(3):
        assert replica.plan(50)
        replica.commit()
    assert world.shard.upper <= before + 100
    check(world)


def test_that_a_partition_that_is_held_to_be_idle_too_soon_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idleness, "_is_passed", lambda *_: True)
    for seed in range(20):
        try:
            test_that_a_replica_that_starts_again_makes_no_row_late(seed)
        except AssertionError:
            return
    raise AssertionError("no history finds it")


def test_that_a_silent_partition_holds_the_watermark_back_until_it_is_idle() -> None:
    topic = {0: Ends(0, 1), 1: Ends(0, 0)}
    progress = event_time.begin(None, {}, topic, now_ms=1_000)
    advance = Advance(lower=0, upper=0, fresh={0: (0, 1)})
    progress = event_time.after(progress, advance, Seen({0: 500}), now_ms=1_050)
    assert event_time.candidate(progress, topic, 1_090, 100) is None
    assert event_time.candidate(progress, topic, 1_100, 100) == 500


def test_that_unread_messages_keep_a_partition_active() -> None:
    topic = {0: Ends(0, 5), 1: Ends(0, 1)}
    progress = event_time.begin(None, {}, topic, now_ms=0)
    advance = Advance(lower=0, upper=0, fresh={0: (0, 2), 1: (0, 1)})
    progress = event_time.after(progress, advance, Seen({0: 70, 1: 900}), now_ms=0)
    assert event_time.candidate(progress, topic, 10_000, 100) == 70
