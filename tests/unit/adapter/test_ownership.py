"""Shards that another catalog made are refused; those of an earlier version are not."""

import json

import pytest

from streams.adapter.coordinator_settings import catalog_topic
from streams.adapter.ownership import described
from streams.adapter.results import Complete
from streams.compute.controller import command_topic, response_topic
from streams.ids import CollectionId, Topic
from tests.support.coordinators import NOW, ORDERS, TOTALS, Killed, with_orders
from tests.support.processes import eventually

PAYMENTS = (
    "CREATE SOURCE payments FROM KAFKA (TOPIC 'orders') (a INT, b INT, c INT) FORMAT JSON"
)
S1 = CollectionId("s1")


def lose_the_catalog(env) -> None:
    env.coordinator.stop()
    for replica in env.replicas:
        replica.stop()
    names = command_topic("sw", "default"), response_topic("sw", "default")
    env.broker.topics.delete([catalog_topic("sw"), *names])
    env.start()


def test_a_new_catalog_does_not_adopt_what_an_earlier_one_made(env) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1)])
    lose_the_catalog(env)
    failed = env.fails(PAYMENTS)
    assert failed.message == "id s1 of the new object is taken: topic sw.s1.log exists"
    assert "another catalog created it" in failed.detail
    assert "restore the catalog's topic" in failed.hint
    assert env.rows("SHOW SOURCES") == []
    env.broker.topics.delete([Topic("sw.s1.log"), Topic("sw.s1.data")])
    assert isinstance(env.sql(PAYMENTS)[-1], Complete)


def test_a_shard_that_comes_between_is_refused_and_outlives_the_drop(env, monkeypatch) -> None:
    """Equal columns and keys are no proof: the catalog is."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1)])
    lose_the_catalog(env)
    env.now = env.brokers_now = NOW - 5
    monkeypatch.setattr(env.coordinator._objects, "refuse_taken", lambda _: None)
    notice, done = env.sql(ORDERS)
    assert done == Complete("CREATE SOURCE", {"id": "s1"})
    assert "shard s1 is not that of orders: expected one of catalog" in notice.message
    assert env.rows("SHOW SOURCES")[0][4] == "failed"
    env.start_replica()
    env.rows("DROP SOURCE orders")
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    state = replica.shards.state(S1)
    assert not state.is_dropped
    assert "sw.s1.log" in env.broker.topics.names()


def test_a_catalog_is_the_same_after_a_restart(env) -> None:
    with_orders(env)
    env.start()
    assert env.coordinator.catalog.state.identity == "id0"
    assert not env.coordinator._reconciler.problems


def without_catalog(monkeypatch) -> None:
    """Shards are made as by versions that did not say which catalog made them."""
    monkeypatch.setattr(
        "streams.adapter.provisioning.described",
        lambda item, _: described(item, ""),
    )


def test_shards_of_an_earlier_version_stay_in_use(env, monkeypatch) -> None:
    with monkeypatch.context() as earlier:
        without_catalog(earlier)
        replica = with_orders(env)
        env.rows(TOTALS)
    text = env.coordinator.shards.state(S1).description
    assert "catalog" not in json.loads(text)
    env.start()
    replica.append("s1", NOW + 10, [((1, 2.5), NOW, 1)])
    assert not env.coordinator._reconciler.problems
    assert env.rows("SELECT id FROM orders") == [[1]]


@pytest.mark.parametrize(("statement", "why"), [(PAYMENTS, "expected {"), (ORDERS, "began at")])
def test_shards_of_an_earlier_version_are_told_by_what_they_hold(
    env, monkeypatch, statement, why
) -> None:
    with monkeypatch.context() as earlier:
        without_catalog(earlier)
        with_orders(env)
    lose_the_catalog(env)
    env.now = env.brokers_now = NOW + 5000
    monkeypatch.setattr(env.coordinator._objects, "refuse_taken", lambda _: None)
    notice, _ = env.sql(statement)
    assert why in notice.message


def test_a_source_is_born_at_the_earlier_of_two_clocks(env) -> None:
    env.now = NOW + 3_600_000
    env.rows(ORDERS)
    assert env.rows("SHOW SOURCES")[0][2:4] == [NOW, NOW]
    env.now = NOW - 70
    env.rows(ORDERS.replace("orders", "late", 1))
    assert env.rows("SHOW SOURCES")[1][2:4] == [NOW - 70, NOW - 70]


def test_the_broker_s_time_of_a_birth_outlives_the_coordinator(env) -> None:
    env.dying_at = "after-catalog"
    with pytest.raises(Killed):
        env.sql(ORDERS)
    env.dying_at, env.now = "", NOW + 3_600_000
    env.brokers_now = NOW + 40
    env.start()
    assert env.rows("SHOW SOURCES")[0][2:4] == [NOW, NOW]
