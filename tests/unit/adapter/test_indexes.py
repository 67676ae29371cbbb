"""CREATE INDEX, and SELECTs that replicas answer from an index."""

from concurrent.futures import Future

import pyarrow as pa
import pytest

from streams.adapter import index_reads
from streams.adapter.results import Complete, Notice
from streams.compute.peeks import Peek, PeekOutcome
from streams.compute.protocol import Status
from streams.ids import CapabilityId, CollectionId
from streams.replica.peeks import evaluation
from tests.support.coordinators import NOW, ORDERS, Environment
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

S1, I2 = CollectionId("s1"), CollectionId("i2")
CREATE = "CREATE INDEX by_id ON orders (ID)"
BY_PEEK = "SELECT id FROM orders WHERE id = 3"
BY_WORKER = "SELECT id + 0 AS id FROM orders WHERE id = 3"


def key_stream(keys: list[int] | list[float]) -> bytes:
    rows = pa.record_batch([pa.array(keys)], names=["c0"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


@pytest.fixture
def replica(env: Environment) -> FakeReplica:
    """A replica with orders, s1, that answers peeks."""
    replica = env.start_replica()
    replica.answer_peeks(env.broker)
    assert isinstance(env.sql(ORDERS)[-1], Complete)
    eventually(lambda: len(replica.created) == 1)
    rows = [((n % 10, float(n)), NOW + 1, 1) for n in range(30)]
    replica.append("s1", NOW + 5, rows)
    return replica


@pytest.fixture
def peeks(env: Environment, monkeypatch: pytest.MonkeyPatch) -> list[Peek]:
    """The peeks that the coordinator has sent."""
    sent: list[Peek] = []
    controller = env.coordinator.instances.of("default")
    send = controller.peek

    def noted(peek: Peek) -> "Future[PeekOutcome]":
        sent.append(peek)
        return send(peek)

    monkeypatch.setattr(controller, "peek", noted)
    return sent


def indexed(env: Environment, statement: str = CREATE) -> None:
    assert isinstance(env.sql(statement)[-1], Complete), env.sql(statement)
    eventually(lambda: status(env) == "running")


def status(env: Environment) -> str:
    said = env.coordinator.observed.cluster("default").report(I2).status
    return "" if said is None else said.state


def test_the_description_arranges_the_collection_and_holds_nothing(env, replica) -> None:
    indexed(env)
    description = replica.created[-1]
    assert (description.export, description.kind, description.group) == (I2, "index", "")
    assert description.imports[0].collection == S1
    assert description.imports[0].hold == CapabilityId("")
    assert '"keys":[0]' in description.plan
    holds = env.coordinator.shards.state(S1).capabilities
    assert not [hold for hold in holds if hold.startswith("i2.")]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders WHERE id = 3 ORDER BY amount DESC",
        "SELECT amount FROM orders WHERE 7 = id AND amount <= 20 ORDER BY amount",
        "SELECT amount, id, amount FROM orders WHERE id = 77",
        "SELECT id FROM orders WHERE id = 3 AND id = 4",
        "SELECT * FROM orders WHERE id IN (3, 7, 3, 77) ORDER BY amount",
        "SELECT amount FROM orders WHERE id IN (1, 2) AND id = 2",
    ],
)
def test_an_answer_from_an_index_is_that_without(env, replica, peeks, query: str) -> None:
    without = env.sql(query)
    assert not peeks
    indexed(env)
    assert env.sql(query) == without
    assert [peek.target.index for peek in peeks] == [I2]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM orders WHERE id = 3",
        "SELECT count(*) FROM orders WHERE id = 77",
        "SELECT sum(amount) AS s FROM orders WHERE id IN (3, 4)",
        "SELECT * FROM orders WHERE id = 3 ORDER BY amount DESC LIMIT 1",
        "SELECT DISTINCT id FROM orders WHERE id = 3",
        "SELECT amount + 1 AS n FROM orders WHERE id = 3 ORDER BY n",
        "SELECT amount FROM orders WHERE id = 3 AND repeat('x', id) = 'xxx' ORDER BY amount",
        "SELECT count(*) FROM orders a, orders b WHERE a.id = 3 AND b.id = 3",
    ],
)
def test_rows_of_an_index_are_evaluated_as_a_snapshot(env, replica, peeks, query: str) -> None:
    replica.append("s1", NOW + 6, [((3, 3.0), NOW + 5, 2)])  # two more of one row
    without = env.sql(query)
    assert isinstance(without[-1], Complete)
    indexed(env)
    assert env.sql(query) == without
    assert [peek.target.index for peek in peeks] == [I2]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders WHERE amount = 3",
        "SELECT * FROM orders WHERE id > 3",
        "SELECT * FROM orders WHERE id IN (3, NULL)",
        "SELECT * FROM orders WHERE id NOT IN (3, 4)",
        "SELECT * FROM orders WHERE id = 3 OR amount = 3",
        f"SELECT * FROM orders WHERE id IN ({', '.join(map(str, range(1001)))})",
        "SELECT * FROM orders WHERE id = 9223372036854775808",
        "SELECT count(*) FROM orders a, orders b WHERE a.id = 3 AND b.amount = 3",
        "SELECT 1",
    ],
)
def test_other_queries_are_evaluated_as_before(env, replica, peeks, query: str) -> None:
    without = env.sql(query)
    indexed(env)
    assert env.sql(query) == without
    assert not peeks


