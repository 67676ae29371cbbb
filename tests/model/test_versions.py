"""Two versions of a view meet at one shard: what the first left there the second corrects.

The old version is made to be wrong, by one row that it says without reason; whoever then wins
which race, in the end every time from the correction on is exact (rule 24).
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from streams.ids import CollectionId
from streams.operators.engine import EngineOutput
from streams.progress import frontier
from streams.replica.driver import work_units
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.dataflow_state import OwnState
from streams.replica.driver.import_state import Imports
from streams.replica.driver.micro_batch import LANES
from streams.replica.driver.steady_planner import output_of
from streams.replica.tasks import worker, write_chunks
from streams.storage.log.events import Append
from streams.storage.log.outcomes import Appended
from streams.trace.kernel.kernel import Kernel, arrow_schema
from tests.support import duckdb_oracle
from tests.support.market import Market, settle
from tests.support.racing_replicas import SEEDS, act_at_random
from tests.support.sparkless import Replica

VIEW = CollectionId("everything")
ROW = "SELECT 999::BIGINT AS c0, 999::HUGEINT AS c1, {}::BIGINT AS time, 1::BIGINT AS diff"


class Versions:
    """A market, a replica of the old version, and one of the new that has not begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.market = Market(monkeypatch, 3)
        self.old = Replica(self.market.world, "a", tmp_path / "a")
        self.new = Replica(self.market.world, "b", tmp_path / "b", salt="2")
        settle(self.market, self.old)
        self.market.views()

    def settle(self, replica: Replica) -> None:
        self.market.produce(10)
        settle(self.market, replica)

    def spoil(self) -> None:
        """Let the old version say a row that is not there."""
        flow, shards = self.old.scheduler.flows[VIEW], self.old.scheduler.shards
        self.old.sync()
        upper = shards.state(VIEW).upper
        types = [column.type for column in flow.description.columns]
        row = Kernel().query(ROW.format(upper.time)).cast(arrow_schema(types))
        output = output_of(flow, Imports(shards))
        encoded = write_chunks.encode(EngineOutput((), row, None), output, types)
        chunks = worker.chunks(worker.KafkaClients(self.old.scheduler.config.kafka))
        (refs,) = write_chunks.write(chunks, [encoded])
        part = work_units.part(flow, (upper, frontier(upper.time + 1)), refs)
        (outcome,) = shards.submit([(flow.description.group, Append((part,)))])
        assert isinstance(outcome, Appended)

    def can_spoil(self) -> bool:
        """Whether the old version still has a say, and has not said all that it can."""
        world = self.market.world
        world.shards.sync()
        state = world.shards.state(VIEW)
        ahead = world.shards.state(CollectionId("orders")).upper
        is_old = bool(state.fingerprint) and not state.fingerprint.endswith("2")
        return is_old and state.upper.strictly_precedes(ahead)

    def tick(self) -> None:
        """Time goes on for the sources, and not yet for the views."""
        self.market.world.now += 40_000
        self.old.sync()
        self.old.idle()

    def start(self) -> None:
        """The new version looks for its state."""
        self.new.follow()
        self.new.start()
        self.new.sync()
        self.new.start()

    def begin_last_slice(self) -> None:
        """Let the new version build its state, but for the Append at the end."""
        while self.new.begin("hydrate"):
            build = self.new.scheduler.flows[VIEW].build
            assert build is not None
            if build.done == len(build.slices) - 1:
                return
            self.new.commit("hydrate")
        raise AssertionError(self.new.scheduler.flows[VIEW].phase)

    def check_corrected(self) -> None:
        """The new version has taken over, and says at its end what is so."""
        world = self.market.world
        world.shards.sync()
        assert world.shards.state(VIEW).fingerprint.endswith("2")
        actual, _ = duckdb_oracle.updates(world.shards, world.relations[VIEW])
        orders, _ = duckdb_oracle.updates(world.shards, world.relations["orders"])
        counts: dict[int, int] = {}
        for n, diff in zip(actual["n"].to_pylist(), actual["_diff"].to_pylist(), strict=True):
            counts[n] = counts.get(n, 0) + diff
        assert {n: count for n, count in counts.items() if count} == {orders.num_rows: 1}


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Versions:
    return Versions(monkeypatch, tmp_path)


@pytest.mark.parametrize("is_raced", [False, True])
def test_a_correction_that_loses_its_race_is_made_anew(
    versions: Versions, is_raced: bool
) -> None:
    old, new = versions.old, versions.new
    versions.settle(old)
    versions.spoil()
    versions.tick()
    versions.start()
    versions.begin_last_slice()
    if is_raced:
        old.idle()
    new.commit("hydrate")
    assert new.scheduler.flows[VIEW].phase is (Phase.STARTING if is_raced else Phase.RUNNING)
    versions.settle(new)
    versions.check_corrected()


def test_who_loses_the_race_of_birth_to_another_version_corrects_it(
    versions: Versions,
) -> None:
    old, new = versions.old, versions.new
    for replica in (old, new):
        replica.follow()
        replica.start()
        assert replica.begin("hydrate")
    old.commit("hydrate")
    versions.spoil()
    new.commit("hydrate")
    assert new.scheduler.flows[VIEW].phase is Phase.STARTING
    versions.settle(new)
    versions.check_corrected()


@pytest.mark.parametrize("way", ["step", "idle"])
def test_no_step_goes_on_where_another_version_stands(versions: Versions, way: str) -> None:
    """However it came to run: it must not take over without a correction."""
    old, new = versions.old, versions.new
    versions.settle(old)
    versions.spoil()
    versions.start()
    flow = new.scheduler.flows[VIEW]
    own = OwnState("", new.scheduler.shards.state(VIEW).upper, {})
    new.scheduler.table.add(replace(flow, own=own, phase=Phase.RUNNING))
    if way == "step":
        versions.market.produce(3)
        versions.market.world.now += 40_000
        new.measurer.measure()  # the last time is too long ago
        assert new.step("ingest")  # without the view, which stands later than its source
        assert new.step("ingest")  # and then it alone
    else:
        versions.tick()
        new.sync()
        new.idle()
    assert new.scheduler.present(flow).phase is Phase.STARTING
    versions.settle(new)
    versions.check_corrected()


@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_wins_which_race_the_new_version_is_right_in_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    versions = Versions(monkeypatch, tmp_path)
    rng, market = random.Random(seed), versions.market
    versions.settle(versions.old)  # else either may be the older one
    for _ in range(160):
        market.world.now += rng.choice([0, 1, 2, 300])
        act = rng.random()
        if act < 0.1:
            market.produce(rng.randrange(4))
        elif act < 0.2 and versions.can_spoil():
            versions.spoil()
        replica = rng.choice([versions.old, versions.new])
        replica.follow()
        act_at_random(replica, rng)
    for lane in LANES:  # what of it is void is tried again only after a while
        versions.new.commit(lane)
    while versions.new.step("hydrate"):
        pass
    versions.settle(versions.new)
    versions.check_corrected()
