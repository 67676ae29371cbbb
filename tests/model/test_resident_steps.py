"""Steps by resident tasks and by queries alternate, tasks fail in any way: all stays exact."""

import random
from pathlib import Path
from typing import get_args

import pytest

from streams.replica.config import Budgets
from streams.replica.driver.fast_path import FAST_LANES
from tests.support.market import Market, settle
from tests.support.racing_replicas import POINTS, SEEDS, act_at_random
from tests.support.resident_tasks import End, ResidentReplica
from tests.support.sparkless import Dead, Replica

ENDS: tuple[End, ...] = get_args(End)


class Life:
    """Two replicas with resident tasks, which now and then die and come back."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, market: Market, directory: Path
    ) -> None:
        self.monkeypatch, self.market, self.directory = monkeypatch, market, directory
        self.ran = 0
        self.lost = 0
        self.residents = [self.begin(name) for name in ("a", "b")]

    def begin(self, name: str) -> ResidentReplica:
        budgets = self.market.rng.choice([Budgets(), Budgets(messages=9, slice_bytes=4000)])
        replica = Replica(self.market.world, name, self.directory / name, budgets)
        return ResidentReplica(replica, self.monkeypatch)

    def act(self) -> None:
        """One thing that happens to one of the two."""
        rng = self.market.rng
        number = rng.randrange(2)
        resident = self.residents[number]
        resident.replica.die_at(*([rng.choice(POINTS)] if rng.random() < 0.03 else []))
        try:
            resident.replica.follow()
            match rng.randrange(6):
                case 0 | 1 | 2:
                    resident.replica.start()
                    self.step(resident, rng)
                case 3 | 4:
                    resident.replica.step(rng.choice((*FAST_LANES, "hydrate")))
                case _:
                    act_at_random(resident.replica, rng)
        except Dead:
            self.residents[number] = self.begin(resident.replica.name)

    def step(self, resident: ResidentReplica, rng: random.Random) -> None:
        """A step of the resident task, which may fail; another process takes its place."""
        end = rng.choice(ENDS) if rng.random() < 0.3 else "done"
        if resident.step(end):
            self.ran += end == "done"
            self.lost += end != "done"
        if end != "done" and rng.random() < 0.5:
            resident.leave()
            resident.replica.scheduler.fast_path.connected = 1

    def end(self) -> None:
        """Nothing dies any more, and all goes to the queries."""
        for resident in self.residents:
            resident.replica.die_at()
            resident.leave()
            for lane in tuple(resident.replica.results):
                resident.replica.commit(lane)
            settle(self.market, resident.replica)


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_that_go_either_way_are_exact(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    monkeypatch.setattr("streams.replica.driver.fast_path.LEAST_MS", 1e9)
    monkeypatch.setattr("streams.replica.driver.fast_path.FIRST_BAR_S", 0.0)
    market = Market(monkeypatch, seed)
    life = Life(monkeypatch, market, tmp_path)
    for round_ in range(400):
        market.world.now += market.rng.choice([0, 0, 1, 2, 300])
        if round_ == 60:
            market.views()
        if market.rng.random() < 0.3:
            market.produce(market.rng.randrange(6))
        life.act()
    life.end()
    market.check()
    assert life.ran > 20
    assert life.lost > 3
