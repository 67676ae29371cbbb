"""Views with EMIT ON CLOSE in the catalog: where they may be, and their plan from birth on."""

from collections.abc import Mapping
from dataclasses import replace

from streams.adapter.catalog import Catalog, Item
from streams.adapter.plan_cache import Plans
from streams.adapter.results import Complete, Notice
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column, EmitOnClose
from tests.support.coordinators import ORDERS, Environment
from tests.support.processes import eventually
from tests.support.replica import FakeReplica
from tests.unit.adapter.items import view

CLICKS = (
    "CREATE SOURCE clicks FROM KAFKA (TOPIC 'orders')"
    " (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') FORMAT JSON"
)
QUERY = (
    "SELECT time_bucket(INTERVAL '1 minute', ts) AS s, count(*) AS n FROM {} GROUP BY s"
    " EMIT ON CLOSE (s + INTERVAL '1 minute')"
)
WINDOWS = f"CREATE MATERIALIZED VIEW windows AS {QUERY.format('clicks')}"


def with_windows(env: Environment) -> FakeReplica:
    """A replica that knows the source, and the view, which was born at 7."""
    replica = env.start_replica()
    env.rows(CLICKS)
    eventually(lambda: len(replica.created) == 1)
    replica.append("s1", 8)
    env.rows(WINDOWS)
    eventually(lambda: len(replica.created) == 2)
    return replica


def last_node(replica: FakeReplica) -> object:
    return plans.loads(replica.created[-1].plan).nodes[-1]


def test_the_plan_of_the_dataflow_knows_its_first_time(env: Environment) -> None:
    replica = with_windows(env)
    assert replica.created[-1].as_of == 7
    assert last_node(replica) == EmitOnClose(3, 2, 7)


def test_the_plan_is_the_same_after_a_restart_at_a_later_time(env: Environment) -> None:
    replica = with_windows(env)
    first = replica.created[-1]
    replica.append("s1", 90_000)
    env.start()
    again = env.start_replica()
    eventually(lambda: len(again.created) == 2)
    assert again.created[-1] == first


def test_what_keeps_rows_of_closed_windows_is_said_when_the_view_is_created(
    env: Environment,
) -> None:
    with_windows(env)
    query = (
        "SELECT ts AS window_end, id, count(*) OVER (ORDER BY ts, id ROWS BETWEEN"
        " 9 PRECEDING AND CURRENT ROW) AS n FROM {} EMIT ON CLOSE"
    )
    notice, done = env.sql(f"CREATE MATERIALIZED VIEW moving AS {query.format('clicks')}")
    assert isinstance(done, Complete)
    assert isinstance(notice, Notice)
    assert notice.message.startswith("OVER keeps all rows of clicks, also of windows that have")
    way_out = notice.message.split("FROM ", 1)[1]
    bounded = f"CREATE MATERIALIZED VIEW bounded AS {query.format(way_out)}"
    assert [type(result) for result in env.sql(bounded)] == [Complete]


def test_it_is_shown(env: Environment) -> None:
    with_windows(env)
    env.rows("CREATE MATERIALIZED VIEW plain AS SELECT * FROM windows")
    shown = {row[0]: row[8] for row in env.rows("SHOW MATERIALIZED VIEWS")}
    assert shown == {"windows": "on close", "plain": None}
    lines = [row[0] for row in env.rows("EXPLAIN SELECT n FROM windows")]
    assert any("Get windows" in str(line) and "append-only" in str(line) for line in lines)
    lines = [row[0] for row in env.rows(f"EXPLAIN {QUERY.format('clicks')}")]
    assert any(str(line).startswith("EmitOnClose at ") for line in lines)


def test_times_of_ingestion_close_no_windows(env: Environment) -> None:
    env.start_replica()
    env.rows(ORDERS)
    query = (
        "SELECT id, TIMESTAMP '2024-01-01' + INTERVAL 1 SECOND * id AS window_end FROM orders"
    )
    failed = env.fails(f"CREATE MATERIALIZED VIEW late AS {query} EMIT ON CLOSE")
    assert failed.message == "EMIT ON CLOSE in late, whose inputs have times of ingestion"
    assert "dropped silently" in failed.detail
    assert "WATERMARK" in failed.hint
    assert env.coordinator.catalog.state.find("late") is None


def test_a_select_has_no_such_clause(env: Environment) -> None:
    with_windows(env)
    failed = env.fails(QUERY.format("clicks"))
    assert failed.message == "EMIT ON CLOSE in a SELECT"
    assert isinstance(env.sql("SELECT 1 AS close")[-1], Complete)


def test_there_is_no_plan_before_the_birth() -> None:
    closed: list[Timestamp | None] = []

    def planner(item: Item, _: Catalog) -> str:
        closed.append(item.as_of)
        return item.name

    cache, unborn = Plans(planner), replace(view(2, "v"), query=QUERY.format("clicks"))
    cache.prepare([unborn], Catalog())
    assert closed == []
    assert cache.of(replace(unborn, as_of=Timestamp(3)), Catalog()) == "v"
    assert closed == [3]


TS = Relation(CollectionId("s1"), (Column("id", "BIGINT"), Column("ts", "TIMESTAMP")))


def test_keys_are_those_of_all_windows() -> None:
    """Rows of one key, of which there is one at a time, come out one after the other."""
    keys: Mapping[str, tuple[str, ...] | None] = {
        "SELECT ts, count(*) AS n FROM t GROUP BY ts EMIT ON CLOSE (ts + INTERVAL 1 DAY)": (
            "ts",
        ),
        "SELECT id, max(ts) AS last FROM t GROUP BY id EMIT ON CLOSE (last)": ("id", "last"),
        "SELECT id, max(ts) AS x FROM t GROUP BY id EMIT ON CLOSE (x + INTERVAL 1 DAY)": None,
        "SELECT max(ts) AS last FROM t EMIT ON CLOSE (last)": ("last",),
        "SELECT id, ts FROM t EMIT ON CLOSE (ts)": None,
    }
    for query, key in keys.items():
        compiled = compile_view(query, {"t": TS})
        places = compiled.key
        key_names = None if places is None else tuple(compiled.columns[p].name for p in places)
        assert key_names == key, query
