"""The sinces of views travel to their replicas, and their next iteration begins there."""

import pytest

from streams.adapter import compactions
from streams.adapter.compactions import Compactions
from streams.errors import Indeterminate
from streams.ids import CollectionId
from tests.support.coordinators import NOW, TOTALS, Environment, since, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

U2 = CollectionId("u2")


def with_totals(env: Environment, monkeypatch: pytest.MonkeyPatch) -> FakeReplica:
    """A source and a view, whose sinces are told at each beat."""
    monkeypatch.setattr(compactions, "EVERY_S", 0.0)
    replica = with_orders(env)
    env.sql(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", NOW + 60_000)
    replica.append("u2", NOW + 50_000)
    eventually(lambda: since(env, "u2") == NOW + 48_999)
    return replica


def test_a_replica_is_told_the_since_of_a_view_and_not_that_of_a_source(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = with_totals(env, monkeypatch)
    eventually(lambda: replica.session.running[U2].as_of == NOW + 48_999)
    assert replica.session.compactions.keys() == {U2}


def test_the_next_coordinator_begins_where_the_view_can_be_read(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = with_totals(env, monkeypatch)
    eventually(lambda: replica.session.running[U2].as_of == NOW + 48_999)
    env.start()
    late = env.start_replica()
    eventually(lambda: len(late.created) == 2)
    assert {flow.export: flow.as_of for flow in late.created} == {"s1": NOW, "u2": NOW + 48_999}
    eventually(lambda: replica.session.nonce == late.session.nonce)
    eventually(lambda: replica.session.running == late.session.running)
    assert len(replica.created) == 2, "what it ran goes on"
    assert replica.dropped == []


class Deaf:
    """A controller whose brokers do not answer at first."""

    def __init__(self) -> None:
        self.told: list[set[CollectionId]] = []

    def allow_compaction(self, sinces) -> None:
        self.told.append(set(sinces))
        if len(self.told) == 1:
            raise Indeterminate("no broker answers")


def test_what_could_not_be_told_is_told_later(env: Environment) -> None:
    now, deaf = [0.0], Deaf()
    shards = env.coordinator.shards
    told = Compactions(shards, deaf, lambda: now[0])
    replica = with_orders(env)
    replica.append("s1", NOW + 60_000)
    eventually(lambda: since(env, "s1") == NOW + 58_999)
    with pytest.raises(Indeterminate):
        told.tell()
    told.tell()
    both = {"s1", "e1"}
    assert deaf.told == [both], "not at each beat"
    now[0] += compactions.EVERY_S
    told.tell()
    assert deaf.told == [both, both]
