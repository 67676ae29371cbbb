"""EXPLAIN ANALYZE: what the operators of a running view have done, and what they keep."""

import pytest

from streams.adapter.results import Complete, Failed, Notice
from streams.compute.activity import DataflowActivity, OperatorActivity, WorkDone
from streams.compute.controller import response_topic
from streams.compute.protocol import Response
from streams.compute.writer import ResponseWriter
from streams.ids import CollectionId
from tests.support.coordinators import Environment, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT id, count(*) AS n FROM orders GROUP BY id"
ACTIVITY = DataflowActivity(
    CollectionId("u2"),
    elapsed_ms=60_000,
    recent_ms=5_000,
    batches=40,
    recent_batches=5,
    hydration_batches=3,
    micros=9_000,
    recent_micros=2_000,
    operators=(
        OperatorActivity(0, WorkDone(1_000, 50, 50), WorkDone(0, 5, 5)),
        OperatorActivity(2, WorkDone(8_000, 50, 20), WorkDone(2_000, 5, 2), rows=20, bytes=640),
    ),
)


@pytest.fixture
def replica(env: Environment) -> FakeReplica:
    """A replica with orders, s1, and totals, u2."""
    replica = with_orders(env)
    assert isinstance(env.sql(TOTALS)[-1], Complete)
    eventually(lambda: len(replica.created) == 2)
    return replica


def tell(env: Environment, replica: FakeReplica, process: str, *said: Response) -> None:
    writer = ResponseWriter(env.broker.logs, response_topic("sw", "default"), process)
    writer.write(replica.session.nonce, said)
    eventually(lambda: process in env.coordinator.observed.cluster("default").heard)


def notices(env: Environment) -> list[str]:
    done = env.sql("EXPLAIN ANALYZE totals")
    return [said.message for said in done if isinstance(said, Notice)]


def test_each_operator_is_shown_with_its_work_in_each_replica(env, replica) -> None:
    for process in ("r2-1f", "r3-2c"):
        tell(env, replica, process, ACTIVITY)
    rows = env.rows("EXPLAIN ANALYZE totals")
    assert [row[:2] for row in rows[:2]] == [["dataflow", "r2"], ["dataflow", "r3"]]
    assert rows[0][2:] == [9, None, None, 2, None, None, 20, 640]
    reduce = [row for row in rows if row[0].lstrip().startswith("#2 Reduce by")]
    assert [row[1] for row in reduce] == ["r2", "r3"]
    assert reduce[0][2:] == [8, 50, 20, 2, 5, 2, 20, 640]
    source = [row for row in rows if "Source orders" in row[0]]
    assert source[0][0].startswith("  "), "inputs are indented"
    assert source[0][2:] == [1, 50, 50, 0, 5, 5, 0, 0]
    assert env.rows("explain analyze materialized view totals") == rows
    (said, _) = (
        one.message for one in env.sql("EXPLAIN ANALYZE totals") if type(one) is Notice
    )
    assert said.startswith("replica r2 reported ")
    assert "40 micro-batches in 60 s, 3 of them of its hydration" in said
    assert said.endswith("5 of them in the last 5 s")


def test_a_replica_that_is_silent_is_shown_with_its_last_report(
    env, replica, monkeypatch
) -> None:
    tell(env, replica, "r2-1f", ACTIVITY)
    monkeypatch.setattr("streams.compute.replica_responses.SILENCE_S", -1.0)
    (said,) = notices(env)
    assert said.startswith("replica r2 is silent; it last reported ")
    assert env.rows("EXPLAIN ANALYZE totals")[0][2] == 9


def test_a_view_of_which_nothing_is_reported_has_its_plan(env, replica) -> None:
    rows = env.rows("EXPLAIN ANALYZE totals")
    assert rows[0] == ["dataflow", *[None] * 9]
    assert any("Reduce by" in row[0] for row in rows)
    (said,) = notices(env)
    assert said == "no replica has reported work of it yet; each does within some seconds"


def test_the_picture_has_the_work_too(env, replica) -> None:
    tell(env, replica, "r2-1f", ACTIVITY)
    ((picture,),) = env.rows("EXPLAIN ANALYZE AS SVG totals")
    assert picture.startswith("<svg")
    text = " ".join(picture.split())
    assert "keeps 20 rows, 640 bytes" in text
    assert not [one for one in env.sql("EXPLAIN ANALYZE AS SVG totals") if type(one) is Notice]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("EXPLAIN ANALYZE orders", "orders is a source"),
        ("EXPLAIN ANALYZE nothing", "nothing does not exist"),
        ("EXPLAIN ANALYZE slackwater.peeks", "slackwater.peeks can be read only by SELECT"),
        ("EXPLAIN ANALYZE SELECT 1", "expected the name of a materialized view, which runs"),
    ],
)
def test_what_is_no_running_view_is_refused(env, replica, statement, message) -> None:
    done = env.sql(statement)[-1]
    assert isinstance(done, Failed)
    assert done.message.startswith(message)
