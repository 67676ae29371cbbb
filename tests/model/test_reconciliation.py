"""What a new iteration renames or compacts goes on without being hydrated again."""

from dataclasses import replace
from pathlib import Path

import pytest

from streams.compute.description import DataflowDescription
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plan_json
from streams.plan.compile import compile_view
from streams.progress import frontier
from tests.support.controlled import Controlled, controller, count_hydrations
from tests.support.market import VIEWS, Market, settle

TOTALS = CollectionId("totals")


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_is_hydrated_again_that_was_renamed_or_compacted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, restarts: bool
) -> None:
    hydrated = count_hydrations(monkeypatch)
    market = Market(monkeypatch, 5)
    market.views()
    world = market.world
    controller(world, 1).start(world.descriptions, [])
    replica = Controlled(monkeypatch, world, "a", tmp_path)
    for _ in range(3):
        market.produce(20)
        settle(market, replica)
    assert sorted(hydrated) == sorted(VIEWS)

    hydrated.clear()
    again = [later(flow, world.upper(flow.export) - 1) for flow in world.descriptions]
    two = controller(world, 2)
    two.start(again, [])
    if restarts:
        replica = Controlled(monkeypatch, world, "a", tmp_path)
    market.produce(20)
    settle(market, replica)
    assert hydrated == []
    assert replica.server.session.running == {flow.export: flow for flow in again}
    world.now += 2_000
    replica.follow()
    two.poll(0)
    for flow in world.descriptions:
        conditions = two.observed.conditions[flow.export]
        assert conditions.write == conditions.output == frontier(world.upper(flow.export))
    market.check()


def later(flow: DataflowDescription, as_of: int) -> DataflowDescription:
    """The same dataflow under another name, for reads at or beyond a time."""
    return replace(flow.compacted(frontier(as_of)), name=f"new {flow.name}")


def test_what_has_another_plan_is_hydrated_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hydrated = count_hydrations(monkeypatch)
    market = Market(monkeypatch, 6)
    market.views()
    world = market.world
    controller(world, 1).start(world.descriptions, [])
    replica = Controlled(monkeypatch, world, "a", tmp_path)
    market.produce(20)
    settle(market, replica)

    hydrated.clear()
    # the same contents from another plan
    query = VIEWS["totals"][0].replace("FROM orders", "FROM orders WHERE amount > -1")
    plan = plan_json.dumps(compile_view(query, world.relations).dataflow)
    changed = [
        replace(flow, plan=plan) if flow.export == TOTALS else flow
        for flow in world.descriptions
    ]
    assert changed != world.descriptions
    two = controller(world, 2)
    two.start(changed, [])
    market.produce(20)
    settle(market, replica)
    assert hydrated == [TOTALS]
    market.check()


def test_an_as_of_that_goes_back_hydrates_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was compacted for good is not what the iteration wants to read."""
    hydrated = count_hydrations(monkeypatch)
    market = Market(monkeypatch, 7)
    market.views()
    world = market.world
    one = controller(world, 1)
    one.start(world.descriptions, [])
    replica = Controlled(monkeypatch, world, "a", tmp_path)
    market.produce(20)
    settle(market, replica)
    grown = [later(flow, world.upper(flow.export) - 1) for flow in world.descriptions]
    for flow in grown:
        one.create(flow)
    settle(market, replica)
    hydrated.clear()
    earlier = [
        replace(flow, as_of=Timestamp(flow.as_of - 1)) if flow.export == TOTALS else flow
        for flow in grown
    ]
    controller(world, 2).start(earlier, [])
    market.produce(20)
    settle(market, replica)
    assert hydrated == [TOTALS]
    market.check()
