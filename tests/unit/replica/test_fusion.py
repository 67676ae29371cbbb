"""Views that step with their sources: who is near, what they take in hand, what they await."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from streams.compute.description import (
    DataflowDescription,
    ImportDescription,
    IngestionDescription,
)
from streams.compute.event_time import Advance
from streams.compute.reclocking import Ingest, Tick
from streams.compute.stepping import Idle, Input, InputBatch
from streams.ids import CapabilityId, CollectionId, Timestamp, Topic
from streams.plan import physical
from streams.plan.metadata import Watermark
from streams.plan.physical import Source, Temporal
from streams.progress import Antichain, Interval, frontier, interval_of
from streams.replica.driver import fusion
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import OwnState
from streams.replica.driver.fusion import Chain
from streams.replica.driver.import_state import Imports
from streams.replica.driver.work_units import (
    EventUnit,
    IdleUnit,
    SourceUnit,
    Unit,
    ViewUnit,
    bounds,
    share,
)
from streams.replica.tasks.descriptor import ChunkLoad, Output

NOW, THEN = 50, 90
"""Where everything stands, and where the micro-batch takes it."""

RAW = IngestionDescription(topic=Topic("raw"), topic_id="i", envelope="none")


def at(time: int) -> Antichain:
    return frontier(Timestamp(time))


def flow(
    name: str, *imports: str, depth: int = 1, own: int = NOW, cost_ms: float = 0
) -> Dataflow:
    described = DataflowDescription(
        export=CollectionId(name),
        kind="view" if imports else "ingestion",
        name=name,
        group=name,
        columns=(),
        as_of=Timestamp(0),
        imports=tuple(
            ImportDescription(CollectionId(name), name, CapabilityId("h")) for name in imports
        ),
        source=None if imports else RAW,
    )
    plan = physical.Dataflow((), (Source(0),), ((),), (depth,), ())
    state = OwnState("", at(own), {})
    return Dataflow(
        described, plan, "p", "f", {}, phase=Phase.RUNNING, own=state, cost_ms=cost_ms
    )


def with_watermark(source: Dataflow) -> Dataflow:
    declared = Watermark(column="ts", delay_ms=0, late_rows="place", idle_ms=1, ahead_ms=1)
    raw = replace(RAW, watermark=declared)
    return replace(source, description=replace(source.description, source=raw))


def read(source: Dataflow, upper: int) -> Unit:
    """Messages by event time, and an interval up to `upper`; none if that is the lower."""
    planned = share(source, Interval(Timestamp(NOW), Timestamp(upper)), {}, None)
    advance = Advance(lower=NOW, upper=upper)
    return EventUnit(flow=source, share=planned, loads=(), advance=advance, elapsed_ms=0)


@dataclass
class Shards:
    """What a `Imports` says, without shards: uppers, and stored batches."""

    uppers: dict[str, int] = field(default_factory=dict)
    stored: dict[str, InputBatch] = field(default_factory=dict)

    def input(self, collection: CollectionId, own: Antichain) -> Input:
        batch = self.stored.get(collection)
        fresh = batch is not None and own.strictly_precedes(batch.upper)
        batches = (batch,) if batch is not None and fresh else ()
        return Input(collection, at(0), at(self.uppers.get(collection, NOW)), batches)

    def loads(
        self,
        flow: Dataflow,
        lower: Timestamp,
        upper: Timestamp,
        until: Mapping[CollectionId, Timestamp],
    ) -> tuple[ChunkLoad, ...]:
        """Loads whose topics say what would be read of which import."""
        return tuple(
            ChunkLoad(flow.id, index, Topic(f"{description.collection} {lower} {end}"), ())
            for index, description in enumerate(flow.description.imports)
            if description.collection in self.stored
            and (end := until.get(description.collection, upper)) > lower
        )


@pytest.fixture(autouse=True)
def _no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "streams.replica.driver.steady_planner.output_of", lambda *_: Output(Topic("t"), (), {})
    )


def ingest(source: Dataflow, upper: int = THEN) -> Unit:
    interval = Interval(Timestamp(NOW), Timestamp(upper))
    step = Ingest(at(NOW), at(upper), Timestamp(NOW), {}, {})
    planned = share(source, interval, {}, None)
    return SourceUnit(flow=source, share=planned, loads=(), ingest=step)


def idle(source: Dataflow) -> IdleUnit:
    return IdleUnit(source, Tick(at(NOW), at(THEN), {}))


def chained(
    units: Sequence[Unit],
    views: Sequence[Dataflow],
    shards: Shards,
    quiet: Sequence[IdleUnit] = (),
) -> Chain:
    chain = Chain(
        view=cast(Imports, shards),
        now_ms=0,
        budget=100,
        units=list(units),
        quiet=list(quiet),
    )
    chain.follow(views)
    return chain


def topics(unit: Unit) -> list[str]:
    return [str(load.topic) for load in unit.loads if isinstance(load, ChunkLoad)]


def shares(chain: Chain) -> dict[str, tuple[int, dict[str, int], set[str]]]:
    return {
        str(unit.flow.id): (
            unit.share.base,
            {str(collection): index for collection, index in unit.share.in_hand.items()},
            set(unit.awaits),
        )
        for unit in chain.units
        if isinstance(unit, ViewUnit)
    }


def test_views_follow_their_source_through_levels() -> None:
    keyed, plain = flow("s1", depth=1), flow("s2", depth=0)
    views = [flow("v2", "v1", "s2"), flow("v1", "s1", depth=2)]  # given in any order
    chain = chained([ingest(keyed), ingest(plain)], views, Shards())
    assert shares(chain) == {
        "v1": (1, {"s1": 0}, {"s1"}),
        "v2": (3, {"v1": 0, "s2": 1}, {"v1", "s2"}),
    }
    assert [unit.flow.id for unit in chain.units] == ["s1", "s2", "v1", "v2"]
    steps = [bounds(unit) for unit in chain.units]
    assert all((step.lower, step.upper) == (at(NOW), at(THEN)) for step in steps)


def test_a_quiet_source_is_awaited_and_nothing_of_it_is_in_hand() -> None:
    busy, still = flow("s1"), flow("s2")
    chain = chained([ingest(busy)], [flow("v", "s1", "s2")], Shards(), [idle(still)])
    assert shares(chain) == {"v": (1, {"s1": 0}, {"s1", "s2"})}


def test_a_view_over_quiet_sources_is_quiet_and_so_are_its_readers() -> None:
    busy, still = flow("s1"), flow("s2")
    views = [flow("v", "s2"), flow("w", "v"), flow("x", "w", "s1")]
    chain = chained([ingest(busy)], views, Shards(), [idle(still)])
    moved = {str(move.flow.id): (move.move, set(move.awaits)) for move in chain.quiet}
    assert moved["v"] == (Idle(at(NOW), at(THEN)), {"s2"})
    assert moved["w"] == (Idle(at(NOW), at(THEN)), {"v"})
    assert shares(chain) == {"x": (1, {"s1": 1}, {"w", "s1"})}


@pytest.mark.parametrize(("due", "steps"), [(THEN - 1, True), (THEN, False)])
def test_rule_44_a_view_over_a_quiet_source_steps_when_something_is_due(
    due: int, *, steps: bool
) -> None:
    busy, still, view = flow("s1"), flow("s2"), flow("v", "s2")
    nodes = (Source(0), Temporal(0, (), (), ()))
    plan = physical.Dataflow((), nodes, ((), ()), (0, 1), ())
    own = OwnState("", at(NOW), {0: {}, 1: {"1.pending": [["r.0", 3, due]]}})
    view = replace(view, plan=plan, own=own)
    assert view.scheduled == at(due)
    chain = chained([ingest(busy)], [view, flow("w", "v")], Shards(), [idle(still)])
    if steps:
        assert shares(chain) == {"v": (0, {}, {"s2"}), "w": (1, {"v": 0}, {"v"})}
    else:
        assert shares(chain) == {}
        assert {move.flow.id for move in chain.quiet} == {"s2", "v", "w"}


def test_a_view_that_is_behind_reads_what_is_stored_and_takes_the_rest_in_hand() -> None:
    source, view = flow("s1"), flow("v", "s1", own=20)
    stored = Shards(stored={"s1": InputBatch(at(10), at(NOW), 9)})
    (unit,) = [unit for unit in chained([ingest(source)], [view], stored).units if unit.loads]
    assert unit.share.interval == interval_of(20, THEN)
    assert unit.share.in_hand == {"s1": 0}
    assert topics(unit) == [f"s1 20 {NOW}"]


def test_what_is_in_hand_is_not_read_too() -> None:
    """Another replica was faster: the view's shard has what this one is about to make."""
    source, behind = flow("s1"), flow("v", "s1", own=20)
    stored = Shards(stored={name: InputBatch(at(10), at(NOW), 9) for name in ("s1", "v")})
    chain = chained([ingest(source)], [behind, flow("w", "v", own=15)], stored)
    read = {str(unit.flow.id): topics(unit) for unit in chain.units}
    assert read == {"s1": [], "v": [f"s1 20 {NOW}"], "w": ["v 15 20"]}


