"""Sources with a watermark: what the statement makes of them, and the timelines."""

import itertools
import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from connectors.runtime.task import Materialization
from streams.adapter.results import Complete, Notice, Progress, Rows
from streams.adapter.sessions import Session
from streams.adapter.timelines import retained, timeline
from streams.app.materialize.catalog_lookup import named
from streams.compute.description import IngestionDescription
from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.metadata import Watermark
from streams.progress import frontier
from streams.storage.policy import LagBehindUpper, RetainHistory
from tests.support.coordinators import NOW, ORDERS, TOTALS, Environment, since
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

S1, E1 = CollectionId("s1"), CollectionId("e1")
S2, E2 = CollectionId("s2"), CollectionId("e2")
CLICKS = (
    "CREATE SOURCE clicks FROM KAFKA (TOPIC 'orders')"
    " (id BIGINT, ts {}, WATERMARK FOR TS AS ts - INTERVAL '5 seconds') FORMAT JSON{}"
)


def with_clicks(env: Environment, type_: str = "TIMESTAMP", clauses: str = "") -> FakeReplica:
    """A replica that knows the source."""
    replica = env.start_replica()
    results = env.sql(CLICKS.format(type_, clauses))
    assert isinstance(results[-1], Complete), results[-1]
    eventually(lambda: bool(replica.created))
    return replica


def described(replica: FakeReplica) -> IngestionDescription:
    source = replica.created[-1].source
    assert source is not None
    return source


@pytest.mark.parametrize("type_", ["timestamp", "TIMESTAMPTZ"])
def test_the_watermark_is_in_the_description(env, type_):
    source = described(with_clicks(env, type_))
    assert source.watermark == Watermark(
        column="ts", delay_ms=5000, late_rows="place", idle_ms=30_000, ahead_ms=86_400_000
    )


@pytest.mark.parametrize("type_", ["DATE", "VARCHAR", "BIGINT", "TIMESTAMP[]"])
def test_an_event_time_is_a_timestamp(env, type_):
    env.start_replica()
    failed = env.fails(CLICKS.format(type_, ""))
    assert failed.message == f"column ts of WATERMARK has the type {type_}"
    assert failed.detail == "expected TIMESTAMP or TIMESTAMP WITH TIME ZONE"


def test_the_timestamp_of_the_record_may_be_the_event_time(env):
    replica = env.start_replica()
    clicks = (
        "CREATE SOURCE clicks FROM KAFKA (TOPIC 'orders') (id BIGINT, WATERMARK FOR sent AS"
        " sent) FORMAT JSON INCLUDE {} AS sent"
    )
    assert env.fails(clicks.format("OFFSET")).message.endswith("has the type BIGINT")
    env.rows(clicks.format("TIMESTAMP"))
    eventually(lambda: bool(replica.created))
    watermark = described(replica).watermark
    assert watermark is not None
    assert watermark.column == "sent"


@pytest.mark.parametrize(
    ("clauses", "letters"),
    [
        (" ON ERROR SKIP WITH (LATE ROWS DEAD LETTER)", E1),
        (" ON ERROR SKIP WITH (LATE ROWS FAIL)", None),
        (" WITH (LATE ROWS FAIL)", E1),
    ],
)
def test_late_rows_that_are_dead_letters_have_a_collection(env, clauses, letters):
    source = described(with_clicks(env, clauses=clauses))
    assert source.dead_letters == letters
    errors_view = env.coordinator.catalog.state.find("clicks.errors")
    assert (errors_view is not None) == (letters is not None)


KEYED = (
    "CREATE SOURCE clicks FROM KAFKA (TOPIC 'orders') (id BIGINT, ts TIMESTAMP,"
    " WATERMARK FOR ts AS ts) FORMAT JSON ENVELOPE UPSERT (KEY (id)) {}"
)


