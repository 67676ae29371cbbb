"""Plans the steady lane: steps of all views with new input, in one micro-batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streams.compute.stepping import Idle, Overtaken, Step, Wait, next_step
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.progress import EMPTY, Interval
from streams.replica.driver import work_units
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.import_state import NOWHERE, Imports
from streams.replica.driver.work_units import IdleUnit, ViewUnit
from streams.replica.tasks.descriptor import Output


@dataclass(frozen=True, slots=True)
class LostState:
    """A flow whose state is useless: an import was compacted beyond it."""

    flow: Dataflow


@dataclass(frozen=True, slots=True)
class BlockedView:
    """A flow that waits for these imports."""

    flow: Dataflow
    imports: tuple[CollectionId, ...]


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The next actions of the views: micro-batch, idle appends, and flows to restart."""

    units: tuple[ViewUnit, ...]
    quiet: tuple[IdleUnit, ...]
    lost: tuple[LostState, ...]
    waiting: tuple[BlockedView, ...]


def plan(
    flows: Iterable[Dataflow],
    view: Imports,
    now_ms: int,
    budget: int,
    *,
    may_write: bool = True,
) -> ViewPlan:
    """Plan every running view that is not busy; without writing, up to its shard's upper."""
    units: list[ViewUnit] = []
    quiet: list[IdleUnit] = []
    lost: list[LostState] = []
    waiting: list[BlockedView] = []
    for flow in flows:
        if flow.binds or flow.own is None or not flow.is_ready(Phase.RUNNING, now_ms):
            continue
        own = flow.own.frontier
        inputs, scheduled = view.of_flow(flow, own), flow.scheduled
        limit = EMPTY if may_write else view.state(flow.id).upper
        match next_step(own, inputs, scheduled=scheduled, budget=budget, limit=limit):
            case Step() as step:
                units.append(unit(flow, view, step))
            case Idle() as idle:
                quiet.append(IdleUnit(flow, idle))
            case Overtaken():
                lost.append(LostState(flow))
            case Wait(imports):
                waiting.append(BlockedView(flow, imports))
    return ViewPlan(tuple(units), tuple(quiet), tuple(lost), tuple(waiting))


def unit(
    flow: Dataflow,
    view: Imports,
    step: Step,
    until: Mapping[CollectionId, Timestamp] = NOWHERE,
) -> ViewUnit:
    """Return a view's share of a micro-batch, with its input in the step's interval.

    An import in `until` is read up to that time only.
    """
    assert flow.own is not None
    assert not step.upper.is_empty, "updates have times, so a step with news has an upper"
    lower, upper = step.lower.time, step.upper.time
    share = work_units.share(flow, Interval(lower, upper), flow.own.runs, output_of(flow, view))
    loads = view.loads(flow, lower, upper, until)
    return ViewUnit(flow=flow, share=share, loads=loads)


def output_of(flow: Dataflow, view: Imports) -> Output:
    """Return where a dataflow writes, and from which time on."""
    names = tuple(column.name for column in flow.description.columns)
    headers = {"collection": flow.id.encode()}
    upper = view.state(flow.id).upper
    floor = MINIMUM_TIME if upper.is_empty else upper.time
    return Output(view.shards.data_topic(flow.id), names, headers, floor)
