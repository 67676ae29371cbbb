"""An internal error about one object: the coordinator lives, and looks after the others."""

import pytest

from streams.adapter.provisioning import Objects
from streams.compute.controller import Controller
from streams.ids import CollectionId
from streams.storage.policy import catalog_hold, downgrade
from tests.support.coordinators import NOW, TOTALS, with_orders
from tests.support.processes import eventually


@pytest.mark.parametrize(
    ("owner", "method", "at_start"),
    [(Objects, "abolish", False), (Objects, "abolish", True), (Controller, "drop", False)],
)
def test_a_dropped_object_that_cannot_be_removed_keeps_nobody_down(
    env, monkeypatch, owner, method, at_start
) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    for name in ("totals", "other"):
        env.rows(TOTALS.replace("totals", name))
    eventually(lambda: len(replica.created) == 3)
    real = getattr(owner, method)
    met = []

    def defect(self, arguments):
        if getattr(arguments, "id", arguments) == CollectionId("u2"):
            met.append(1)
            raise RecursionError("maximum recursion depth exceeded")
        return real(self, arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, method, defect)
        env.rows("DROP MATERIALIZED VIEW totals")
        if at_start:
            env.start()
        env.rows("DROP MATERIALIZED VIEW other")
        eventually(lambda: "u3" not in env.coordinator.catalog.state.dropped)
        eventually(lambda: len(met) > 1)
        assert env.coordinator._reconciler.is_alive
        assert "u2" in env.coordinator.catalog.state.dropped
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert not env.coordinator._reconciler.problems


def test_history_that_cannot_be_let_go_keeps_no_other(env, monkeypatch) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)

    def defect(state, *arguments):
        if state.id == CollectionId("s1"):
            raise ZeroDivisionError
        return downgrade(state, *arguments)

    def held(name: str) -> int:
        collection = CollectionId(name)
        state = env.coordinator.shards.state(collection)
        return int(state.capabilities[catalog_hold(collection)].frontier.time)

    with monkeypatch.context() as patched:
        patched.setattr("streams.adapter.retention.downgrade", defect)
        before = held("s1")
        replica.append("s1", NOW + 50_000)
        replica.append("u2", NOW + 50_000)
        eventually(lambda: held("u2") == NOW + 48_999)
        assert env.coordinator._reconciler.is_alive
        assert held("s1") == before
    eventually(lambda: held("s1") == NOW + 48_999)
