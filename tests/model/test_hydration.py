"""A view over much is hydrated in slices, each within the budget, through deaths as well."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from streams.ids import CollectionId
from streams.replica.config import Budgets
from streams.replica.driver import hydration_progress
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.dataflow_state import Build
from streams.replica.driver.status_reports import StatusReporter, condition
from streams.replica.driver.task_assignment import size_of
from streams.replica.tasks.descriptor import ChunkLoad
from tests.support.market import VIEWS, Market, settle
from tests.support.sparkless import Dead, Replica

SLICE_BYTES = 6_000
RANKED = CollectionId("ranked")


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Market:
    """Much has been stored before there are views: in chunks of some 1 kB each."""
    new_market = Market(monkeypatch, 11)
    feeder = Replica(new_market.world, "a", tmp_path / "a", budgets=Budgets(messages=7))
    for _ in range(12):
        new_market.produce(30)
        settle(new_market, feeder)
    new_market.views(
        as_of=min(new_market.world.upper(source) for source in ("orders", "people")) - 1
    )
    return new_market


def begin(market: Market, state: Path, buckets: int = 2) -> Replica:
    budgets = Budgets(slice_bytes=SLICE_BYTES)
    replica = Replica(market.world, "a", state, budgets=budgets, buckets=buckets)
    replica.follow()
    replica.start()
    return replica


def build_of(replica: Replica) -> Build | None:
    return replica.scheduler.flows[RANKED].build


def batches(replica: Replica) -> Iterator[int]:
    """Work through the builds; the bytes of chunks that each micro-batch reads."""
    while replica.begin("hydrate"):
        batch = replica.scheduler.current("hydrate")
        assert batch is not None
        loads = [load for unit in batch.units for load in unit.loads]
        yield sum(size_of(load) for load in loads if isinstance(load, ChunkLoad))
        replica.commit("hydrate")
        replica.sync()


def test_no_micro_batch_of_a_hydration_is_larger_than_the_budget(
    market: Market, tmp_path: Path
) -> None:
    replica = begin(market, tmp_path / "a")
    build = build_of(replica)
    assert build is not None
    largest = max(
        piece.ref.size
        for loads in build.slices
        for load in loads
        for piece in getattr(load, "pieces", ())
    )
    assert largest < SLICE_BYTES, "a single chunk is never divided, and would prove nothing"
    assert len(build.slices) >= 5
    steps = list(batches(replica))
    assert len(steps) > len(build.slices), "this view alone has so many"
    assert max(steps) <= SLICE_BYTES
    assert replica.scheduler.flows[RANKED].phase is Phase.RUNNING
    settle(market, replica)
    market.check()


def test_every_row_of_the_snapshot_is_in_one_slice(market: Market, tmp_path: Path) -> None:
    build = build_of(begin(market, tmp_path / "a"))
    assert build is not None
    world = market.world
    stored = sum(
        chunk.rows
        for name in VIEWS["ranked"][1]
        for batch in world.shards.state(CollectionId(name)).batches
        for chunk in batch.chunks
    )
    assert hydration_progress.rows_of(build.slices) == stored


def test_a_hydration_that_is_killed_again_and_again_does_no_slice_twice(
    market: Market, tmp_path: Path
) -> None:
    done, incarnations = [], set()
    for point in ("after-state", "before-chunks", "after-chunks", "after-append"):
        replica = begin(market, tmp_path / "a")
        build = build_of(replica)
        assert build is not None
        done.append(build.done)
        incarnations |= {build.incarnation} if build.done else set()
        while (now := build_of(replica)) is not None and now.done == build.done:
            replica.step("hydrate")
        replica.die_at(point)
        with pytest.raises(Dead):
            exhaust(replica)
    assert done[0] == 0
    assert len(incarnations) == 1
    assert all(one < other for one, other in pairwise(done)), "what is done stays done"
    last = begin(market, tmp_path / "a")
    settle(market, last)
    market.check()


def test_a_hydration_goes_on_over_other_buckets(market: Market, tmp_path: Path) -> None:
    incarnations, done = set(), 0
    for buckets in (2, 8, 3):
        replica = begin(market, tmp_path / "a", buckets)
        build = build_of(replica)
        assert build is not None
        assert build.done == done
        incarnations.add(build.incarnation)
        while (build := build_of(replica)) is not None and build.done == done:
            replica.step("hydrate")
        assert build is not None, "it has more slices"
        done = build.done
    assert len(incarnations) == 1
    last = begin(market, tmp_path / "a", 1)
    settle(market, last)
    market.check()


def exhaust(replica: Replica) -> None:
    while replica.step("hydrate"):
        pass


class Written:
    """Keeps what is answered."""

    def __init__(self) -> None:
        self.responses: list[object] = []

    def write(self, _: str, responses: list[object]) -> None:
        self.responses += responses


def told(answers: StatusReporter, replica: Replica) -> list[tuple[int, int]]:
    writer = Written()
    answers.writer, answers.nonce = writer, "n"  # type: ignore[assignment]
    answers.tell(replica.scheduler, [])
    return [(r.done, r.total) for r in writer.responses if _is_of_ranked(r)]  # type: ignore[attr-defined]


def _is_of_ranked(response: object) -> bool:
    return type(response).__name__ == "Hydration" and response.id == RANKED  # type: ignore[attr-defined]


def test_progress_is_told_in_rows_and_goes_on_after_a_death(
    market: Market, tmp_path: Path
) -> None:
    replica, answers = begin(market, tmp_path / "a"), StatusReporter(Written())  # type: ignore[arg-type]
    ((nothing, total),) = told(answers, replica)
    assert nothing == 0
    reports: list[tuple[int, int]] = []
    while not reports:
        replica.step("hydrate")
        reports = told(answers, replica)
    ((some, same),) = reports
    assert 0 < some < total == same
    assert told(answers, replica) == [], "what is known is not told again"
    again = begin(market, tmp_path / "a")
    assert told(StatusReporter(Written()), again) == [(some, total)]  # type: ignore[arg-type]
    settle(market, again)
    status = condition(again.scheduler.flows[RANKED], market.world.now, Skew(), elapsed_ms=0)
    assert (status.state, status.progress) == ("running", "")
    assert told(StatusReporter(Written()), again) == []  # type: ignore[arg-type]