def test_no_key_is_in_error_by_event_time(env):
    replica = env.start_replica()
    said = "ON ERROR INLINE in a source of ENVELOPE UPSERT with a WATERMARK"
    assert env.fails(KEYED.format("ON ERROR INLINE")).message == said
    assert isinstance(env.sql(KEYED.format(""))[-1], Complete)
    eventually(lambda: bool(replica.created))
    source = described(replica)
    assert (source.envelope, source.on_error, source.dead_letters) == (
        "upsert",
        "dead_letter",
        E1,
    )
    assert env.fails("ALTER SOURCE clicks SET (ON ERROR INLINE)").message == said
    assert isinstance(env.sql("ALTER SOURCE clicks SET (ON ERROR SKIP)")[-1], Complete)
    assert isinstance(env.sql("ALTER SOURCE clicks SET (ERROR LIMIT 5)")[-1], Complete)


BOTH = "clicks and orders cannot be read together: they have different timelines"
RECENT = "CREATE MATERIALIZED VIEW recent AS SELECT id, ts FROM clicks"


@pytest.fixture
def both(env: Environment) -> FakeReplica:
    """A replica that knows a source of each timeline: orders, s1, and clicks, s2."""
    replica = env.start_replica()
    for statement in (ORDERS, CLICKS.format("TIMESTAMP", "")):
        assert isinstance(env.sql(statement)[-1], Complete)
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", NOW + 10, [((1, 2.0), NOW, 1)])
    return replica


def click(id_: int, at_ms: int) -> tuple[tuple[object, ...], int, int]:
    return (id_, datetime(1970, 1, 1) + timedelta(milliseconds=at_ms)), at_ms, 1  # noqa: DTZ001


def test_event_times_begin_in_1970(env, both):
    catalog, shards = env.coordinator.catalog.state, env.coordinator.shards
    assert catalog.items[S2].as_of == 0
    for collection in (S2, E2):
        state = shards.state(collection)
        assert (state.since, state.upper) == (frontier(0), frontier(0))
    assert catalog.items[S1].as_of == NOW


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM clicks JOIN orders USING (id)", ("clicks", "orders")),
        ("SELECT id FROM totals UNION ALL SELECT id FROM recent", ("totals", "recent")),
        ('SELECT "offset" FROM clicks.errors, orders', ("clicks.errors", "orders")),
        ("SELECT 1 FROM orders.errors WHERE EXISTS (FROM clicks)", ("orders.errors", "clicks")),
    ],
)
def test_a_query_reads_one_timeline(env, both, query, names):
    for statement in (RECENT, TOTALS):
        assert isinstance(env.sql(statement)[-1], Complete)
    views = len(env.coordinator.catalog.state.items)
    for statement in (query, f"CREATE MATERIALIZED VIEW v AS {query}"):
        failed = env.fails(statement)
        assert failed.message.endswith("cannot be read together: they have different timelines")
        assert all(name in failed.message for name in names)
        assert "has event times" in failed.detail
    assert len(env.coordinator.catalog.state.items) == views


def test_what_has_one_timeline_is_read_together(env, both):
    assert isinstance(env.sql(RECENT)[-1], Complete)
    three = "CREATE MATERIALIZED VIEW v AS SELECT r.id FROM recent r, clicks, clicks.errors e"
    assert isinstance(env.sql(three)[-1], Complete), env.sql(three)
    view_ = env.coordinator.catalog.state.find("v")
    assert timeline(view_, env.coordinator.catalog.state.items) == "event"


def test_a_view_of_constants_has_the_clocks_timeline(env, both):
    assert isinstance(env.sql("CREATE MATERIALIZED VIEW one AS SELECT 1 AS id")[-1], Complete)
    assert "different timelines" in env.fails("SELECT * FROM one, clicks").message
    together = "CREATE MATERIALIZED VIEW v AS SELECT o.id FROM orders o JOIN one USING (id)"
    assert isinstance(env.sql(together)[-1], Complete)


def test_a_materialization_binds_one_timeline(env, both, monkeypatch):
    materializing = env.coordinator.materializing
    monkeypatch.setattr(materializing, "_check", lambda task: [True] * len(task["bindings"]))
    shop = (
        "CREATE MATERIALIZATION shop INTO SQLITE (PATH 'x')"
        " BIND clicks (TABLE 'a', DELTA UPDATES), {} (TABLE 'b', DELTA UPDATES)"
    )
    assert env.fails(shop.format("orders")).message == BOTH
    assert isinstance(env.sql(shop.format("clicks.errors"))[-1], Complete)
    add = "ALTER MATERIALIZATION shop ADD orders (TABLE 'b', DELTA UPDATES)"
    assert env.fails(add).message == BOTH


