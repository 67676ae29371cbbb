"""A collector that is faster than a replica costs work, and never a row (rule 7).

Between the writing of chunks and the event that names them a collector may raise the floor and
take them. Whatever a replica was doing, a step, an interval of messages, a slice of a build,
it does once more; a build of which a part is gone, or stands there twice, begins anew.
"""

from pathlib import Path

import pytest

from streams.compaction.collector import Collector
from streams.ids import CapabilityId, CollectionId
from streams.kafka.memory.records import MemoryRawReader
from streams.progress import Antichain, frontier
from streams.replica.config import Budgets
from streams.replica.driver.append_attempt import STAGE_LEASE_MS
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.micro_batch import LANES
from streams.storage.log.events import Acquire, Downgrade, Reclaim, Right
from tests.support.market import VIEWS, Market, settle
from tests.support.sparkless import Dead, Replica, World

SMALL = Budgets(step_bytes=1, slice_bytes=1, messages=7)


def collect(world: World) -> int:
    """Reclaim all that nothing names, and let Kafka compact; how many chunks went."""
    world.shards.sync()
    collector = Collector(world.shards, MemoryRawReader(world.broker.store), world.now_ms)
    groups = world.shards.groups()
    reclaimed = [collector.reclaim(group, collector.ends(group)) for group in groups]
    return sum(map(len, reclaimed))


def settle_with_collector(market: Market, replica: Replica, often: float) -> int:
    """As `settle`, with collectors between the tasks and the commit; how much they took."""
    reclaimed = 0
    market.world.now += 40_000
    replica.follow()
    for _ in range(40):
        replica.start()
        for lane in LANES:
            replica.sync()
            replica.begin(lane)
            if market.rng.random() < often:
                reclaimed += collect(market.world)
            replica.commit(lane)
        replica.sync()
        replica.idle()
    replica.settle()
    return reclaimed


@pytest.mark.parametrize("seed", range(2))
def test_a_collector_between_tasks_and_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    """Ingestion, steps of views and chains of both; nothing counts as a failure."""
    market = Market(monkeypatch, seed)
    market.views()
    replica = Replica(market.world, "a", tmp_path / "a")
    reclaimed = 0
    for _ in range(3):
        market.produce(20)
        reclaimed += settle_with_collector(market, replica, 0.6)
        assert {flow.trouble for flow in replica.scheduler.flows.values()} == {None}
    assert reclaimed > 0
    market.check()


@pytest.mark.parametrize("seed", range(2))
def test_a_collector_between_slices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    market = Market(monkeypatch, seed)
    replica = Replica(market.world, "a", tmp_path / "a", budgets=SMALL)
    late_views(market, replica)
    assert settle_with_collector(market, replica, 0.3) > 0
    market.check()


def late_views(market: Market, replica: Replica) -> None:
    """Make the views when there is history, and none of it is readable one by one."""
    for _ in range(3):
        market.produce(30)
        settle(market, replica)
    for name in ("orders", "people"):
        id_, hold = CollectionId(name), CapabilityId(f"{name}.catalog")
        market.world.shards.submit(
            [
                (name, Acquire(collection=id_, capability=hold, right=Right.READ)),
                (name, Downgrade(collection=id_, capability=hold, frontier=now(market, name))),
            ]
        )
    market.views()
    replica.follow()


def now(market: Market, name: str) -> Antichain:
    """The newest time that is complete."""
    market.world.shards.sync()
    return frontier(market.world.upper(name) - 1)


def begin_to_hydrate(market: Market, replica: Replica) -> None:
    """Work through some slices of the views."""
    late_views(market, replica)
    for _ in range(4):
        replica.start()
        replica.step("hydrate")
    assert staged(replica) > 0


def staged(replica: Replica) -> int:
    flows = [replica.scheduler.flows[CollectionId(name)] for name in VIEWS]
    return sum(flow.build.staged for flow in flows if flow.build is not None)


def test_a_build_whose_stage_ran_out_begins_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Later slices would stage theirs under the same name, and the first ones be missed."""
    market = Market(monkeypatch, 11)
    replica = Replica(market.world, "a", tmp_path / "a", budgets=SMALL)
    begin_to_hydrate(market, replica)
    for _ in range(2 * STAGE_LEASE_MS // 30_000):  # a record moves a log's clock by 30 s
        market.world.now += 30_000
        tick(market.world)
    collect(market.world)
    settle(market, replica)
    market.check()


def tick(world: World) -> None:
    """Let the logs' clocks see the time; nothing else happens."""
    world.shards.submit([(name, Reclaim({})) for name in VIEWS])


def step_on(replica: Replica) -> None:
    for _ in range(20):
        replica.step("hydrate")


def test_a_slice_that_is_staged_twice_makes_the_build_begin_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process died after its Stage counted and before it wrote that down."""
    market = Market(monkeypatch, 12)
    replica = Replica(market.world, "a", tmp_path / "a", budgets=SMALL)
    begin_to_hydrate(market, replica)
    replica.die_at("after-append")
    with pytest.raises(Dead):
        step_on(replica)
    again = Replica(market.world, "a", tmp_path / "a", budgets=SMALL)
    settle(market, again)
    market.check()


def test_a_build_goes_on_after_a_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is whole is not begun anew."""
    market = Market(monkeypatch, 13)
    replica = Replica(market.world, "a", tmp_path / "a", budgets=SMALL)
    begin_to_hydrate(market, replica)
    again = Replica(market.world, "a", tmp_path / "a", budgets=SMALL)
    again.follow()
    again.start()
    building = [f for f in again.scheduler.flows.values() if f.phase is Phase.BUILDING]
    assert any(flow.build is not None and flow.build.done for flow in building)
    assert staged(again) > 0
    settle(market, again)
    market.check()
