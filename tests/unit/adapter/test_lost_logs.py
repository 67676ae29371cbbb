"""A log that was truncated, or holds what is none of ours, is one object's trouble alone."""

import pytest

from streams.adapter.results import Complete
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import EMPTY
from streams.storage import Storage
from streams.storage.client.reserved_names import REGISTRY
from tests.support.coordinators import NOW, Environment, since, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

BIDS = "CREATE SOURCE bids FROM KAFKA (TOPIC 'bids') (id BIGINT) FORMAT JSON"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT id FROM bids"
LOST = Topic("sw.s1.log")


def truncate(of: Environment) -> None:
    """Somebody deletes records, and no rollup covers them."""
    of.broker.logs.truncate(LOST, Offset(1))


def spoil(of: Environment) -> None:
    """Somebody writes into the log."""
    of.broker.logs.append([(LOST, b"not one of ours")])


def with_both(of: Environment) -> FakeReplica:
    """`orders`, which will be in trouble, and `bids`."""
    of.broker.topics.create([TopicSpec(Topic("bids"), 1, TopicKind.RAW)])
    replica = with_orders(of)
    assert isinstance(of.sql(BIDS)[-1], Complete)
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", NOW + 10)
    replica.append("s2", NOW + 10, [((7,), NOW, 1)])
    return replica


@pytest.mark.parametrize(
    ("harm", "message"), [(truncate, "no rollup covers"), (spoil, f"log {LOST}/0@")]
)
def test_a_coordinator_starts_beside_a_lost_log(env: Environment, harm, message: str) -> None:
    with_both(env)
    harm(env)
    env.start()
    lost, healthy = env.rows("SHOW SOURCES")
    assert (lost[0], lost[4]) == ("orders", "failed")
    assert message in str(lost[6])
    assert healthy[4] != "failed"
    assert env.rows("SELECT id FROM bids") == [[7]]
    assert isinstance(env.sql(VIEW)[-1], Complete)


def fail(of: Environment) -> None:
    """What the coordinator follows is lost while it runs."""
    shards = of.coordinator.shards
    of.broker.logs.append([(LOST, b"not one of ours")])
    eventually(lambda: "s1" not in shards.groups())


def test_history_goes_on_to_be_let_go_beside_a_lost_log(env: Environment) -> None:
    replica = with_both(env)
    fail(env)
    replica.append("s2", NOW + 50_000)
    eventually(lambda: since(env, "s2") == NOW + 49_999 - 1000)


def test_show_says_what_a_group_failed_of(env: Environment) -> None:
    with_both(env)
    fail(env)
    lost, healthy = env.rows("SHOW SOURCES")
    assert (lost[0], lost[2], lost[3], lost[4]) == ("orders", None, None, "failed")
    assert f"log {LOST}/0@" in str(lost[6])
    assert (healthy[0], healthy[3], healthy[4]) == ("bids", NOW + 10, "running")


@pytest.mark.parametrize("statement", ["SELECT id FROM orders", "SUBSCRIBE orders"])
def test_a_read_of_a_halted_log_names_the_way_out(env: Environment, statement: str) -> None:
    with_both(env)
    fail(env)
    failed = env.fails(statement)
    assert failed.message == "orders cannot be read: its log or its chunks are damaged"
    assert f"log {LOST}/0@" in failed.detail
    assert "'slackwater shard verify s1 --chunks'" in failed.hint
    (lost, _) = env.rows("SHOW SOURCES")
    assert "'slackwater shard verify s1'" in str(lost[6])


def test_a_read_over_a_log_that_was_halted_before_the_start_names_the_way_out(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = with_both(env)
    assert isinstance(env.sql("CREATE MATERIALIZED VIEW v AS FROM orders")[-1], Complete)
    eventually(lambda: len(replica.created) == 3)
    monkeypatch.setattr("streams.adapter.collection_reads.MADE_MS", 50)
    spoil(env)
    env.start()
    for name in ("orders", "v"):
        failed = env.fails(f"SELECT * FROM {name}")
        assert failed.message.startswith(f"{name} is defined, but not created within ")
        assert "'slackwater shard verify s1'" in failed.message


def delete(of: Environment) -> None:
    """Somebody deletes the topics."""
    of.broker.topics.delete([LOST, Topic("sw.s1.data")])


@pytest.mark.parametrize("harm", [truncate, spoil, delete])
def test_what_was_lost_and_then_dropped_is_said_to_be_dropped(env: Environment, harm) -> None:
    with_both(env)
    harm(env)
    assert isinstance(env.sql("DROP SOURCE orders")[-1], Complete)
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    with Storage.memory(env.broker) as fresh:
        capabilities = fresh.acquire_capabilities(CollectionId("s1"))
        assert [capability.frontier for capability in capabilities] == [EMPTY, EMPTY]


def test_a_registry_that_is_damaged_keeps_no_dropped_object(env: Environment) -> None:
    with_both(env)
    assert isinstance(env.sql("DROP SOURCE orders")[-1], Complete)
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    registry = env.coordinator.shards.names(REGISTRY).log
    env.broker.logs.append([(registry, b"not one of ours")])
    assert isinstance(env.sql("DROP SOURCE bids")[-1], Complete)
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert not [name for name in env.broker.topics.names() if ".s2." in name]


def test_what_is_lost_can_be_dropped(env: Environment) -> None:
    replica = with_both(env)
    assert isinstance(env.sql(VIEW)[-1], Complete)
    eventually(lambda: len(replica.created) == 3)
    fail(env)
    for name in ("SOURCE orders", "MATERIALIZED VIEW v"):
        assert isinstance(env.sql(f"DROP {name}")[-1], Complete)
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert not [name for name in env.broker.topics.names() if ".s1." in name]
    capabilities = env.coordinator.shards.state(CollectionId("s2")).capabilities
    assert not [capability for capability in capabilities if capability.endswith(".reads.s2")]
