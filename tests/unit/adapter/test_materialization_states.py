"""What SHOW MATERIALIZATIONS says of what a service says, or fails to say."""

import json
from collections.abc import Iterator, Mapping

import pytest

from schemas.materializations import (
    Spec,
    State,
)
from streams.adapter import materializations, show_materializations
from streams.adapter.metrics import of_materializations
from streams.adapter.show_materializations import NO_SERVICE, shown
from streams.errors import Corrupt
from streams.http.metrics import exposition
from streams.ids import CollectionId, Timestamp
from tests.support.coordinators import Environment
from tests.support.materializing import SHOP, Runtime, with_materializations
from tests.support.processes import eventually


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    monkeypatch.setattr("streams.adapter.reconciler.BEAT_S", 0.05)
    monkeypatch.setattr("streams.adapter.instances.LISTEN_MS", 10)
    environment = with_materializations()
    yield environment
    environment.stop()


@pytest.fixture
def runtime(env: Environment) -> Iterator[Runtime]:
    new_runtime = Runtime(env)
    yield new_runtime
    new_runtime.shards.close()


def test_show_says_what_the_service_says(env: Environment, runtime: Runtime) -> None:
    env.rows(SHOP)
    row = env.rows("SHOW MATERIALIZATIONS")[0]
    assert row[:5] == ["shop", "m3", "sqlite", "totals, orders", "starting"]
    state = State(
        id="m3",
        state="running",
        behind_ms=3,
        behind_rows=4,
        rows=5,
        rows_per_s=6,
        backfill={"done": 1_200, "total": 4_800, "unit": "rows"},
        committed_ms=7,
        errors=9,
        owner="host:8",
        stalls={"totals": "two rows of key 1"},
        dead_letters={"log": 3, "totals": 1},
        left_out={"totals": 1},
    )
    runtime.say(state)
    eventually(lambda: env.rows("SHOW MATERIALIZATIONS")[0][4] == "running")
    row = env.rows("SHOW MATERIALIZATIONS")[0]
    letters = "log: 3 written, 0 left out, totals: 1 written, 1 left out"
    filled, why = "1,200 of 4,800 rows", "totals: two rows of key 1"
    assert row[5:] == [3, 4, 5, 6, filled, 7, 9, letters, "host:8", why]
    env.rows("ALTER MATERIALIZATION shop PAUSE")
    assert env.rows("SHOW MATERIALIZATIONS")[0][4] == "pausing"


@pytest.mark.parametrize(
    "members",
    [
        {"backfill": []},
        {"rows": "many"},
        {"rows": -1},
        {"stalls": 7},
        {"left_out": {"t": None}},
        {"state": ["running"]},
        {"owner": None},
        {"id": "m4"},
    ],
)
def test_a_state_that_is_wrong_costs_no_other_and_heals(
    env: Environment, runtime: Runtime, members: Mapping[str, object]
) -> None:
    """Everything that shows states can show it: SHOW, /status and /metrics."""
    env.rows(SHOP)
    env.rows(SHOP.replace("shop", "other"))
    runtime.say()
    wrong = {**json.loads(State(id="m3").row()[1]), **members}
    runtime.states.write([("m3", json.dumps(wrong)), State(id="m4", state="running").row()])

    def statuses() -> list[tuple[object, object]]:
        return [(row[4], row[-1]) for row in env.rows("SHOW MATERIALIZATIONS")]

    eventually(lambda: statuses()[1] == ("running", ""))
    status, detail = statuses()[0]
    assert status == "failed"
    assert "materializations.states: m3: " in str(detail)
    for materialization in env.coordinator.materialized():
        json.dumps(show_materializations.row(materialization))
    assert exposition(of_materializations(env.coordinator.materialized()))
    runtime.say(State(id="m3", state="running"), State(id="m4", state="running"))
    eventually(lambda: statuses() == [("running", ""), ("running", "")])


def test_a_silent_service_is_none(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materializations, "SILENT_S", -1.0)
    env.rows(SHOP)
    row = env.rows("SHOW MATERIALIZATIONS")[0]
    assert (row[4], row[-1]) == ("no service", NO_SERVICE)


def test_what_does_not_run_falls_behind(env: Environment) -> None:
    env.rows(SHOP)
    catalog = env.coordinator.catalog.state
    materialization = catalog.materializations.live["m3"]
    for name, expected in [("running", 5), ("failed", 89)]:
        state = State(id="m3", state=name, time=Timestamp(10), behind_ms=5)
        shown_row = shown(materialization, state, catalog, Timestamp(100), is_silent=False)
        assert (shown_row.status, shown_row.behind_ms) == (name, expected)


def test_specifications_and_states_are_read_as_they_were_written() -> None:
    spec = Spec(id="m1", wanted="drop", task={"a": ["é"]}, unbound=(CollectionId("u1"),))
    assert Spec.of(spec.row()) == spec
    state = State(id="m1", state="running", stalls={"t": "é"}, time=Timestamp(4))
    assert State.of(state.row()) == state
    later = {**json.loads(state.row()[1]), "new": 1}
    assert State.of(("m1", json.dumps(later))) == state
    for row in [("m1", "run", "{"), ("m1", "fly", spec.row()[2]), ("m1",), ("m1", "run", "{}")]:
        with pytest.raises(Corrupt):
            Spec.of(row)
    for text in ["[]", "{", "3"]:
        with pytest.raises(Corrupt):
            State.of(("m1", text))
