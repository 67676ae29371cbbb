"""One of the dataflows kills whatever micro-batch it is in: the others go on, at every time."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from streams.ids import CollectionId
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.micro_batch import LANES, LaneName
from streams.replica.driver.retry_policy import Failure, Isolation, Kind
from streams.replica.driver.status_reports import condition
from streams.replica.driver.watchdog import RunningBatch
from tests.support.market import VIEWS, Market
from tests.support.sparkless import Replica

POISON = CollectionId("totals")
LOST = Failure("Python worker exited unexpectedly", Kind.LOST)
HUNG = Failure("took longer than 60 s", Kind.HUNG, took_ms=60_000)


class Ward:
    """A replica whose micro-batches are lost when they step a certain dataflow."""

    def __init__(self, market: Market, replica: Replica, failure: Failure) -> None:
        self.market, self.replica, self.failure = market, replica, failure
        self.deadly = True
        self.killed: list[tuple[LaneName, int, int]] = []
        """Lane, dataflows and time of each micro-batch that was lost."""

    def run(self, turns: int, seconds: int = 1, messages: int = 5) -> None:
        """Let time pass, and some messages come in each turn."""
        replica, world = self.replica, self.market.world
        for _ in range(turns):
            world.now += 1000 * seconds
            self.market.produce(messages)
            for _ in range(3):
                replica.start()
                for lane in LANES:
                    self._step(lane)
                replica.sync()
                replica.idle()

    def _step(self, lane: LaneName) -> None:
        replica = self.replica
        replica.sync()
        if not replica.begin(lane):
            return
        batch = replica.scheduler.current(lane)
        assert batch is not None
        if self.deadly and any(unit.flow.id == POISON for unit in batch.units):
            self.killed.append((lane, len(batch.units), self.market.world.now))
            replica.results.pop(lane)
            replica.scheduler.abandon(lane, self.failure)
        else:
            replica.commit(lane)

    def convict(self, times: int) -> RunningBatch:
        """Let it miss its deadline alone so often, and then hang in `apart` once more."""
        while self.replica.scheduler.flows[POISON].isolation.convictions < times:
            self.run(1, seconds=400)
        self.market.world.now += 400_000
        self.market.produce(5)
        self.replica.start()
        assert self.replica.begin("apart")
        batch = self.replica.scheduler.current("apart")
        assert batch is not None
        assert [unit.flow.id for unit in batch.units] == [POISON]
        return RunningBatch(batch, began=0.0)

    def lose(self, lane: LaneName) -> None:
        """A worker is killed in a lane, by nobody's fault."""
        self.market.world.now += 1000
        self.market.produce(5)
        self.replica.sync()
        assert self.replica.begin(lane)
        self.replica.results.pop(lane)
        self.replica.scheduler.abandon(lane, LOST)

    def lag_s(self, name: str) -> float:
        self.market.world.shards.sync()
        return (self.market.world.now - self.market.world.upper(name)) / 1000


