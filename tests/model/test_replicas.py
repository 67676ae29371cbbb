"""Replicas that race, idle, die and come back are exact at every time."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streams.ids import CollectionId
from streams.replica.config import Budgets
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.micro_batch import LaneName
from tests.support import duckdb_oracle
from tests.support.market import VIEWS, Market, settle
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica

Act = Callable[[Replica], object]

HOUR_MS = 3_600_000


def test_one_replica(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path / "a")
    for _ in range(6):
        market.produce(20)
        settle(market, replica)
    market.check()


def test_a_process_that_just_started_throws_no_state_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before it is told of its dataflows, nothing names the run files that they left."""
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path / "a")
    for _ in range(3):
        market.produce(20)
        settle(market, replica)
    for file in (tmp_path / "a" / "runs").iterdir():
        os.utime(file, (0, 0))
    again = Replica(market.world, "a", tmp_path / "a")
    again.maintenance.run_once()
    again.follow()
    again.start()
    phases = {flow.id: flow.phase for flow in again.scheduler.flows.values()}
    assert {phases[CollectionId(name)] for name in VIEWS} == {Phase.RUNNING}
    settle(market, again)
    market.check()


def test_hydration_in_slices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    market = Market(monkeypatch, 2)
    small = Budgets(step_bytes=1, slice_bytes=1, messages=7)
    replica = Replica(market.world, "a", tmp_path / "a", budgets=small)
    for _ in range(4):
        market.produce(20)
        settle(market, replica)
    market.views()
    for _ in range(2):
        market.produce(5)
        settle(market, replica)
    market.check()


def test_another_version_corrects_what_it_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 3)
    market.views()
    old = Replica(market.world, "a", tmp_path / "a")
    settle(market, old)
    market.produce(30)
    settle(market, old)
    new = Replica(market.world, "b", tmp_path / "b", salt="2", budgets=Budgets(slice_bytes=1))
    market.produce(10)
    settle(market, new)
    market.produce(10)
    settle(market, new)
    market.check()
    for name in VIEWS:
        state = market.world.shards.state(CollectionId(name))
        assert state.fingerprint.endswith("2")


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_race_die_and_return(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)

    def outside(round_: int, chance: float) -> None:
        if round_ == 60:
            market.views()
        if chance < 0.1:
            market.produce(market.rng.randrange(6))

    for replica in race_at_random(market.world, market.rng, tmp_path, 400, outside):
        settle(market, replica)
    market.check()


def test_a_replica_that_stands_by_follows_its_sources_and_takes_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 1)
    owner, other = both_running(market, tmp_path)
    other.scheduler.own(is_owner=False, obstacle="")
    uppers = {name: market.world.upper(name) for name in ("orders", "people")}
    market.produce(20)
    market.world.now += 40_000
    for _ in range(4):
        other.idle()
        assert not other.step("ingest")
    assert {name: market.world.upper(name) for name in uppers} == uppers, "it appended"
    settle(market, owner)
    other.settle()
    for flow in other.scheduler.flows.values():
        assert flow.own is not None
        assert flow.own.frontier == market.world.shards.state(flow.id).upper, flow.id
    other.scheduler.own(is_owner=True, obstacle="")
    market.produce(20)
    settle(market, other)
    market.check()
    market.check_people()


def test_a_replica_that_may_not_write_computes_what_others_have_appended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    owner, other = (Replica(market.world, name, tmp_path / name) for name in "ab")
    other.scheduler.allow(writes=False)

    def appended() -> dict[str, int]:
        names = ("orders", "people", *VIEWS)
        return {name: market.world.upper(name) for name in names}

    def work() -> None:
        other.follow()
        for _ in range(6):
            other.start()
            for lane in other.lanes():
                other.step(lane)
            other.sync()
            other.idle()

    before = appended()
    work()
    assert appended() == before, "a view that is new waits"
    settle(market, owner)
    market.produce(20)
    settle(market, owner)
    before = appended()
    work()
    market.produce(20)
    market.world.now += 40_000
    work()
    assert appended() == before
    for flow in other.scheduler.flows.values():
        assert flow.phase is Phase.RUNNING
        assert flow.own is not None
        assert flow.own.frontier.time == before[flow.id], f"{flow.id} is not as far"
    other.scheduler.allow(writes=True)
    settle(market, other)
    market.check()


def both_running(market: Market, tmp_path: Path) -> list[Replica]:
    """Two replicas that have come to the same point."""
    market.views()
    replicas = [Replica(market.world, name, tmp_path / name) for name in "ab"]
    for replica in replicas:
        settle(market, replica)
    return replicas


def race(
    market: Market,
    replicas: list[Replica],
    *,
    begin: Act,
    lanes: Sequence[LaneName],
    rest: Act,
    last: Act = lambda _: None,
) -> None:
    """One act of a replica chosen at random, 250 times; then everything there is to do."""
    for _ in range(250):
        market.world.now += market.rng.choice([0, 1, 2])
        replica = market.rng.choice(replicas)
        match market.rng.randrange(8):
            case 0 | 1:
                market.produce(2)
            case 2:
                replica.sync()
            case 3 | 4:
                begin(replica)
            case 5 | 6:
                for lane in lanes:
                    replica.commit(lane)
            case _:
                rest(replica)
    for replica in replicas:
        last(replica)
        settle(market, replica)


def test_what_another_replica_stored_is_not_also_taken_in_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 4)
    slow, fast = both_running(market, tmp_path)
    market.world.now += 1_000
    market.produce(20)
    assert fast.step("ingest")
    slow.sync()
    slow.idle()  # its sources follow, its views stay behind their shards
    assert slow.step("hydrate")
    market.world.now += 1_000
    market.produce(20)
    assert slow.begin("ingest")
    slow.commit("ingest")
    for replica in (slow, fast):
        settle(market, replica)
    market.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_of_two_replicas_race(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    replicas = both_running(market, tmp_path)
    race(
        market,
        replicas,
        begin=lambda replica: replica.begin(market.rng.choice(["ingest", "ingest", "steady"])),
        lanes=("ingest", "steady"),
        rest=Replica.idle,
    )
    market.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_race_whose_clocks_are_set_at_random(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    replicas = both_running(market, tmp_path)
    latest = market.world.now

    def rest(replica: Replica) -> None:
        nonlocal latest
        replica.ahead_ms = market.rng.choice([0, 0, -HOUR_MS, -7_000, 4_000, 7_000, HOUR_MS])
        replica.idle()
        market.world.shards.sync()
        latest = max(latest, *(market.world.upper(name) for name in ("orders", "people")))

    race(
        market,
        replicas,
        begin=lambda replica: replica.begin(market.rng.choice(["ingest", "ingest", "steady"])),
        lanes=("ingest", "steady"),
        rest=rest,
        last=lambda replica: setattr(replica, "ahead_ms", 0),
    )
    assert latest < market.world.now, "no time was taken from the future"
    market.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_two_ingestions_of_one_topic_race(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    replicas = [Replica(market.world, name, tmp_path / name) for name in "ab"]
    for replica in replicas:
        replica.follow()
    for replica in replicas:
        replica.start()
    race(
        market,
        replicas,
        begin=lambda replica: replica.begin("ingest"),
        lanes=("ingest",),
        rest=lambda replica: replica.step("hydrate"),
    )
    world = market.world
    world.shards.sync()
    assert market.check_people() >= 5
    orders, _ = duckdb_oracle.updates(world.shards, world.relations["orders"])
    assert sorted(orders["id"].to_pylist()) == list(range(market.sent))
