"""Statements about materializations: who is told what, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.materializations import (
    State,
)
from streams.adapter.results import Complete, Notice
from streams.app.materialize import task_validation
from streams.errors import Determinate
from streams.storage.small_table import SmallTable
from tests.support.coordinators import Environment
from tests.support.materializing import KEYED, SHOP, Runtime, with_materializations
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


def tasks(runtime: Runtime) -> dict[str, Any]:
    return {id_: spec.task for id_, spec in runtime.wanted().items()}


def test_dead_letters_are_bound_without_a_key(env: Environment, runtime: Runtime) -> None:
    letters = (
        "CREATE MATERIALIZATION e INTO SQLITE (PATH 'e.db') BIND orders.errors (TABLE 'e'{})"
    )
    assert "orders.errors has no key" in env.fails(letters.format("")).message
    assert isinstance(env.sql(letters.format(", DELTA UPDATES"))[-1], Complete)
    ((binding,),) = (task["bindings"] for task in tasks(runtime).values())
    assert binding["collection"] == "e1"


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
    assert again[0] == Notice("shop already exists and is unchanged")


def test_settings_are_those_of_a_file(env: Environment, runtime: Runtime) -> None:
    env.rows(f"{KEYED} WITH (SHARDS 2, EVERY_MS 500, SPILL '/var/tmp')")
    task = tasks(runtime)["m3"]
    assert (task["shards"], task["limits"]) == (2, {"every_ms": 500, "spill": "/var/tmp"})
    failed = env.fails(f"{SHOP.replace('shop', 'b')} WITH (EVERY 3)")
    assert failed.message == "setting EVERY is not known"


def test_a_backfill_by_spark_is_stated_and_altered(env: Environment, runtime: Runtime) -> None:
    by = "BACKFILL BY SPARK, BACKFILL MASTER 'local[4,4]', BACKFILL RANGES 16"
    env.rows(f"{KEYED} WITH (ROWS 9, {by})")
    task = tasks(runtime)["m3"]
    assert task["backfill"] == {"by": "spark", "master": "local[4,4]", "ranges": 16}
    assert task["limits"] == {"rows": 9}
    env.rows("ALTER MATERIALIZATION shop SET WITH (BACKFILL RANGES = 8)")
    env.rows("ALTER MATERIALIZATION shop RESET WITH (BACKFILL MASTER, ROWS)")
    task = tasks(runtime)["m3"]
    assert (task["backfill"], "limits" in task) == ({"by": "spark", "ranges": 8}, False)
    alone = "ALTER MATERIALIZATION shop RESET WITH (BACKFILL BY)"
    assert env.fails(alone).message == "BACKFILL RANGES: expected together with BACKFILL BY"
    env.rows("ALTER MATERIALIZATION shop RESET WITH (BACKFILL BY, BACKFILL RANGES)")
    assert "backfill" not in tasks(runtime)["m3"]
    for spelled in ("BACKFILL BY 'Spark'", "BACKFILL BY = SPARK", "backfill by spark"):
        env.rows(f"ALTER MATERIALIZATION shop SET WITH ({spelled})")
        assert tasks(runtime)["m3"]["backfill"] == {"by": "spark"}


def test_what_cannot_be_divided_is_refused_with_the_way_out(env: Environment) -> None:
    for settings, expected in [
        ("BACKFILL BY SPARK", "BACKFILL BY SPARK: orders has no key by which its rows could"),
        ("SHARDS 2", "SHARDS 2: orders has no key by which its rows could be divided"),
        ("BACKFILL BY FLINK", "BACKFILL BY: expected SPARK, actual flink"),
        ("BACKFILL BY 7", "expected a word as the value of option BACKFILL_BY"),
        ("BACKFILL BY", "expected a word as the value of option BACKFILL_BY"),
        ("BACKFILL RANGES 2", "BACKFILL RANGES: expected together with BACKFILL BY"),
        ("BACKFILL 'spark'", "setting BACKFILL is not known"),
    ]:
        assert env.fails(f"{SHOP} WITH ({settings})").message.startswith(expected)
    assert "BACKFILL BY" in env.fails(f"{SHOP} WITH (BACKFILL 'spark')").detail
    assert env.rows("SHOW MATERIALIZATIONS") == []


def test_a_connector_of_somebody_else_is_named_by_its_command(env: Environment) -> None:
    text = "CREATE MATERIALIZATION hook INTO CONNECTOR (%s) BIND totals (RESOURCE '{\"a\": 1}')"
    for options, expected in [
        ("COMMAND './hook'", "connector ./hook is not known"),
        ("ADDRESS 'host:7000', CONFIG '{}'", "connector grpc:host:7000 is not known"),
        ("CONFIG '{}'", "INTO CONNECTOR takes one of COMMAND and ADDRESS"),
        ("COMMAND './a', ADDRESS 'b:1'", "INTO CONNECTOR takes one of COMMAND and ADDRESS"),
        ("COMMAND './a', PATH 'b'", "option PATH of INTO CONNECTOR is not known"),
        ("COMMAND './a', CONFIG '[1]'", "option CONFIG: expected a JSON object, actual a list"),
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
    assert [binding["collection"] for binding in tasks(runtime)["m3"]["bindings"]] == ["u2"]
    env.rows("ALTER MATERIALIZATION shop ADD orders (TABLE 'o', KEY (id))")
    spec = runtime.wanted()["m3"]
    assert spec.unbound == ()
    assert tasks(runtime)["m3"]["bindings"][1] == {
        "collection": "s1",
        "key": ["id"],
        "resource": {"table": "o"},
    }


def test_options_are_altered_and_the_rest_stays(env: Environment, runtime: Runtime) -> None:
    env.rows(f"{KEYED} WITH (SHARDS 2, EVERY_MS 500)")
    env.rows(
        "ALTER MATERIALIZATION shop SET (PATH = 'other.db');"
        "ALTER MATERIALIZATION shop SET WITH (ROWS = 9);"
        "ALTER MATERIALIZATION shop RESET WITH (SHARDS, EVERY_MS);"
        "ALTER MATERIALIZATION shop ALTER BINDING TOTALS SET (BACKFILL = 1, VERIFY 'ALWAYS');"
        "ALTER MATERIALIZATION shop ALTER BINDING orders RESET (SELECT, KEY)"
    )
    spec = runtime.wanted()["m3"]
    assert (spec.wanted, spec.unbound) == ("run", ())
    assert spec.task == {
        "task": "shop",
        "connector": "sqlite",
        "config": {"path": "other.db"},
        "limits": {"rows": 9},
        "bindings": [
            {
                "collection": "u2",
                "key": ["id"],
                "verify": "always",
                "resource": {"table": "totals", "backfill": 1},
            },
            {"collection": "s1", "resource": {"table": "log", "delta_updates": True}},
        ],
    }
    again = env.sql("ALTER MATERIALIZATION shop SET (PATH 'other.db')")
    assert again[0] == Notice("shop is unchanged")


def test_a_key_that_is_reset_is_that_of_the_definition(
    env: Environment, runtime: Runtime
) -> None:
    env.rows(SHOP.replace("'totals'", "'totals', KEY (total)"))
    assert tasks(runtime)["m3"]["bindings"][0]["key"] == ["total"]
    failed = env.fails("ALTER MATERIALIZATION shop ALTER BINDING totals RESET (KEY)")
    assert failed.message == "KEY (id) of totals does not match the existing table"
    assert failed.hint.startswith("add BACKFILL = 1 to the statement")
    env.rows("ALTER MATERIALIZATION shop ALTER BINDING totals SET (KEY (id), BACKFILL 1)")
    env.rows("ALTER MATERIALIZATION shop ALTER BINDING totals RESET (KEY)")
    assert tasks(runtime)["m3"]["bindings"][0]["key"] == ["id"]


@pytest.mark.parametrize(
    "options",
    [
        "KEY (total), BACKFILL 1",
        "DELTA UPDATES, BACKFILL 1",
        "KEY (total), TABLE 'elsewhere'",
    ],
)
def test_another_shape_is_that_of_a_table_that_is_made_anew(
    env: Environment, options: str
) -> None:
    env.rows(SHOP)
    env.rows(f"ALTER MATERIALIZATION shop ALTER BINDING totals SET ({options})")
    env.rows("ALTER MATERIALIZATION shop ALTER BINDING orders SET (KEY (amount))")


def test_other_columns_alone_leave_the_rows_that_are_there(env: Environment) -> None:
    env.rows(SHOP)
    alter = "ALTER MATERIALIZATION shop ALTER BINDING orders"
    results = env.sql(f"{alter} SET (SELECT (ID, amount))")
    assert isinstance(results[0], Notice)
    assert "raise BACKFILL to rewrite them" in results[0].message
    assert len(env.sql(f"{alter} SET (SELECT (id), BACKFILL 1)")) == 1


def test_a_connector_of_somebody_else_is_altered_by_how_it_is_reached(
    env: Environment, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env.coordinator.materializing, "_check", lambda _: [None])
    env.rows(
        "CREATE MATERIALIZATION hook INTO CONNECTOR (COMMAND './a', CONFIG '{\"x\": 1}')"
        ' BIND totals (RESOURCE \'{"path": "t", "n": 1}\')'
    )

    def altered(change: str) -> tuple[object, object, object]:
        env.rows(f"ALTER MATERIALIZATION hook {change}")
        task = tasks(runtime)["m3"]
        return task["connector"], task["config"], task["bindings"][0]["resource"]

    resource = {"path": "t", "n": 1}
    assert altered("SET (CONFIG '{\"y\": 2}')") == ("./a", {"y": 2}, resource)
    assert altered("SET (ADDRESS 'h:1')") == ("grpc:h:1", {"y": 2}, resource)
    assert altered("SET (COMMAND './b')") == ("./b", {"y": 2}, resource)
    assert altered("RESET (CONFIG)") == ("./b", {}, resource)
    alter = "ALTER BINDING totals"
    assert altered(f"{alter} RESET (N)") == ("./b", {}, {"path": "t"})
    assert altered(f"{alter} SET (RESOURCE '{{\"q\": 1}}')") == ("./b", {}, {"q": 1})
    failed = env.fails("ALTER MATERIALIZATION hook RESET (COMMAND)")
    assert failed.message == "INTO CONNECTOR takes one of COMMAND and ADDRESS"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("SET (HOTS = 'db2')", "INTO: option hots is not known: did you mean host?"),
        ("SET (PORT = 'x')", "INTO.port: expected integer, actual a text"),
        ("SET (PASSWORD = 'hunter2')", "INTO.password: expected 'env:NAME' or 'file:PATH'"),
        ("RESET (HOST)", "INTO: option host is missing"),
        (
            "SET WITH (SHARDS 4)",
            "materialization: shards: expected 1 of a task with dead letters, actual 4 and"
            " dead_letters dead: set shards to 1, or leave dead_letters out",
        ),
        ("SET WITH (SHARDS 0)", "materialization: shards: Input should be greater than"),
        ("ALTER BINDING totals SET (BACKFIL 1)", "BIND: option backfil is not known"),
        ("ALTER BINDING totals SET (BACKFILL 'x')", "BIND.backfill: expected integer"),
        ("ALTER BINDING totals SET (DEAD_LETTERS 'a b')", "materialization: bindings.0.dead"),
    ],
)
def test_an_altered_option_is_judged_by_its_connector(
    env: Environment, monkeypatch: pytest.MonkeyPatch, change: str, expected: str
) -> None:
    monkeypatch.setattr(env.coordinator.materializing, "_check", task_validation.check)
    env.rows(
        "CREATE MATERIALIZATION shop INTO POSTGRES (HOST 'db', DATABASE 'shop', USER 'u',"
        " PASSWORD 'env:PGPASSWORD') BIND totals (TABLE 'totals', DEAD_LETTERS 'dead')"
    )
    version = env.coordinator.catalog.state.version
    failed = env.fails(f"ALTER MATERIALIZATION shop {change}")
    assert failed.message.startswith(expected)
    assert "hunter2" not in f"{failed.message} {failed.detail} {failed.hint}"
    assert env.coordinator.catalog.state.version == version


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("SET WITH (EVERY 3)", "setting EVERY is not known"),
        ("RESET (PORT)", "option PORT is not set, so it cannot be reset"),
        ("RESET WITH (SHARDS)", "option SHARDS is not set, so it cannot be reset"),
        ("ALTER BINDING nothing SET (BACKFILL 1)", "shop does not bind nothing"),
        (
            "ALTER BINDING totals RESET (VERIFY)",
            "option VERIFY is not set, so it cannot be reset",
        ),
        ("ALTER BINDING totals SET (KEY (land))", "column land of totals does not exist"),
        (
            "ALTER BINDING totals SET (BACKFILL 2)",
            "option BACKFILL of totals: expected at least 3, actual 2",
        ),
        (
            "ALTER BINDING totals RESET (BACKFILL)",
            "option BACKFILL of totals: expected at least 3, actual 0",
        ),
        (
            "ALTER BINDING totals SET (KEY (total))",
            "KEY (total) of totals does not match the existing table",
        ),
        (
            "ALTER BINDING totals SET (DELTA UPDATES)",
            "DELTA UPDATES of totals does not match the existing table",
        ),
        (
            "ALTER BINDING orders RESET (DELTA UPDATES)",
            "DELTA UPDATES of orders does not match the existing table",
        ),
        ("ADD totals (TABLE 't')", "shop binds totals already"),
        ("ADD nothing (TABLE 't')", "nothing does not exist"),
        ("DROP BINDING nothing", "shop does not bind nothing"),
        ("DROP BINDING totals, orders", "shop would bind nothing"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    env: Environment, change: str, expected: str
) -> None:
    env.rows(SHOP.replace("'totals'", "'totals', BACKFILL 3"))
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
    results = env.sql("DROP MATERIALIZATION IF EXISTS shop")
    assert results[0] == Notice("materialization shop does not exist")
    env.rows(SHOP)
    assert {id_: spec.wanted for id_, spec in runtime.wanted().items()} == {
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
        results = env.sql("ALTER MATERIALIZATION shop PAUSE")
        assert results[0] == Notice(
            "shop: the service will be notified once brokers answer: no broker"
        )
        env.coordinator.stop()
    env.start()
    eventually(lambda: runtime.wanted()["m3"].wanted == "pause")
