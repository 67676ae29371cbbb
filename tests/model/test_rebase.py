"""Rebases by racing replicas: at each time what the import was at the frontier bound there."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from streams.compute import rebasing, stepping
from streams.compute.reclocking import Follow, Position
from streams.ids import CollectionId
from streams.plan.metadata import LateRows
from streams.progress import frontier
from streams.replica.config import Budgets
from streams.replica.driver import rebase_planner
from streams.replica.tasks import load_inputs
from streams.storage.log import appends
from streams.storage.log.outcomes import OffsetsMismatch
from tests.support import duckdb_oracle
from tests.support.compacted import compact, hold
from tests.support.event_histories import PARTITIONS
from tests.support.keyed_event_histories import KeyedHistory, Where
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

Contents = Counter[tuple[Any, ...]]

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a TIMESTAMP is UTC without a zone

PER_KEY = "SELECT k, count(*) AS n, max(id) AS latest FROM events GROUP BY k"
PRICED = "SELECT r.k, r.id, p.price FROM rebased r JOIN prices p USING (k)"


@dataclass
class Watched:
    """A rebase: the frontier that is bound at each time, by the Appends that counted."""

    world: World
    name: str
    born: int
    states: list[tuple[int, Mapping[int, int]]] = field(default_factory=list)

    def look(self) -> None:
        state = self.world.shards.state(CollectionId(self.name))
        if state.upper.time != (self.states[-1][0] if self.states else self.born):
            self.states.append((state.upper.time, dict(state.source or {})))

    def bound(self) -> list[tuple[int, int]]:
        """Times of the clock and the frontier that is bound there: each time of a change.

        Updates are at the last time of their interval, those of the first at the first one.
        """
        times = [(self.born, self.states[0][1][rebasing.FRONTIER])]
        for upper, binding in self.states[1:]:
            reached = binding[rebasing.FRONTIER]
            assert reached >= times[-1][1], "it goes back"
            if reached > times[-1][1]:
                times += [(upper - 2, times[-1][1]), (upper - 1, reached)]
        return [*times, (self.states[-1][0] - 1, times[-1][1])]

    def contents(self) -> Callable[[int], Contents]:
        relation = self.world.relations[self.name]
        updates, errors = duckdb_oracle.updates(self.world.shards, relation)
        assert not errors.num_rows
        rows = [tuple(map(_told, row.values())) for row in updates.to_pylist()]

        def at(time: int) -> Contents:
            counts = Contents()
            for *row, moment, diff in rows:
                counts[tuple(row)] += diff if moment <= time else 0
            return Contents({row: count for row, count in counts.items() if count})

        return at


def _told(value: Any) -> Any:
    return (
        (value - EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else value
    )


class Market:
    """A source of event times with keys, a view over it, rebases of both, and a join."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        late_rows: LateRows = "place",
        where: Where = "value",
    ) -> None:
        self.world = World()
        self.world.patch(patch)
        self.history = KeyedHistory(self.world, late_rows, where)
        self.prices = self.world.raw("raw-prices", 1)
        self.world.source(
            "prices", (("k", "VARCHAR"), ("price", "BIGINT")), self.prices, ("k",)
        )
        hold(self.world, "events")
        self.rebases: list[Watched] = []

    def define(self, *, has_view: bool = True) -> None:
        """Define what is defined later: there are events already."""
        self.world.shards.sync()
        self._rebase("rebased", "events")
        if has_view:
            self.world.view("per_key", PER_KEY, as_of=0)
            self._rebase("counted", "per_key")
        self.world.view("priced", PRICED, as_of=self.world.now)

    def _rebase(self, name: str, of: str) -> None:
        self.world.rebase(name, of)
        self.rebases.append(Watched(self.world, name, self.world.now))

    def write(self, rng: random.Random) -> None:
        self.history.write_some(rng, 4)
        if rng.random() < 0.3:
            key, value = rng.choice("abcd"), rng.randrange(9)
            self.world.send(
                self.prices, 0, f'{{"k": "{key}"}}'.encode(), f'{{"price": {value}}}'.encode()
            )

    def write_ahead(self) -> None:
        """Move event time beyond the clock."""
        self.history.write(0, "b", self.world.now + 4_800)
        for partition in range(PARTITIONS):
            self.history.write(partition, "a", self.world.now + 4_900)

    def look(self) -> None:
        self.history.look()
        for rebase in self.rebases:
            rebase.look()

    def settle(self, replica: Replica) -> None:
        replica.follow()
        quiet = 0
        for _ in range(400):  # with small budgets a step takes one batch of a long history
            self.world.now += 1_500
            quiet = 0 if self._step(replica) else quiet + 1
            if quiet > 3:
                return
        raise AssertionError({f.id: f.phase for f in replica.scheduler.flows.values()})

    def _step(self, replica: Replica) -> bool:
        replica.start()
        busy = []
        for lane in replica.lanes():
            busy.append(replica.step(lane))
            self.world.shards.sync()
            self.look()
        replica.idle()
        self.world.shards.sync()
        self.look()
        replica.maintenance.run_once()
        return any(busy)

    def judge(self) -> None:
        """Compare at each time of a change, and that all is there in the end."""
        placed, _ = self.history.expected()
        times = {n: at for messages in self.history.messages for n, at in messages}
        changes = {
            (number, key, times[number], time): diff
            for (key, number, time), diff in self.history.changes(placed).items()
        }
        upper = self.world.upper("events")
        for rebase in self.rebases:
            at, wanted = rebase.contents(), as_rows if rebase.name == "rebased" else as_counts
            for time, reached in rebase.bound():
                assert at(time) == wanted(changes, reached), (rebase.name, time, reached)
            assert rebase.bound()[-1][1] == upper, "it does not go on"
            assert rebase.states[-1][0] > self.world.now - 3_000, "its time stands still"
        self._judge_join()

    def _judge_join(self) -> None:
        world = self.world
        names = ("rebased", "prices", "priced")
        tables = {
            name: duckdb_oracle.updates(world.shards, world.relations[name])[0]
            for name in names
        }
        priced = tables.pop("priced")
        bounds = (self.rebases[0].born, min(world.upper(name) for name in names))
        duckdb_oracle.judge(PRICED, priced, tables, bounds)


