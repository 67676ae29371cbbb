"""Replicas that lose the race for an Append: they go on with what they have read."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from streams.compute import lost_races
from streams.compute.event_time import Partition, Stretch
from streams.replica.driver.work_units import EventUnit
from streams.replica.tasks.descriptor import RawLoad
from tests.support.event_histories import PARTITIONS, History, declared
from tests.support.sparkless import Replica, World

PART = Partition(
    read=8,
    bound=4,
    released=2,
    greatest=90,
    read_ms=5,
    time_ms=5,
    stretches=(Stretch(4, 50), Stretch(6, 90), Stretch(8, 70)),
)
THERE = Partition(read=3, bound=10, released=3, greatest=99, read_ms=9, time_ms=9)


def read_now(replica: Replica) -> int:
    """How many messages the replica's present micro-batch reads."""
    (lane,) = replica.scheduler.lanes_of_sources()
    batch = replica.scheduler.current(lane)
    units = () if batch is None else batch.units
    return sum(
        part.length
        for unit in units
        if isinstance(unit, EventUnit)
        for load in unit.loads
        if isinstance(load, RawLoad)
        for part in load.slices
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
)
def test_that_the_loser_reads_no_pending_message_again(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are pending: it reads each message about once."""
    world, rng = World(), random.Random(seed)
    world.patch(monkeypatch)
    history = History(world, "place", "dead_letter")
    world.alter("events", watermark=replace(declared(), delay_ms=2_000))
    replicas = [Replica(world, name, tmp_path / name) for name in ("winner", "loser")]
    for replica in replicas:
        replica.follow()
        replica.start()
    reads = dict.fromkeys(("winner", "loser"), 0)
    for number in range(420):
        history.send(number % PARTITIONS, world.now + rng.randrange(-500, 500))
        world.now += 10
        if number % 6:
            continue
        for _ in range(4):
            for replica in replicas:
                replica.sync()
                (lane,) = replica.scheduler.lanes_of_sources()
                reads[replica.name] += read_now(replica) if replica.begin(lane) else 0
            for replica in replicas:
                replica.commit(*replica.scheduler.lanes_of_sources())
                history.look()
    assert len(history.states) > 25, "few Appends"
    assert reads["winner"] <= 420
    assert reads["loser"] < 2 * reads["winner"]
    for replica in replicas:
        history.settle(replica)
    history.judge()


def test_what_is_kept_is_pending_at_the_new_upper() -> None:
    kept = lost_races.kept({0: PART}, {0: THERE}, 60)
    assert kept is not None
    assert (kept[0].read, kept[0].released, kept[0].bound) == (8, 4, 10)
    assert kept[0].stretches == (Stretch(6, 90), Stretch(8, 70))
    assert kept[0].greatest == 99
    assert kept[0].time_ms == 9, "it has not read when the others came"


def test_nothing_is_kept_of_what_was_read_beyond_the_binding() -> None:
    assert lost_races.kept({0: PART}, {0: replace(THERE, bound=7)}, 60) is None
    assert lost_races.kept({0: PART, 1: PART}, {0: THERE}, 60) is None


def test_a_partition_that_both_have_read_is_idle_no_sooner_than_either_says() -> None:
    has_all = replace(PART, read=10)
    kept = lost_races.kept({0: has_all}, {0: THERE}, 60)
    assert kept is not None
    assert (kept[0].read_ms, kept[0].time_ms) == (5, 5)
    idle = replace(THERE, read_ms=-90, time_ms=-90)
    kept = lost_races.kept({0: has_all}, {0: idle}, 60)
    assert kept is not None
    assert (kept[0].read_ms, kept[0].time_ms) == (-90, -90)


def test_what_the_winner_released_is_not_read_again() -> None:
    kept = lost_races.kept({0: PART}, {0: replace(THERE, released=9)}, 60)
    assert kept is not None
    assert (kept[0].read, kept[0].released, kept[0].stretches) == (9, 9, ())
    assert not lost_races.has_pending(kept)
