"""A view's inputs are held at its since, which travels in AllowCompaction."""

from pathlib import Path

import pytest

from streams.ids import CapabilityId, CollectionId
from streams.progress import Antichain, frontier
from tests.support.controlled import Controlled, controller, count_hydrations
from tests.support.market import VIEWS, Market, settle

ORDERS, TOTALS, NAMED = (CollectionId(name) for name in ("orders", "totals", "named"))


def hold(market: Market, reader: str, read: CollectionId) -> Antichain:
    """The hold of a view on an input."""
    market.world.shards.sync()
    capabilities = market.world.shards.state(read).capabilities
    return capabilities[CapabilityId(f"{reader}.reads.{read}")].frontier


def test_inputs_are_let_go_as_far_as_their_views_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 8)
    market.views()
    world = market.world
    one = controller(world, 1)
    one.start(world.descriptions, [])
    replica = Controlled(monkeypatch, world, "a", tmp_path)
    born = {flow.export: flow.as_of for flow in world.descriptions}
    for _ in range(3):
        market.produce(20)
        settle(market, replica)
        replica.maintenance.run_once()
        replica.hold()
    assert world.upper("totals") > born[TOTALS] + 100_000
    assert hold(market, "totals", ORDERS) == frontier(born[TOTALS])
    assert hold(market, "named", TOTALS) == frontier(born[NAMED])

    middle = frontier(born[TOTALS] + 50_000)
    one.allow_compaction({TOTALS: middle})
    replica.follow()
    replica.hold()
    assert hold(market, "totals", ORDERS) == middle
    assert hold(market, "everything", ORDERS) == frontier(born[CollectionId("everything")])
    assert hold(market, "named", TOTALS) == frontier(born[NAMED])

    # not past what a restart needs, however far the export is let go
    beyond = frontier(world.upper("totals") - 1)
    one.allow_compaction({TOTALS: beyond})
    market.produce(20)
    settle(market, replica)
    replica.hold()
    assert hold(market, "totals", ORDERS).precedes(beyond)
    assert middle.strictly_precedes(hold(market, "totals", ORDERS))
    market.check()


def test_what_can_be_read_of_a_view_can_be_computed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of any time from since on; the frontiers of a replica that joins begin there, too."""
    hydrated = count_hydrations(monkeypatch)
    market = Market(monkeypatch, 9)
    market.views()
    world = market.world
    one = controller(world, 1)
    one.start(world.descriptions, [])
    replica = Controlled(monkeypatch, world, "a", tmp_path / "a")
    for _ in range(3):
        market.produce(20)
        settle(market, replica)
        replica.maintenance.run_once()
        replica.hold()
    newest = {CollectionId(name): frontier(world.upper(name) - 1) for name in VIEWS}
    one.allow_compaction(newest)
    for _ in range(2):
        market.produce(20)
        settle(market, replica)
        replica.maintenance.run_once()
        replica.hold()
    for flow in world.descriptions:
        for read in flow.imports:
            since = replica.server.session.running[flow.export].as_of
            assert world.shards.state(read.collection).since.less_equal(since)

    sinces = {key: flow.as_of for key, flow in replica.server.session.running.items()}
    two = controller(world, 2)
    two.start(list(replica.server.session.running.values()), [])
    hydrated.clear()
    again = Controlled(monkeypatch, world, "a", tmp_path / "a")
    again.follow()
    again.start()
    world.now += 2_000
    again.follow()
    two.poll(0)
    assert hydrated == []
    for name in VIEWS:
        condition = two.observed.conditions[CollectionId(name)]
        for reached in (condition.write, condition.output):
            assert reached is not None
            assert frontier(sinces[CollectionId(name)]).precedes(reached)
    market.produce(20)
    settle(market, again)
    market.check()