@pytest.fixture
def ward(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> Ward:
    market = Market(monkeypatch, 3)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    replica.settle()
    return Ward(market, replica, getattr(request, "param", LOST))


@pytest.mark.parametrize("ward", [LOST, HUNG], indirect=True, ids=["killed", "hung"])
def test_a_dataflow_that_ends_every_micro_batch_stands_alone(ward: Ward) -> None:
    ward.run(6)
    for name in ("orders", "people", "everything", "ranked"):
        assert ward.lag_s(name) <= 1, name
    before = len(ward.killed)
    ward.run(10, seconds=4)
    lanes = {(lane, count) for lane, count, _ in ward.killed[before:]}
    assert lanes <= {("apart", 1)}, "no neighbour is lost twice"
    for name in ("orders", "people", "everything", "ranked"):
        assert ward.lag_s(name) <= 1, name
    flow = ward.replica.scheduler.flows[POISON]
    reported = condition(flow, ward.market.world.now, Skew(), elapsed_ms=0)
    assert reported.state == "failed"
    assert ward.failure.message in reported.message


def test_its_pauses_grow_though_a_rebuild_succeeds_in_between(ward: Ward) -> None:
    ward.run(25, seconds=8)
    times = [time for _, _, time in ward.killed]
    assert len(times) <= 12, "a rebuild up to where it fails is no progress"
    pauses = [after - before for before, after in pairwise(times)]
    assert max(pauses) >= 64_000


def test_it_heals_and_comes_back_among_the_others(ward: Ward) -> None:
    ward.run(2)
    ward.deadly = False
    ward.run(10, seconds=4)
    for name in VIEWS:
        assert ward.lag_s(name) <= 1, name
    flow = ward.replica.scheduler.flows[POISON]
    assert (flow.trouble, flow.isolation.steps) == (None, 0)
    assert condition(flow, ward.market.world.now, Skew(), elapsed_ms=0).state == "running"
    ward.market.check()


def test_a_source_that_stands_alone_ticks_while_its_topic_is_quiet(ward: Ward) -> None:
    ward.deadly = False
    scheduler, id_ = ward.replica.scheduler, CollectionId("orders")
    alone = replace(scheduler.flows[id_], isolation=Isolation(steps=50))
    scheduler.table.running[id_] = alone
    ward.run(5, messages=0)
    for name in ("orders", *VIEWS):
        assert ward.lag_s(name) <= 1, name
    assert scheduler.flows[id_].isolation.steps, "it is still alone"
    ward.run(2)
    ward.market.check()


def test_a_micro_batch_given_up_for_a_drop_is_nobodys_trouble(ward: Ward) -> None:
    ward.market.world.now += 1000
    ward.market.produce(5)
    ward.replica.sync()
    assert ward.replica.begin("ingest")
    ward.replica.results.clear()
    ward.replica.scheduler.abandon("ingest", None)
    assert all(flow.trouble is None for flow in ward.replica.scheduler.flows.values())
    ward.deadly = False
    ward.run(3)
    assert ward.lag_s("totals") <= 1


def is_over(ward: Ward, watched: RunningBatch, now: float) -> bool:
    scheduler = ward.replica.scheduler
    return watched.is_over(now, scheduler.has_dropped, scheduler.is_in_the_way)


@pytest.mark.parametrize("ward", [HUNG], indirect=True, ids=["hung"])
def test_a_convict_gives_way_to_suspects_and_goes_on_after_them(ward: Ward) -> None:
    watched = ward.convict(times=5)
    scheduler, convict = ward.replica.scheduler, ward.replica.scheduler.flows[POISON]
    common_s, own_s = watched.batch.deadline.common_s, watched.batch.deadline.own_s
    assert (common_s < 180, own_s > 60 * 2**5) == (True, True)
    assert not is_over(ward, watched, own_s - 1), "nobody waits"
    ward.lose("ingest")
    assert not is_over(ward, watched, common_s - 1)
    assert is_over(ward, watched, common_s + 1)
    watched.cancelled = common_s + 1
    convict = scheduler.present(convict)
    before = convict.isolation, convict.trouble
    ward.replica.results.pop("apart")
    scheduler.abandon("apart", watched.failure(RuntimeError("SPARK_JOB_CANCELLED")))
    convict = scheduler.present(convict)
    assert (convict.isolation, convict.trouble) == before, "that was no failure of its own"
    ward.run(3)
    for name in ("orders", "people", "everything", "ranked"):
        assert ward.lag_s(name) <= 1, name
    assert ward.killed[-1][:2] == ("apart", 1), "its turn comes again"


@pytest.mark.parametrize("ward", [HUNG], indirect=True, ids=["hung"])
def test_a_convict_gives_way_to_nobody_who_could_not_go_on(ward: Ward) -> None:
    """What waits for the convict itself would wait for ever if that were begun anew."""
    watched = ward.convict(times=5)
    scheduler, own_s = ward.replica.scheduler, watched.batch.deadline.own_s
    waiting = scheduler.flows[CollectionId("named")]
    isolation = waiting.isolation.after(replace(LOST, dataflows=2), 1)
    scheduler.table.add(replace(waiting, isolation=isolation))
    assert not is_over(ward, watched, own_s - 1)
    assert is_over(ward, watched, own_s + 1)


@pytest.mark.parametrize("ward", [HUNG], indirect=True, ids=["hung"])
def test_of_two_convicts_the_one_convicted_more_often_gives_way(ward: Ward) -> None:
    watched = ward.convict(times=5)
    scheduler, common_s = ward.replica.scheduler, watched.batch.deadline.common_s
    other = scheduler.flows[CollectionId("everything")]
    scheduler.table.add(replace(other, isolation=Isolation(steps=3, convictions=4)))
    assert ward.replica.step("ingest"), "now there is something to do for it"
    assert is_over(ward, watched, common_s + 1)
    other = scheduler.present(other)
    scheduler.table.add(replace(other, isolation=Isolation(steps=3, convictions=5)))
    assert not is_over(ward, watched, common_s + 1), "each has its time"
