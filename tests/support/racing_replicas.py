"""Two replicas that race, die and come back, while something happens outside.

One of them owns the sources, or both for a while. Now and then one may not write.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.replica.config import Budgets
from streams.replica.driver.micro_batch import LANES
from tests.support.sparkless import Dead, Replica, World

POINTS = (
    "after-state",
    "before-chunks",
    "after-chunks",
    "between-waves",
    "after-append",
    "before-record",
)
"""Where a replica may die."""

OWNERS = [(True, False), (False, True), (True, True), (True, True)]
"""Which of the two replicas owns the sources, as each has heard."""

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 32))]
"""Of races that are drawn at random: one for every change, many before a release."""


def act_at_random(replica: Replica, rng: random.Random) -> None:
    """One of the things that a replica's threads do."""
    has_rebase = any(flow.is_rebase for flow in replica.scheduler.flows.values())
    many = (*replica.scheduler.lanes_of_sources(), *(["ingest"] if has_rebase else []))
    lane = rng.choice([*many * 10, *LANES])
    match rng.randrange(8):
        case 0:
            replica.start()
        case 1:
            replica.idle()
        case 2:
            replica.maintenance.run_once()
        case 3:
            replica.sync()
        case 4 | 5:
            replica.begin(lane)
        case _:
            replica.commit(lane)


def race_at_random(
    world: World,
    rng: random.Random,
    directory: Path,
    rounds: int,
    outside: Callable[[int, float], object],
) -> list[Replica]:
    """The replicas after so many rounds; none of them dies any more, and both are owners.

    `outside` is told of each round, and of the chance that decides it: below 0.1 no replica is
    replaced and none dies.
    """
    small = Budgets(step_bytes=rng.choice([1, 2000]), slice_bytes=1, messages=9)

    def begin(name: str) -> Replica:
        budgets, buckets = rng.choice([small, Budgets()]), rng.choice([1, 2, 3, 8])
        return Replica(world, name, directory / name, budgets, buckets=buckets)

    replicas = [begin("a"), begin("b")]
    for round_ in range(rounds):
        world.now += rng.choice([0, 0, 1, 2, 300])
        act, number = rng.random(), rng.randrange(2)
        outside(round_, act)
        if rng.random() < 0.05:
            for one, is_owner in zip(replicas, rng.choice(OWNERS), strict=True):
                one.scheduler.own(is_owner=is_owner, obstacle="")
                one.scheduler.allow(writes=rng.random() < 0.9)
        replica = replicas[number]
        if 0.1 <= act < 0.12:
            replicas[number] = begin(replica.name if rng.random() < 0.7 else f"{replica.name}'")
            continue
        replica.die_at(*([rng.choice(POINTS)] if act > 0.97 else []))
        try:
            replica.follow()
            act_at_random(replica, rng)
        except Dead:
            replicas[number] = begin(replica.name)
    for replica in replicas:
        replica.die_at()
        replica.scheduler.own(is_owner=True, obstacle="")
        replica.scheduler.allow(writes=True)
    return replicas