def test_who_has_taken_some_of_it_before_does_not_take_it_in_hand() -> None:
    source, behind = flow("s1"), flow("v", "s1", own=20)
    stored = Shards(stored={name: InputBatch(at(10), at(NOW), 9) for name in ("s1", "v")})
    chain = chained([ingest(source)], [behind, flow("w", "v", own=30)], stored)
    assert set(shares(chain)) == {"v"}


@pytest.mark.parametrize("why", ["far behind", "import behind", "busy", "other upper"])
def test_who_cannot_take_the_whole_interval_does_not_follow(why: str) -> None:
    source, other, view = flow("s1"), flow("s2"), flow("v", "s1", "s2")
    shards, quiet = Shards(), [idle(other)]
    units = [ingest(source)]
    match why:
        case "far behind":
            view = replace(view, own=OwnState("", at(20), {}))
            shards.stored = {"s1": InputBatch(at(10), at(NOW), 1_000)}
        case "import behind":
            quiet = []
        case "busy":
            view = replace(view, busy=True)
        case _:
            units.append(ingest(other, THEN + 5))
            quiet = []
    chain = chained(units, [view], shards, quiet)
    assert shares(chain) == {}
    assert view.id not in chain.reached


def test_near_is_what_reads_sources_and_near_views_only() -> None:
    flows = [flow("s1"), flow("v", "s1"), flow("w", "v", "s1"), flow("x", "elsewhere", "s1")]
    assert fusion.near(flows) == {"v": None, "w": None}


