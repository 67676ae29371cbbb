"""System relations: what SELECT reads of the coordinator and the replicas."""

from dataclasses import replace
from pathlib import Path

import pytest

from streams.adapter.results import Columns, Complete, Failed, Progress
from streams.adapter.system_columns import COLUMNS
from streams.compute.activity import (
    DataflowActivity,
    LaneActivity,
    OperatorActivity,
    ReplicaActivity,
    WorkDone,
)
from streams.compute.controller import response_topic
from streams.compute.peeks import Peek, PeekTarget
from streams.compute.protocol import Frontiers, Hydration, Response, Status
from streams.compute.writer import ResponseWriter
from streams.ids import CollectionId, Timestamp
from streams.progress import frontier
from tests.support.coordinators import NOW, Environment, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT id, count(*) AS n FROM orders GROUP BY id"
U2 = CollectionId("u2")
ACTIVITY = DataflowActivity(
    U2,
    elapsed_ms=60_000,
    recent_ms=5_000,
    batches=40,
    recent_batches=5,
    hydration_batches=3,
    micros=9_000,
    recent_micros=700,
    operators=(
        OperatorActivity(0, WorkDone(100, 50, 50), WorkDone(10, 5, 5)),
        OperatorActivity(2, WorkDone(800, 50, 20), WorkDone(60, 5, 2), rows=20, bytes=640),
        OperatorActivity(99, rows=1, bytes=1),
    ),
)


