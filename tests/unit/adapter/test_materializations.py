"""Statements about materializations: who is told what, and what is refused."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from schemas.materializations import (
    KIND,
    SPEC_COLUMNS,
    SPECS,
    STATE_COLUMNS,
    STATES,
    Spec,
    State,
)
from streams.adapter import materializing
from streams.adapter.results import Complete, Notice
from streams.adapter.show_materialized import NO_SERVICE, shown
from streams.errors import Corrupt, Determinate, InvalidStatement
from streams.ids import CollectionId, Timestamp
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.small_table import SmallTable
from tests.support.coordinating import NOW, TOTALS, Environment, eventually, with_orders

SHOP = (
    "CREATE MATERIALIZATION shop INTO SQLITE (PATH 'shop.db')"
    " BIND totals (TABLE 'totals'), Orders (TABLE 'log', DELTA UPDATES, SELECT (ID))"
)


def check(task: Mapping[str, object]) -> Sequence[bool | None]:
    if task["connector"] != "sqlite":
        raise InvalidStatement(f"connector {task['connector']} is not known")
    bindings: Any = task["bindings"]
    return [each["resource"].get("delta_updates", False) for each in bindings]


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    monkeypatch.setattr("streams.adapter.upkeep.BEAT_S", 0.05)
    monkeypatch.setattr("streams.adapter.upkeep.LISTEN_MS", 10)
    environment = Environment(check=check)
    with_orders(environment)
    environment.rows(TOTALS)
    yield environment
    environment.stop()


class Runtime:
    """What a service reads and says."""

    def __init__(self, env: Environment) -> None:
        broker = env.broker
        self.shards = Shards(
            broker.logs, broker.chunks, broker.topics, now_ms=lambda: NOW, pump=True
        )
        self.specs = SmallTable(self.shards, SPECS, Description(SPEC_COLUMNS, kind=KIND))
        self.states = SmallTable(self.shards, STATES, Description(STATE_COLUMNS, kind=KIND))

    def wanted(self) -> dict[str, Spec]:
        assert self.specs.find()
        self.shards.sync(SPECS)
        return {each.id: each for each in map(Spec.of, self.specs.rows())}

    def say(self, *states: State) -> None:
        if not self.states.is_owned:
            self.states.own()
        self.states.write([each.row() for each in states])


@pytest.fixture
def runtime(env: Environment) -> Iterator[Runtime]:
    made = Runtime(env)
    yield made
    made.shards.close()


def tasks(runtime: Runtime) -> dict[str, Any]:
    return {id_: spec.task for id_, spec in runtime.wanted().items()}


def test_what_was_created_is_told_with_ids_and_keys(env: Environment, runtime: Runtime) -> None:
    assert env.sql(SHOP)[-1] == Complete("CREATE MATERIALIZATION", {"id": "m3"})
    (spec,) = runtime.wanted().values()
    assert (spec.id, spec.wanted, spec.unbound) == ("m3", "run", ())
    assert spec.task == {
        "task": "shop",
        "connector": "sqlite",
        "config": {"path": "shop.db"},
        "bindings": [
            {"collection": "u2", "key": ["id"], "resource": {"table": "totals"}},
            {
                "collection": "s1",
                "select": ["id"],
                "resource": {"table": "log", "delta_updates": True},
            },
        ],
    }
    assert env.fails(SHOP.replace("shop", "Shop")).message == (
        "materialization shop already exists"
    )
    again = env.sql(SHOP.replace("shop", "IF NOT EXISTS shop", 1))
    assert again[0] == Notice("shop already exists and stays as it is")


def test_settings_are_those_of_a_file(env: Environment, runtime: Runtime) -> None:
    env.rows(f"{SHOP} WITH (SHARDS 2, EVERY_MS 500, SPILL '/var/tmp')")
    task = tasks(runtime)["m3"]
    assert (task["shards"], task["limits"]) == (2, {"every_ms": 500, "spill": "/var/tmp"})
    failed = env.fails(f"{SHOP.replace('shop', 'b')} WITH (EVERY 3)")
    assert failed.message == "setting EVERY is not known"


def test_a_connector_of_somebody_else_is_named_by_its_command(env: Environment) -> None:
    text = "CREATE MATERIALIZATION hook INTO CONNECTOR (%s) BIND totals (RESOURCE '{\"a\": 1}')"
    for options, expected in [
        ("COMMAND './hook'", "connector ./hook is not known"),
        ("ADDRESS 'host:7000', CONFIG '{}'", "connector grpc:host:7000 is not known"),
        ("CONFIG '{}'", "INTO CONNECTOR takes one of COMMAND and ADDRESS"),
        ("COMMAND './a', ADDRESS 'b:1'", "INTO CONNECTOR takes one of COMMAND and ADDRESS"),
        ("COMMAND './a', PATH 'b'", "option PATH of INTO CONNECTOR is not known"),
        ("COMMAND './a', CONFIG '[1]'", "option CONFIG: expected a JSON object, found a list"),
        ("COMMAND 7", "option COMMAND: expected a text in quotes"),
    ]:
        assert env.fails(text % options).message == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("SQLITE", "NOSUCH", "connector nosuch is not known"),
        ("SQLITE", '"./run me"', "connector './run me' is not known"),
        ("BIND totals", "BIND nothing", "nothing does not exist"),
        (", DELTA UPDATES", "", "Orders has no key"),
        ("SELECT (ID)", "KEY (land)", "column land of orders does not exist"),
        ("SELECT (ID)", "KEY 'id'", "option KEY: expected names between parentheses"),
        ("SELECT (ID)", "VERIFY 'maybe'", "option VERIFY of Orders: expected one of never"),
        ("SELECT (ID)", "RESOURCE '{'", "option RESOURCE: expected JSON"),
        ("SELECT (ID)", "DEAD_LETTERS 7", "option DEAD_LETTERS: expected a text in quotes"),
        (" shop ", ' "a shop" ', "a materialization cannot have the name 'a shop'"),
    ],
)
def test_what_is_wrong_is_refused_where_it_enters(
    env: Environment, old: str, new: str, expected: str
) -> None:
    failed = env.fails(SHOP.replace(old, new))
    assert failed.message.lower().startswith(expected.lower())
    assert env.rows("SHOW MATERIALIZATIONS") == []


def test_it_is_altered(env: Environment, runtime: Runtime) -> None:
    env.rows(SHOP)
    env.rows("ALTER MATERIALIZATION Shop PAUSE")
    assert runtime.wanted()["m3"].wanted == "pause"
    again = env.sql("ALTER MATERIALIZATION shop PAUSE")
    assert again[0] == Notice("shop is paused")
    env.rows(
        "ALTER MATERIALIZATION shop RESUME; ALTER MATERIALIZATION shop DROP BINDING ORDERS"
    )
    spec = runtime.wanted()["m3"]
    assert (spec.wanted, spec.unbound) == ("run", ("s1",))
    assert [each["collection"] for each in tasks(runtime)["m3"]["bindings"]] == ["u2"]
    env.rows("ALTER MATERIALIZATION shop ADD orders (TABLE 'o', KEY (id))")
    spec = runtime.wanted()["m3"]
    assert spec.unbound == ()
    assert tasks(runtime)["m3"]["bindings"][1] == {
        "collection": "s1",
        "key": ["id"],
        "resource": {"table": "o"},
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD totals (TABLE 't')", "shop binds totals already"),
        ("ADD nothing (TABLE 't')", "nothing does not exist"),
        ("DROP BINDING nothing", "shop does not bind nothing"),
        ("DROP BINDING totals, orders", "shop would bind nothing"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    env: Environment, change: str, expected: str
) -> None:
    env.rows(SHOP)
    assert env.fails(f"ALTER MATERIALIZATION shop {change}").message == expected
    assert env.fails(f"ALTER MATERIALIZATION shopp {change}").detail == "there are shop"


def test_what_it_binds_is_not_dropped(env: Environment) -> None:
    env.rows(SHOP)
    failed = env.fails("DROP MATERIALIZED VIEW totals")
    assert failed.detail == "what depends on it: materialization shop"
    env.rows("DROP MATERIALIZATION shop; DROP MATERIALIZED VIEW totals")


def test_it_is_forgotten_once_it_holds_nothing(env: Environment, runtime: Runtime) -> None:
    env.rows(SHOP)
    env.rows("DROP MATERIALIZATION shop")
    assert env.rows("SHOW MATERIALIZATIONS") == []
    assert runtime.wanted()["m3"].wanted == "drop"
    assert env.fails("DROP MATERIALIZATION shop").detail == "there is none yet"
    gone = env.sql("DROP MATERIALIZATION IF EXISTS shop")
    assert gone[0] == Notice("materialization shop does not exist")
    env.rows(SHOP)
    assert {id_: each.wanted for id_, each in runtime.wanted().items()} == {
        "m3": "drop",
        "m4": "run",
    }
    runtime.say(State(id="m3", state="dropped"), State(id="m4", state="running"))
    eventually(lambda: list(runtime.wanted()) == ["m4"])


def test_the_next_coordinator_tells_what_the_last_one_did_not(
    env: Environment, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Determinate("no broker")

    env.rows(SHOP)
    with monkeypatch.context() as patched:
        patched.setattr(SmallTable, "write", fail)
        told = env.sql("ALTER MATERIALIZATION shop PAUSE")
        assert told[0] == Notice(
            "shop: the service will be told once brokers answer: no broker"
        )
        env.coordinator.stop()
    env.start()
    eventually(lambda: runtime.wanted()["m3"].wanted == "pause")


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
        committed_ms=7,
        owner="host:8",
        stalls={"totals": "two rows of key 1"},
    )
    runtime.say(state)
    eventually(lambda: env.rows("SHOW MATERIALIZATIONS")[0][4] == "running")
    row = env.rows("SHOW MATERIALIZATIONS")[0]
    assert row[5:] == [3, 4, 5, 6, 7, "host:8", "totals: two rows of key 1"]
    env.rows("ALTER MATERIALIZATION shop PAUSE")
    assert env.rows("SHOW MATERIALIZATIONS")[0][4] == "pausing"


def test_a_silent_service_is_none(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materializing, "SILENT_S", -1.0)
    env.rows(SHOP)
    row = env.rows("SHOW MATERIALIZATIONS")[0]
    assert (row[4], row[-1]) == ("no service", NO_SERVICE)


def test_what_does_not_run_falls_behind(env: Environment) -> None:
    env.rows(SHOP)
    catalog = env.coordinator.catalog.state
    made = catalog.materializations.live["m3"]
    for name, expected in [("running", 5), ("failed", 89)]:
        state = State(id="m3", state=name, time=Timestamp(10), behind_ms=5)
        found = shown(made, state, catalog, Timestamp(100), is_silent=False)
        assert (found.status, found.behind_ms) == (name, expected)


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
    for told in ["[]", "{", "3"]:
        with pytest.raises(Corrupt):
            State.of(("m1", told))