Changes = Mapping[tuple[int, str, int | None, int], int]
"""Of each row, its event time in a column and the time of an update, the sum of the diffs."""


def as_rows(changes: Changes, reached: int) -> Contents:
    """The rows of the source as of a frontier."""
    rows = Contents()
    for (*row, time), diff in changes.items():
        rows[tuple(row)] += diff if time < reached else 0
    return Contents({row: count for row, count in rows.items() if count})


def as_counts(changes: Changes, reached: int) -> Contents:
    """The view of the source as of a frontier."""
    return Contents({(key, 1, number): 1 for number, key, _ in as_rows(changes, reached)})


KINDS: list[tuple[LateRows, Where]] = [("place", "value"), ("dead_letter", "record")]


def race(
    seed: int, late_rows: LateRows, where: Where, directory: Path, patch: pytest.MonkeyPatch
) -> Market:
    """The market after a race of two replicas that has settled; judged."""
    rng = random.Random(seed)
    market = Market(patch, late_rows, where)

    def outside(round_: int, act: float) -> None:
        market.world.shards.sync()
        market.look()
        if act > 0.5:
            market.write(rng)
        if round_ == begins:
            market.define()
        if act > 0.95:
            compact(market.world, "events")

    for begins in (rng.choice([0, 60]), -1):  # in the second race much is bound
        number = str(begins)
        replicas = race_at_random(market.world, rng, directory / number, 130, outside)
        market.look()
        for replica in replicas:
            market.settle(replica)
        market.judge()
    return market


