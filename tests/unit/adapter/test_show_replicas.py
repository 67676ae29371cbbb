"""SHOW CLUSTER REPLICAS: each live replica, and what it does."""

from streams.adapter.results import Complete
from streams.compute.controller import response_topic
from streams.compute.protocol import Status
from streams.compute.writer import ResponseWriter
from streams.ids import CollectionId
from tests.support.coordinators import with_orders
from tests.support.processes import eventually

TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM orders"


def test_each_replica_says_what_it_owns_and_how_its_dataflows_are(env) -> None:
    owner = with_orders(env)
    env.rows(TOTALS)
    eventually(lambda: len(owner.created) == 2)
    responses = response_topic("sw", "default")
    other = ResponseWriter(env.broker.logs, responses, "r2-1f")
    other.write(
        owner.session.nonce,
        [Status(CollectionId("s1"), "standby"), Status(CollectionId("u2"), "hydrating")],
    )

    def shown() -> list[list[object]]:
        rows: list[list[object]] = env.rows("SHOW CLUSTER REPLICAS")
        return rows

    eventually(lambda: len(shown()) == 2 and shown()[1][6] == 1)
    (first, second) = shown()
    assert first[:2] == ["default", "fake"]
    assert first[4:] == [1, 2, 0, 0, 0]
    assert second[:3] == ["default", "r2", "r2-1f"]
    assert second[4:] == [0, 0, 1, 0, 0]
    assert all(0 <= int(str(row[3])) < 60_000 for row in (first, second))
    assert env.rows("SHOW SOURCES")[0][4] != "standby"
    assert env.sql("show cluster replicas")[-1] == Complete("SHOW 2")


def test_there_is_no_replica_before_one_has_started(env) -> None:
    assert env.rows("SHOW CLUSTER REPLICAS") == []