def test_a_task_in_a_file_binds_one_timeline(env, both):
    def task(*names: str) -> Materialization:
        bindings = [{"collection": name, "resource": {}} for name in names]
        task = {"task": "t", "connector": "sqlite", "config": {}, "bindings": bindings}
        return Materialization.model_validate(task)

    topics, logs = env.broker.topics, env.broker.logs
    with pytest.raises(InvalidStatement, match=BOTH):
        named(task("clicks", "s1"), logs, topics, "sw")
    bound = named(task("clicks", "clicks.errors"), logs, topics, "sw")
    assert [binding.collection for binding in bound.bindings] == [S2, E2]


@pytest.mark.parametrize("policy", ["RETAIN HISTORY FOR '2 seconds'", "LAG BEHIND UPPER '2 s'"])
def test_history_is_counted_behind_upper(env, both, beats, policy):
    env.sql(f"ALTER SOURCE clicks SET ({policy})")
    both.append("s2", 10_000)
    eventually(lambda: since(env, "s2") == 7_999)
    env.sql(RECENT)
    env.sql(f"ALTER MATERIALIZED VIEW recent SET ({policy})")
    eventually(lambda: len(both.created) == 3)
    both.append("u3", 20_000)
    eventually(lambda: since(env, "u3") == 17_999)
    retention = [
        row[7] for text in ("SOURCES", "MATERIALIZED VIEWS") for row in env.rows(f"SHOW {text}")
    ]
    assert retention[1:] == ["2 seconds behind upper"] * 2
    env.now = env.brokers_now = NOW + 86_400_000
    beats()
    assert since(env, "u3") == 17_999


def test_the_errors_of_a_source_keep_their_history_as_it_does(env, both):
    catalog = env.coordinator.catalog.state
    policy = RetainHistory(2000)
    assert retained(policy, timeline(catalog.items[E2], catalog.items)) == LagBehindUpper(2000)
    assert retained(policy, timeline(catalog.items[S1], catalog.items)) == policy


def test_reads_are_at_event_times(env, both):
    env.sql("ALTER SOURCE clicks SET (LAG BEHIND UPPER '1 minute')")
    both.append("s2", 6_000, [click(1, 1_000), click(2, 4_500)])
    ended = env.sql("SELECT id FROM clicks")[-1]
    assert ended == Complete("SELECT 2", {"as_of": 5_999})
    assert env.rows("SELECT id FROM clicks AS OF 4499") == [[1]]
    alive = "SELECT id FROM clicks WHERE mz_now() < ts + INTERVAL '1 second'"
    assert env.rows(alive) == []
    assert env.rows(f"{alive} AS OF 5499") == [[2]]
    stream = env.coordinator.execute("SUBSCRIBE clicks AS OF 1000")
    shown = list(itertools.islice((result for result in stream if isinstance(result, Rows)), 2))
    stream.close()
    assert [json.loads(row)[:3] for part in shown for row in part.rows] == [
        [1000, 1, 1],
        [4500, 1, 2],
    ]


def test_a_session_has_a_time_of_each_timeline(env, both):
    env.sql(RECENT)
    eventually(lambda: len(both.created) == 3)
    both.append("s2", 6_000, [click(1, 1_000)])
    both.append("u3", 3_000)
    session = Session(is_named=True)

    def facts(query: str) -> Mapping[str, object]:
        last = list(env.coordinator.execute(query, session))[-1]
        assert isinstance(last, Complete), last
        return last.facts

    assert facts("SELECT id FROM orders") == {"as_of": NOW + 9, "session_time": NOW + 9}
    times = {"session_time": NOW + 9, "session_event_time": 5_999}
    assert facts("SELECT id FROM clicks") == {"as_of": 5_999, **times}
    assert facts("SELECT id FROM clicks AS OF 5500") == {"as_of": 5_500, **times}
    assert facts("SELECT id FROM orders") == {"as_of": NOW + 9, **times}
    stream = env.coordinator.execute("SELECT id FROM recent", session)
    assert isinstance(next(stream), Progress), "it waits for what the source was read at"
    both.append("u3", 6_000)
    assert list(stream)[-1] == Complete("SELECT 0", {"as_of": 5_999, **times})