@pytest.mark.parametrize(("late_rows", "where"), KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_that_a_rebase_is_what_its_import_was(
    seed: int,
    late_rows: LateRows,
    where: Where,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = race(seed, late_rows, where, tmp_path, monkeypatch)
    for rebase in market.rebases:
        frontiers = {reached for _, reached in rebase.bound()}
        assert len(frontiers) > 2, "it hardly moved"


def lag(directory: Path, patch: pytest.MonkeyPatch) -> None:
    """Again and again the source is ahead of the rebase when its history is let go.

    Its event times are ahead of the clock, too.
    """
    rng, market = random.Random(5), Market(patch)
    world = market.world
    market.define(has_view=False)
    replica = Replica(world, "r", directory)
    for _ in range(3):
        market.write_ahead()
        market.settle(replica)
        (lane,) = replica.scheduler.lanes_of_sources()
        for _ in range(6):
            world.now += 400
            market.write(rng)
            replica.step(lane)
            world.shards.sync()
            market.look()
        assert world.upper("events") > market.rebases[0].bound()[-1][1] + 1, "it is not ahead"
        world.now += 60_000
        replica.maintenance.run_once()
        compact(world, "events")
    market.settle(replica)
    market.judge()


def test_that_what_was_stamped_stays_apart_from_what_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 5."""
    lag(tmp_path, monkeypatch)


def test_that_a_large_snapshot_is_at_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded in slices, during which a replica dies, and more events come."""
    rng, market = random.Random(3), Market(monkeypatch)
    small = Budgets(step_bytes=1, slice_bytes=1, messages=4)
    replica = Replica(market.world, "r", tmp_path / "r", small)
    for _ in range(6):
        market.write(rng)
        market.settle(replica)
    market.define()
    for _ in range(3):
        replica.follow()
        replica.start()
        replica.step("ingest")
    replica.step("hydrate")
    rebased = replica.scheduler.flows[CollectionId("rebased")]
    assert rebased.build is not None
    assert 0 < rebased.build.done < len(rebased.build.slices)
    again = Replica(market.world, "r", tmp_path / "r", small)
    for _ in range(3):
        market.write(rng)
        market.settle(again)
    market.judge()


# Planted defects


def uncompared(patch: pytest.MonkeyPatch) -> None:
    """Who lost takes over the time of the shard alone, and no Append is held up by that."""
    lost_race = appends.lost_race

    def lost(*arguments: Any) -> Any:
        outcome = lost_race(*arguments)
        return None if isinstance(outcome, OffsetsMismatch) else outcome

    def follow(own: Position, shard: Position) -> Follow:
        return Follow(Position(shard.frontier, own.offsets or shard.offsets))

    patch.setattr(appends, "lost_race", lost)
    patch.setattr(appends, "continues_binding", lambda *_: True)
    patch.setattr(rebasing, "decide_lost", follow)


def unheld(patch: pytest.MonkeyPatch) -> None:
    """The import is held at what is bound, and not one time before."""
    patch.setattr(rebasing, "hold", rebasing.bound_frontier)
    unnoticed(patch)


def free(patch: pytest.MonkeyPatch) -> None:
    """The import is not held."""
    patch.setattr(rebasing, "hold", lambda _: frontier(10**9))
    unnoticed(patch)


def unnoticed(patch: pytest.MonkeyPatch) -> None:
    """History that is gone is not noticed."""

    def step(own: Any, inputs: Any, **options: Any) -> Any:
        return stepping.next_step(
            own, [replace(read, since=frontier(0)) for read in inputs], **options
        )

    patch.setattr(rebasing, "next_step", step)


def from_the_next_time(patch: pytest.MonkeyPatch) -> None:
    """Updates at the bound frontier are left out."""
    loads = rebase_planner.loads

    def later(flow: Any, view: Any, decision: Any) -> Any:
        bound = {key: at + 1 for key, at in decision.from_offsets.items()}
        return loads(flow, view, replace(decision, from_offsets=bound))

    patch.setattr(rebase_planner, "loads", later)


def forward_only(patch: pytest.MonkeyPatch) -> None:
    """Event times that are ahead of the clock stay."""
    at = load_inputs._at

    def advanced(loaded: Any, time: Any) -> Any:
        tables = []
        for before, after in zip(loaded, at(loaded, time), strict=True):
            times = pc.max_element_wise(before["time"], after["time"])
            index = after.schema.get_field_index("time")
            tables.append(after.set_column(index, "time", times))
        return tuple(tables)

    patch.setattr(load_inputs, "_at", advanced)


def races(directory: Path, patch: pytest.MonkeyPatch) -> None:
    lag(directory / "lag", patch)
    for seed in range(6):
        race(seed, "place", "value", directory / str(seed), patch)


DEFECTS = (uncompared, unheld, free, from_the_next_time, forward_only)


@pytest.mark.parametrize("defect", DEFECTS)
def test_that_a_defect_is_found(
    defect: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        races(tmp_path, monkeypatch)
