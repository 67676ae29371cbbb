"""Views whose rows come and go by themselves: through idle times, races, deaths and restarts.

Nothing but time makes a session end. Its view must say so at that very time, whoever steps it,
and its upper must not be beyond the time before it does.
"""

import json
import random
from pathlib import Path

import pytest

from streams.replica.config import Budgets
from tests.support import duckdb_oracle
from tests.support.racing_replicas import SEEDS, race_at_random
from tests.support.sparkless import Replica, World

SESSIONS = (("id", "BIGINT"), ("starts", "BIGINT"), ("ends", "BIGINT"))
VIEWS = {
    "live": (
        "SELECT id, ends FROM sessions WHERE mz_now() >= starts AND mz_now() < ends",
        ("sessions",),
    ),
    "counted": ("SELECT count(*) AS n, max(ends) AS latest FROM live", ("live",)),
    "soon": (
        "SELECT ends, count(*) AS n FROM sessions GROUP BY ends HAVING mz_now() <= ends - 500",
        ("sessions",),
    ),
}


class Sessions:
    """A source of sessions, which begin and end about now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.world.patch(monkeypatch)
        self.raw = self.world.raw("raw-sessions")
        self.produce(self.rng.randrange(10))
        self.world.source("sessions", SESSIONS, self.raw, keys=("id",))

    def views(self) -> None:
        for name, (query, _) in VIEWS.items():
            self.world.view(name, query)

    def produce(self, count: int) -> None:
        for _ in range(count):
            key = self.rng.randrange(12)
            starts = self.world.now + self.rng.choice([-3_000, 0, 900, 20_000])
            value = {
                "starts": starts,
                "ends": starts + self.rng.choice([1, 700, 3_000, 60_000]),
            }
            body = None if self.rng.random() < 0.2 else json.dumps(value).encode()
            self.world.send(self.raw, key % 2, json.dumps({"id": key}).encode(), body)

    def pass_time(self, replica: Replica, duration_ms: int) -> None:
        self.world.now += duration_ms
        replica.settle()

    def check(self) -> int:
        """Every view at every time at which it or an input changes; how many times."""
        world, tried = self.world, 0
        world.shards.sync()
        tables = {}
        for name, relation in world.relations.items():
            tables[name], errors = duckdb_oracle.updates(world.shards, relation)
            assert duckdb_oracle.net(errors) == {}
        for name, (query, inputs) in VIEWS.items():
            born = next(
                description.as_of
                for description in world.descriptions
                if description.export == name
            )
            since = max(born, *(world.since(id_) for id_ in (name, *inputs)))
            upper = min(world.upper(id_) for id_ in (name, *inputs))
            contents = {input_: tables[input_] for input_ in inputs}
            tried += duckdb_oracle.judge(
                query, tables[name], contents, (since, upper), times=60
            )
        return tried


def test_rows_go_though_nothing_arrives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sessions = Sessions(monkeypatch, 1)
    sessions.views()
    replica = Replica(sessions.world, "a", tmp_path / "a")
    sessions.produce(20)
    sessions.pass_time(replica, 2_500)
    for _ in range(8):
        sessions.pass_time(replica, 2_500)
    assert sessions.check() > 15
    sessions.pass_time(replica, 100_000)
    sessions.check()
    flow = replica.scheduler.flows
    assert all(dataflow.scheduled.is_empty for dataflow in flow.values()), (
        "nothing is left to wait for"
    )
    rows, _ = duckdb_oracle.updates(sessions.world.shards, sessions.world.relations["live"])
    assert rows.num_rows
    assert sum(rows["_diff"].to_pylist()) == 0


def test_an_upper_does_not_pass_what_is_pending(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The idle path alone never moves a view over a time at which a row goes."""
    sessions = Sessions(monkeypatch, 2)
    sessions.views()
    replica = Replica(sessions.world, "a", tmp_path / "a")
    sessions.produce(20)
    sessions.pass_time(replica, 2_500)
    flow = next(flow for name, flow in replica.scheduler.flows.items() if name == "live")
    due = flow.scheduled.time
    sessions.world.now = due + 5
    for _ in range(5):
        replica.sync()
        replica.idle()
    sessions.world.shards.sync()
    assert sessions.world.upper("sessions") > due
    assert sessions.world.upper("live") <= due
    replica.settle()
    assert sessions.world.upper("live") > due
    sessions.check()


def test_what_is_pending_outlives_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sessions = Sessions(monkeypatch, 3)
    sessions.views()
    replica = Replica(sessions.world, "a", tmp_path / "a")
    for step in range(6):
        if step < 3:
            sessions.produce(15)
        sessions.pass_time(replica, 2_500)
        replica.maintenance.run_once()
        name = "a" if step % 2 else f"a{step}"  # its own state, or none
        replica = Replica(sessions.world, name, tmp_path / name)
    sessions.pass_time(replica, 30_000)
    assert sessions.check() > 15


def test_a_view_that_is_made_later_has_no_row_that_has_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sessions = Sessions(monkeypatch, 4)
    small = Budgets(step_bytes=1, slice_bytes=1, messages=7)
    replica = Replica(sessions.world, "a", tmp_path / "a", budgets=small)
    for _ in range(5):
        sessions.produce(10)
        sessions.pass_time(replica, 2_500)
    sessions.views()
    for _ in range(4):
        sessions.pass_time(replica, 2_500)
    sessions.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_race_die_and_return(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    sessions = Sessions(monkeypatch, seed)

    def outside(round_: int, chance: float) -> None:
        if round_ == 40:
            sessions.views()
        if chance < 0.07:
            sessions.produce(sessions.rng.randrange(6))

    for replica in race_at_random(sessions.world, sessions.rng, tmp_path, 300, outside):
        sessions.pass_time(replica, 40_000)
    assert sessions.check() > 10