def test_a_read_says_that_event_time_waits_for_messages(env, both, monkeypatch):
    monkeypatch.setattr("streams.adapter.collection_reads.BEAT_MS", 10)
    stream = env.coordinator.execute("SELECT id FROM clicks")
    notice = next(notice for notice in stream if isinstance(notice, Notice))
    assert notice.message == (
        "waits for clicks to come to 0: event time moves with messages, and not with the clock"
    )
    both.append("s2", 1)
    assert list(stream)[-1] == Complete("SELECT 0", {"as_of": 0})


def test_a_coordinator_that_starts_again_sends_the_same_source(env, both):
    before = next(description for description in both.created if description.export == S2)
    env.start()
    env.sql("CREATE MATERIALIZED VIEW late AS SELECT id FROM clicks")
    eventually(lambda: both.created[-1].export == "u3")
    assert sum(description.export == S2 for description in both.created) == 1, (
        "reconciled as it was"
    )
    assert before.source == env.coordinator.catalog.state.items[S2].source


def test_a_subscription_moves_the_event_time_of_its_session(env, both):
    session = Session()
    both.append("s2", 6_000, [click(1, 1_000)])
    stream = env.coordinator.execute("SUBSCRIBE clicks", session)
    list(itertools.islice((result for result in stream if isinstance(result, Rows)), 1))
    both.append("s2", 8_000)
    list(itertools.islice((e for e in stream if e == Progress(frontier(8_000))), 1))
    stream.close()
    assert (session.time, session.event_time) == (None, 7_999)


def test_show_has_watermark_delay_and_late_rows(env, both):
    names = [column.name for column in env.sql("SHOW SOURCES")[0].columns]
    assert names[-5:] == ["watermark", "delay", "late", "skipped", "dead_letters"]
    assert [row[8:] for row in env.rows("SHOW SOURCES")] == [
        [None, None, None, None, None],
        [None, "5 seconds", 0, None, None],
    ]
    both.append("s2", NOW + 7)
    eventually(lambda: env.rows("SHOW SOURCES")[1][8] == "2023-11-14 22:13:20.007")
    both.append("s2", 1 << 60)
    eventually(lambda: env.rows("SHOW SOURCES")[1][8] == "9999-12-31 00:00:00")
    assert env.rows("SHOW MATERIALIZED VIEWS") == []


def test_a_source_that_waits_for_event_times_is_not_hydrating(env, both):
    eventually(lambda: env.rows("SHOW SOURCES")[1][4] == "running")


def test_windows_are_read_as_they_are_at_an_event_time(env, both):
    env.sql("ALTER SOURCE clicks SET (LAG BEHIND UPPER '1 hour')")
    both.append("s2", 200_000, [click(1, 1_000), click(2, 59_999), click(3, 60_000)])
    per_minute = (
        "SELECT epoch_ms(minute), n FROM (SELECT time_bucket(INTERVAL '1 minute', ts) AS"
        " minute, count(*) AS n FROM clicks GROUP BY 1) {} ORDER BY 1 AS OF {}"
    )
    assert env.rows(per_minute.format("", 1_000)) == [[0, 1]]
    assert env.rows(per_minute.format("", 60_000)) == [[0, 2], [60_000, 1]]
    closed = "WHERE mz_now() >= minute + INTERVAL '1 minute'"
    assert env.rows(per_minute.format(closed, 60_000)) == [[0, 2]]
    assert env.rows(per_minute.format(closed, 119_999)) == [[0, 2]]
    assert env.rows(per_minute.format(closed, 120_000)) == [[0, 2], [60_000, 1]]