def test_a_key_of_two_columns_wants_both(env, replica, peeks) -> None:
    indexed(env, "CREATE INDEX by_both ON orders (amount, id)")
    assert env.rows("SELECT id FROM orders WHERE id = 3") == [[3], [3], [3]]
    assert not peeks
    assert env.rows("SELECT id FROM orders WHERE id = 3 AND amount = 13") == [[3]]
    assert len(peeks) == 1


def test_as_of_reads_history_from_the_index_or_the_shard(env, replica, peeks) -> None:
    retained = env.sql("ALTER SOURCE orders SET (RETAIN HISTORY FOR '1 hour')")
    assert isinstance(retained[-1], Complete), retained
    indexed(env)
    replica.append("s1", NOW + 60_000, [((3, 3.0), NOW + 50_000, -1)])
    eventually(lambda: env.rows("SELECT id FROM orders WHERE id = 3") == [[3], [3]])
    early = f"SELECT id FROM orders WHERE id = 3 AS OF {NOW + 2}"
    assert env.rows(early) == [[3], [3], [3]]
    assert len(peeks) >= 2


@pytest.mark.parametrize("query", [BY_PEEK, BY_WORKER])
def test_without_a_replica_that_answers_the_coordinator_does(
    env, replica, peeks, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(env)
    monkeypatch.setattr(index_reads, "BEAT_S", 0.05)
    replica.peeks.close()
    replica.peeks = None
    assert env.rows(query) == [[3], [3], [3]]
    assert len(peeks) == 1
    assert not env.coordinator.instances.of("default")._peeks.peeks
    replica.say(Status(I2, "hydrating"))
    eventually(lambda: status(env) == "hydrating")
    assert env.rows(query) == [[3], [3], [3]]
    assert len(peeks) == 1


@pytest.mark.parametrize("query", [BY_PEEK, BY_WORKER])
def test_errors_and_large_answers_are_those_without_an_index(
    env, replica, peeks, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(env)
    monkeypatch.setattr(index_reads, "MOST_BYTES", 1)
    assert env.rows(query) == [[3], [3], [3]]
    replica.append("s1", NOW + 9, errors=[("bad", NOW + 6, 1)])
    failed = env.fails(query)
    assert failed.message == f"orders holds an error at {NOW + 8}"
    assert len(peeks) == 2


@pytest.mark.parametrize("query", [BY_PEEK, BY_WORKER])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (b"no stream", "expected an arrow stream"),
        (key_stream([1.5]), "expected columns c0 int64, actual c0 double"),
        (key_stream([3, 3]), "expected 3 rows, as it says, actual 2"),
    ],
    ids=["no-stream", "another-type", "another-count"],
)
def test_a_malformed_answer_is_an_error_of_its_select_alone(
    env, replica, monkeypatch: pytest.MonkeyPatch, query: str, rows: bytes, said: str
) -> None:
    indexed(env)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "_streamed", lambda _: rows)
        failed = env.fails(query)
    assert failed.message == "orders cannot be read by a replica: its answer is malformed"
    assert said in failed.detail
    assert env.rows(query) == [[3], [3], [3]]


def test_it_is_listed_dropped_and_made_again(env, replica) -> None:
    indexed(env)
    (row,) = env.rows("SHOW INDEXES")
    assert (row[0], row[1], row[-3:]) == ("by_id", "i2", ["orders", "id", "default"])
    refused = env.fails("DROP SOURCE orders")
    assert refused.detail == "what depends on it: index by_id"
    assert isinstance(env.sql("CREATE INDEX IF NOT EXISTS by_id ON orders (id)")[0], Notice)
    assert isinstance(env.sql("DROP INDEX by_id")[-1], Complete)
    eventually(lambda: I2 not in env.coordinator.catalog.state.dropped)
    assert env.rows("SHOW INDEXES") == []
    assert replica.dropped == [I2]
    assert replica.peeks.indexes.every_bounds() == {}
    assert isinstance(env.sql("DROP SOURCE orders")[-1], Complete)


def test_it_is_kept_at_a_restart_of_the_coordinator(env, replica) -> None:
    indexed(env)
    before = list(replica.created)
    env.coordinator.stop()
    env.start()
    eventually(lambda: status(env) == "running")
    assert replica.created == before
    assert env.rows("SELECT id FROM orders WHERE id = 3") == [[3], [3], [3]]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE INDEX i ON nothing (id)", "nothing does not exist"),
        ("CREATE INDEX i ON orders (x)", "column x of orders does not exist"),
        ("CREATE INDEX i ON by_id (id)", "index by_id cannot be read"),
        ("SELECT * FROM by_id", None),
        ("SUBSCRIBE by_id", "index by_id cannot be read"),
        ("DROP SINK by_id", "by_id is not a sink but an index"),
    ],
)
def test_what_an_index_is_not(env, replica, statement: str, message: str | None) -> None:
    indexed(env)
    failed = env.fails(statement)
    assert message is None or failed.message == message


def test_a_key_is_of_single_values(env, replica) -> None:
    view = "CREATE MATERIALIZED VIEW v AS SELECT [id] AS ids FROM orders"
    assert isinstance(env.sql(view)[-1], Complete)
    failed = env.fails("CREATE INDEX i ON v (ids)")
    assert failed.message == "key column ids of type BIGINT[] is not a single value"