def test_a_view_near_a_source_with_a_watermark_is_stepped_in_its_lane_alone() -> None:
    events = [with_watermark(flow(name)) for name in ("e1", "e2")]
    views = [flow("v", "e1"), flow("w", "v", "e1"), flow("x", "e1", "e2"), flow("y", "s1")]
    assert fusion.near([*events, flow("s1"), *views]) == {"v": "e1", "w": "e1", "y": None}


def test_a_view_takes_event_times_in_hand_and_waits_while_messages_are_read_ahead() -> None:
    source, view = with_watermark(flow("e1")), flow("v", "e1")
    chain = chained([read(source, THEN)], [view], Shards())
    assert view.id in chain.reached
    assert shares(chain) == {"v": (1, {"e1": 0}, {"e1"})}
    chain = chained([read(source, NOW)], [view], Shards())
    assert chain.reached == {}


def test_the_deep_and_the_dear_are_not_near() -> None:
    deep = [flow("s1"), flow("v", "s1", depth=fusion.MOST_ROUNDS), flow("w", "s1", depth=1)]
    assert fusion.near(deep) == {"w": None}
    dear = [flow("s1"), flow("v", "s1", cost_ms=fusion.MOST_MS + 1), flow("w", "v")]
    assert fusion.near(dear) == {}
