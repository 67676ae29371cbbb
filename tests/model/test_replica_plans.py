"""What a replica is about to read is not taken from under it (rule 10).

A micro-batch names chunks when it is decided, and its tasks fetch them later. Between the two
batches are merged and collectors take all that nothing names.
"""

import itertools
from pathlib import Path

import pytest

from streams.compaction import plan
from streams.compaction.collector import Collector
from streams.compaction.merge_execution import Compacted, Worker
from streams.ids import CapabilityId, CollectionId
from streams.kafka.memory.records import MemoryRawReader
from streams.progress import frontier
from streams.replica.driver.holds import LEASE_MS
from streams.replica.driver.micro_batch import LaneName
from streams.replica.driver.work_units import ViewUnit
from streams.storage.log.events import Acquire, Downgrade, Drop, Reclaim, Right
from streams.trace.kernel.kernel import Kernel
from tests.support.market import Market, settle
from tests.support.sparkless import Replica, World

ORDERS = CollectionId("orders")
HOLD = CapabilityId("orders.catalog")
LANE: LaneName = "ingest"  # views near their sources are stepped there
KERNEL = Kernel()
numbers = itertools.count()


def begun(market: Market, tmp_path: Path) -> Replica:
    """A replica that has caught up, with what it may let go let go."""
    market.views()
    hold = Acquire(collection=ORDERS, capability=HOLD, right=Right.READ)
    market.world.shards.submit([("orders", hold)])
    replica = Replica(market.world, "a", tmp_path / "a")
    for _ in range(3):
        market.produce(20)
        settle(market, replica)
        replica.maintenance.run_once()
    return replica


def merge(world: World) -> int:
    """Merge all of the orders, take what is garbage; how many chunks went."""
    world.shards.sync()
    to = frontier(world.upper("orders") - 1)
    world.shards.submit(
        [("orders", Downgrade(collection=ORDERS, capability=HOLD, frontier=to))]
    )
    worker = Worker(world.shards, KERNEL, lambda: f"stage-{next(numbers)}")
    for piece in plan.whole(world.shards.state(ORDERS)):
        assert isinstance(worker.compact(ORDERS, piece), Compacted)
    return collect(world)


def collect(world: World) -> int:
    collector = Collector(world.shards, MemoryRawReader(world.broker.store), world.now_ms)
    return len(collector.reclaim("orders", collector.ends("orders")))


def pending(market: Market, tmp_path: Path) -> Replica:
    """A replica that has decided a step over orders that another one has ingested."""
    slow = begun(market, tmp_path)
    fast = Replica(market.world, "b", tmp_path / "b")
    settle(market, fast)
    market.produce(20)
    market.world.now += 1_000
    assert fast.step("ingest")
    slow.sync()
    slow.idle()
    slow.scheduler.answer({"ask": "latest", "lane": LANE, "start": {}})
    batch = slow.scheduler.current(LANE)
    assert batch is not None
    assert any(isinstance(unit, ViewUnit) and unit.loads for unit in batch.units)
    fast.scheduler.stopping = True
    for flow in fast.scheduler.flows.values():  # it is gone for good, and politely
        drops = [
            (
                description.group,
                Drop(description.collection, flow.holds[description.collection]),
            )
            for description in flow.description.imports
        ]
        market.world.shards.submit(drops)
    return slow


def heartbeats(market: Market, replica: Replica) -> None:
    for _ in range(3):
        market.world.now += 10_000
        replica.sync()
        replica.maintenance.run_once()


def test_a_step_reads_what_was_merged_after_it_was_decided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 5)
    slow = pending(market, tmp_path)
    assert merge(market.world) == 0
    heartbeats(market, slow)  # they do not move the plan of what is under way
    assert collect(market.world) == 0
    assert slow.begin(LANE)
    assert {result.failure for result in slow.results[LANE].values()} == {None}
    slow.commit(LANE)
    settle(market, slow)
    heartbeats(market, slow)
    assert collect(market.world) > 0
    market.check()


def test_a_replica_that_never_returns_holds_nothing_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 6)
    pending(market, tmp_path)
    assert merge(market.world) == 0
    let_pass(market.world, LEASE_MS // 2)
    assert collect(market.world) == 0
    let_pass(market.world, LEASE_MS)
    assert collect(market.world) > 0
    again = Replica(market.world, "a", tmp_path / "a")
    market.produce(20)
    settle(market, again)
    market.check()


def let_pass(world: World, duration_ms: int) -> None:
    """Time, as the log sees it: a record moves its clock by 30 s at most."""
    for _ in range(duration_ms // 30_000 + 1):
        world.now += 30_000
        world.shards.submit([("orders", Reclaim({}))])


def test_a_hold_that_ran_out_is_taken_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a process that slept, say; until then the dataflow's own hold has kept the times."""
    market = Market(monkeypatch, 7)
    replica = begun(market, tmp_path)
    name = CapabilityId("totals.reads.orders@a")
    let_pass(market.world, 2 * LEASE_MS)
    assert name not in market.world.shards.state(ORDERS).capabilities
    replica.sync()
    heartbeats(market, replica)
    market.world.shards.sync()
    capability = market.world.shards.state(ORDERS).capabilities[name]
    assert capability.plan is not None
    market.produce(20)
    settle(market, replica)
    market.check()


def test_an_idle_replica_renews_its_leases_and_writes_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 8)
    replica = begun(market, tmp_path)
    heartbeats(market, replica)
    market.world.shards.sync()
    before = market.world.shards.group_state("orders").upto
    heartbeats(market, replica)
    market.world.shards.sync()
    assert market.world.shards.group_state("orders").upto == before
    for _ in range(2 * LEASE_MS // 60_000):
        let_pass(market.world, 30_000)
        replica.sync()
        replica.maintenance.run_once()
    market.world.shards.sync()
    assert (
        CapabilityId("totals.reads.orders@a") in market.world.shards.state(ORDERS).capabilities
    )
