"""Two replicas take a topic's first snapshot, each in slices: the loser takes the other's."""

from pathlib import Path

import pytest

from streams.replica.config import Budgets
from streams.replica.driver.dataflow import Phase
from tests.model.test_compacted_sources import PEOPLE, present, send, settle
from tests.support.sparkless import Replica, World


def test_rule_18_keyed_state_of_a_snapshot_that_lost_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("people.in", 1)
    world.source("people", (("id", "BIGINT"), ("name", "VARCHAR")), topic, ("id",))
    for key in range(6):
        send(world, topic, key, "old")
    slow, fast = (
        Replica(world, name, tmp_path / name, budgets=Budgets(messages=2)) for name in "ab"
    )
    slow.follow()
    slow.start()
    slow.step("ingest")
    for _ in range(2):
        assert slow.step("hydrate")
    assert slow.begin("hydrate"), "the last slice"
    send(world, topic, 0, None)
    settle(world, fast)
    slow.sync()
    slow.commit("hydrate")
    flow = slow.scheduler.flows[PEOPLE]
    assert (flow.phase, flow.build) == (Phase.RUNNING, None)
    send(world, topic, 0, "new")
    settle(world, slow)
    assert present(world) == {(0, "new"): 1} | {(key, "old"): 1 for key in range(1, 6)}
