"""SHOW CLUSTER REPLICAS: each live replica, and what it does."""

from streams.adapter.results import Complete
from streams.compute.activity import DataflowActivity, OperatorActivity, ReplicaMemory
from streams.compute.controller import response_topic
from streams.compute.protocol import Alive, Frontiers, Status
from streams.compute.writer import ResponseWriter
from streams.ids import CollectionId
from streams.progress import frontier
from tests.support.coordinators import NOW, with_orders
from tests.support.processes import eventually

S1, U2 = CollectionId("s1"), CollectionId("u2")
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
    assert first[4:9] == [1, 2, 0, 0, 0]
    assert second[:3] == ["default", "r2", "r2-1f"]
    assert second[4:9] == [0, 0, 1, 0, 0]
    assert all(0 <= int(str(row[3])) < 60_000 for row in (first, second))
    assert env.rows("SHOW SOURCES")[0][4] != "standby"
    assert env.sql("show cluster replicas")[-1] == Complete("SHOW 2")


def test_there_is_no_replica_before_one_has_started(env) -> None:
    assert env.rows("SHOW CLUSTER REPLICAS") == []


def test_the_slowest_dataflow_of_a_replica_is_its_lag_and_all_of_them_its_state(env) -> None:
    with_orders(env)
    env.rows(TOTALS)
    nonce = env.replica.session.nonce
    other = ResponseWriter(env.broker.logs, response_topic("sw", "default"), "r2-1f")

    def said() -> list[object]:
        (row,) = [row for row in env.rows("SHOW CLUSTER REPLICAS") if row[1] == "r2"]
        return list(row[9:11])

    other.write(nonce, [Status(U2, "running")])
    eventually(lambda: len(env.rows("SHOW CLUSTER REPLICAS")) == 2)
    assert said() == [None, 0]
    operators = tuple(OperatorActivity(number, bytes=50) for number in range(3))
    work = DataflowActivity(U2, 1, 1, 1, 1, 0, 1, 1, operators)
    ahead, behind = frontier(NOW - 100), frontier(NOW - 7_000)
    other.write(nonce, [Frontiers(S1, ahead, ahead), Frontiers(U2, behind, behind), work])
    eventually(lambda: said() == [7_000, 150])
    other.write(nonce, [Frontiers(U2, None, frontier(NOW - 5))])
    eventually(lambda: said() == [100, 150])


def test_the_memory_is_that_of_the_process_that_is_live(env) -> None:
    responses = response_topic("sw", "default")
    nonce = with_orders(env).session.nonce
    writers = {
        name: ResponseWriter(env.broker.logs, responses, name) for name in ("r2-a", "r2-b")
    }

    def memory() -> dict[object, object]:
        return {row[2]: row[-1] for row in env.rows("SHOW CLUSTER REPLICAS")}

    writers["r2-a"].write(nonce, [ReplicaMemory(3 << 30, 7)])
    eventually(lambda: memory().get("r2-a") == 3 << 30)
    writers["r2-b"].write(nonce, [Alive()])
    eventually(lambda: "r2-b" in memory())
    assert memory()["r2-b"] is None, "the memory of the process before it is not its own"
    writers["r2-b"].write(nonce, [ReplicaMemory(1 << 30, 7)])
    eventually(lambda: memory()["r2-b"] == 1 << 30)
    seen = env.rows("SELECT memory_bytes FROM slackwater.replicas WHERE process = 'r2-b'")
    assert seen == [[1 << 30]]