@pytest.fixture
def replica(env: Environment) -> FakeReplica:
    """A replica with orders, s1, and totals, u2."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1)])
    assert isinstance(env.sql(TOTALS)[-1], Complete)
    eventually(lambda: len(replica.created) == 2)
    return replica


def tell(env: Environment, replica: FakeReplica, *responses: Response) -> None:
    """Have another replica, r2, say something, and wait until it is known."""
    writer = ResponseWriter(env.broker.logs, response_topic("sw", "default"), "r2-1f")
    writer.write(replica.session.nonce, responses)
    eventually(lambda: "r2-1f" in env.coordinator.observed.cluster("default").heard)


def test_every_relation_can_be_read(env: Environment, replica: FakeReplica) -> None:
    lanes = ReplicaActivity((LaneActivity("ingest", 4, 50, 1, 2, 3),))
    tell(env, replica, ACTIVITY, lanes)
    for name, columns in COLUMNS.items():
        done = env.sql(f"SELECT * FROM slackwater.{name}")
        assert isinstance(done[-1], Complete), (name, done)
        head = done[0]
        assert isinstance(head, Columns)
        assert [c.name for c in head.columns] == [c.name for c in columns]
    rows = env.rows("SELECT lane, phase, ms FROM slackwater.phases ORDER BY ms")
    assert rows == [["ingest", "plan", 1], ["ingest", "tasks", 2], ["ingest", "commit", 3]]
    assert env.rows("SELECT replica, batches, rows FROM slackwater.lanes") == [["r2", 4, 50]]


def test_operators_have_their_work_and_arrangements_their_size(env, replica) -> None:
    tell(env, replica, ACTIVITY)
    columns = "operator, level, micros, rows_in, rows_out, recent_micros"
    operators = env.rows(f"SELECT {columns} FROM slackwater.operators ORDER BY operator")
    assert operators[:2] == [[0, 0, 100, 50, 50, 10], [2, 1, 800, 50, 20, 60]]
    assert operators[2][:2] == [99, None], "it is no operator of the plan"
    kept = env.rows(
        "SELECT a.name, a.replica, a.rows, a.bytes, a.description, o.status"
        " FROM slackwater.arrangements a JOIN slackwater.objects o USING (id)"
        " WHERE a.level > 0"
    )
    (name, other, rows, size, description, _) = kept[0]
    assert (name, other, rows, size) == ("totals", "r2", 20, 640)
    assert description.startswith("Reduce by")
    (reported, elapsed) = env.rows(
        "SELECT reported_ms, elapsed_ms FROM slackwater.dataflows WHERE replica = 'r2'"
    )[0]
    assert 0 <= reported < 60_000
    assert elapsed == 60_000


def test_frontiers_and_hydration_are_those_of_show(env, replica) -> None:
    tell(env, replica, Status(U2, "hydrating", "so"), Hydration(U2, 3, 9, 2))
    rows = env.rows(
        "SELECT name, status, message, done, total, seconds_left FROM slackwater.hydration"
        " WHERE replica = 'r2'"
    )
    assert rows == [["totals", "hydrating", "so", 3, 9, 2]]
    shown = env.rows("SHOW SOURCES")[0]
    assert env.rows(
        "SELECT id, name, since, upper FROM slackwater.frontiers WHERE name = 'orders'"
    ) == [[shown[1], shown[0], shown[2], shown[3]]]


def test_what_the_furthest_replicas_have_read_and_computed_are_frontiers(env, replica) -> None:
    computed = "SELECT input, output FROM slackwater.frontiers WHERE name = 'totals'"
    ahead, behind = frontier(NOW + 9_000), frontier(NOW + 8_000)
    less = frontier(NOW + 7_000)
    tell(env, replica, Frontiers(U2, None, less, ahead), Frontiers(U2, None, behind, less))
    eventually(lambda: env.rows(computed) == [[NOW + 9_000, NOW + 8_000]])


def test_an_open_peek_is_seen(env, replica) -> None:
    target = PeekTarget(CollectionId("s1"), "s1", None)
    peek = Peek(
        uuid="p1", target=target, time=Timestamp(NOW), plan="", project=(), most_bytes=1
    )
    env.coordinator.instances.of("default").peek(peek)
    assert env.rows("SELECT uuid, name, index_id, time FROM slackwater.peeks") == [
        ["p1", "orders", None, NOW]
    ]


def test_a_subscribe_that_runs_is_seen_until_it_ends(env, replica) -> None:
    seen = "SELECT name, reader, replica, as_of, until, upper FROM slackwater.subscribes"
    assert env.rows(seen) == []
    streams = [
        env.coordinator.execute(f"SUBSCRIBE orders AS OF {NOW + 3} UP TO {NOW + 90}"),
        env.coordinator.execute(f"SUBSCRIBE orders AS OF {NOW + 4} WITH (REPLICAS)"),
    ]
    for stream in streams:
        while not isinstance(next(stream), Columns):
            pass
    next(result for result in streams[0] if result == Progress(frontier(NOW + 10)))
    coordinator = ["orders", "coordinator", None, NOW + 3, NOW + 90, NOW + 10]
    assert env.rows(seen) == [coordinator]
    next(streams[1])
    replicas = ["orders", "replicas", None, NOW + 4, None, NOW + 4]
    assert env.rows(f"{seen} ORDER BY as_of") == [coordinator, replicas]
    for stream in streams:
        stream.close()
    assert env.rows(seen) == []


def test_they_are_joined_with_collections_of_users(env, replica) -> None:
    rows = env.rows(
        "SELECT o.id, f.upper FROM orders o, slackwater.frontiers f WHERE f.name = 'orders'"
    )
    assert rows == [[1, NOW + 10]]


def test_what_is_said_of_no_object_is_left_out(env, replica) -> None:
    tell(env, replica, Status(CollectionId("u77"), "running"), ACTIVITY)
    assert env.rows("SELECT * FROM slackwater.hydration WHERE id = 'u77'") == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM slackwater.frontiers",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM orders o, slackwater.frontiers",
        "SUBSCRIBE slackwater.frontiers",
        "CREATE INDEX i ON slackwater.frontiers (id)",
        "CREATE SINK k FROM slackwater.frontiers INTO KAFKA (TOPIC 't') KEY (id)",
    ],
)
def test_a_view_over_them_is_refused(env, replica, statement: str) -> None:
    done = env.sql(statement)[-1]
    assert isinstance(done, Failed)
    assert done.message == "slackwater.frontiers can be read only by SELECT"


def test_they_are_read_as_of_now(env, replica) -> None:
    done = env.sql("SELECT * FROM slackwater.frontiers AS OF 5")[-1]
    assert isinstance(done, Failed)
    assert done.message == "slackwater.frontiers cannot be read AS OF 5"
    facts = env.sql("SELECT id FROM slackwater.frontiers WHERE mz_now() > 1000")[-1].facts
    assert facts["as_of"] == env.coordinator._now_ms()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM slackwater.nothing",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM slackwater.nothing",
    ],
)
def test_an_unknown_one_is_refused_with_those_there_are(env, replica, statement) -> None:
    done = env.sql(statement)[-1]
    assert isinstance(done, Failed)
    assert done.message == 'table with name "slackwater.nothing" does not exist'
    assert done.hint.startswith("there are slackwater.objects, slackwater.frontiers")


def test_an_object_of_the_same_name_comes_first(env, replica) -> None:
    env.rows('CREATE MATERIALIZED VIEW "slackwater.peeks" AS SELECT 5 AS five')
    columns = env.sql("EXPLAIN SELECT * FROM slackwater.peeks")
    assert "five" in str(columns)


def test_the_examples_of_the_page_can_be_read(env, replica) -> None:
    tell(env, replica, ACTIVITY, replace(ACTIVITY, id=CollectionId("s1"), recent_ms=0))
    page = Path("streams/docs/SQL.md").read_text()
    section = page.split("## System relations")[1].split("## Over HTTP")[0]
    examples = section.split("```sql")[1].split("```")[0]
    done = env.sql(examples)
    assert not [said for said in done if isinstance(said, Failed)]
    assert sum(isinstance(said, Complete) for said in done) == examples.count(";")
