"""Plans the ingestion lane: new messages of every source, bound to one time.

All sources move together: if one has messages, the others tick to the same upper in the same
commit, so that a view over several of them does not wait for the idle ones. Without messages
they tick individually, about every second. Those with a watermark have lanes of their own
(`streams.replica.driver.event_planner`). A rebase moves with them
(`streams.replica.driver.rebase_planner`).

`streams.compute.reclocking` decides for one source; this module adds the consequences for the
dataflow's keyed state:

    Follow    only time moved: take over the shard's position with the same state
    Rebuild   without keyed state the same; with it, replay the shard's new updates

The first interval of a source takes all messages in the topic, as one snapshot at one time; if
that exceeds a micro-batch it becomes a build, in the hydration lane.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby

from streams.compute import binding, reclocking
from streams.compute.reclocking import (
    Broken,
    Clock,
    Ends,
    Follow,
    Ingest,
    Ingestion,
    Pause,
    Position,
    Rebuild,
    Tick,
)
from streams.compute.stalls import (
    StaleEnds,
    Stalled,
    TopicReport,
    bad_message,
    reading_obstacle,
)
from streams.compute.stepping import Overtaken
from streams.ids import Timestamp, Topic
from streams.progress import Interval, frontier
from streams.replica.driver import rebase_planner, work_units
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import Build, OwnState
from streams.replica.driver.import_state import Imports
from streams.replica.driver.steady_planner import output_of
from streams.replica.driver.work_units import IdleUnit, SourceUnit
from streams.replica.ingest import ranges
from streams.replica.tasks.descriptor import ChunkLoad, RawLoad, Replay


@dataclass(frozen=True, slots=True)
class StalledSource:
    """A source that cannot be read on; `reason` is for display."""

    flow: Dataflow
    reason: str


@dataclass(frozen=True, slots=True)
class MovedSource:
    """A source whose own state moves to another position without any work."""

    flow: Dataflow
    own: OwnState


@dataclass(frozen=True, slots=True)
class StartedBuild:
    """A source with more work than fits in one micro-batch."""

    flow: Dataflow
    build: Build


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The next actions of the sources."""

    units: tuple[SourceUnit, ...] = ()
    quiet: tuple[IdleUnit, ...] = ()
    stuck: tuple[StalledSource, ...] = ()
    moved: tuple[MovedSource, ...] = ()
    began: tuple[StartedBuild, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestLimits:
    """Limits: messages of a topic per micro-batch and their bytes, bytes per slice, idle ticks.

    `step_bytes` is of what a rebase reads. `skew_ms` is this clock less the broker's, None if
    unknown. A replica that `follows` takes over what the owner appends, and appends nothing.
    """

    messages: int
    message_bytes: int
    slice_bytes: int
    step_bytes: int
    tick_ms: int
    skew_ms: int | None
    follows: bool = False

    def messages_of(self, observation: TopicReport) -> int:
        """The number of messages of a topic per micro-batch: fewer if they are large."""
        return most_messages(self.messages, self.message_bytes, observation.message_bytes)


def most_messages(messages: int, message_bytes: int, mean_bytes: int) -> int:
    """Return the number of messages of a topic per micro-batch, of a mean size in bytes."""
    return min(messages, max(1, message_bytes // max(1, mean_bytes)))


def plan(
    flows: Iterable[Dataflow],
    view: Imports,
    topics: Mapping[Topic, TopicReport],
    now_ms: int,
    limits: IngestLimits,
) -> SourcePlan:
    """Plan every running source that is not busy and whose topic's ends are known.

    No interval goes beyond the moment at which the ends were requested: messages that were
    acknowledged before a time are in the contents at that time, unless more are pending than a
    micro-batch takes.
    """
    decided: list[tuple[Dataflow, Ingestion]] = []
    stuck: list[StalledSource] = []
    ready = [
        flow
        for flow in flows
        if flow.own
        and not flow.has_watermark
        and flow.is_ready(Phase.RUNNING, now_ms)
        and not _is_altered(flow, view)
    ]
    now_ms = _known_ms(ready, topics, now_ms)
    clock = Clock(now_ms, limits.tick_ms, limits.skew_ms)
    for flow in ready:
        decision = (
            _rebasing(flow, view, clock, limits)
            if flow.is_rebase
            else _ingestion(flow, view, topics, clock, limits)
        )
        if limits.follows and not isinstance(decision, Follow | Rebuild):
            continue
        if isinstance(decision, StalledSource):
            stuck.append(decision)
        elif decision is not None:
            decided.append((flow, decision))
    found_plan = _plan(decided, view, topics, clock.earlier_ms, limits)
    return replace(found_plan, stuck=(*found_plan.stuck, *stuck))


def _rebasing(
    flow: Dataflow, view: Imports, clock: Clock, limits: IngestLimits
) -> Ingestion | StalledSource:
    """Decide about a rebase; it stops if the history of its import is gone."""
    shard = position(flow, view)
    match rebase_planner.decide(flow, view, shard, clock, limits.step_bytes):
        case Overtaken():
            return StalledSource(flow, rebase_planner.why_overtaken(flow, view))
        case decision:
            return decision


def _ingestion(
    flow: Dataflow,
    view: Imports,
    topics: Mapping[Topic, TopicReport],
    clock: Clock,
    limits: IngestLimits,
) -> Ingestion | StalledSource | None:
    """Decide about a source; None while the ends of its topic are not known."""
    source = flow.description.source
    if source is None or flow.own is None or source.topic not in topics:
        return None
    observation, shard = topics[source.topic], position(flow, view)
    match reading_obstacle(source, shard.offsets, observation):
        case Stalled(reason):
            return StalledSource(flow, reason)
        case StaleEnds():
            return None
        case None:
            ends = _up_to_bad(flow, shard, observation.ends)
            if isinstance(ends, str):
                return StalledSource(flow, ends)
            own, most = flow.own.position, limits.messages_of(observation)
            return reclocking.next_interval(own, shard, ends, clock, most, source.start)


def _is_altered(flow: Dataflow, view: Imports) -> bool:
    """Whether a later revision of a source has appended: its description is on the way."""
    source = flow.description.source
    if source is None:
        return False
    return binding.revision(position(flow, view).offsets) > source.revision


def _up_to_bad(
    flow: Dataflow, shard: Position, ends: Mapping[int, Ends]
) -> Mapping[int, Ends] | str:
    """Return the ends to which a source reads, or why it stops here (ON ERROR FAIL).

    Before a bad message that its work has failed at, it reads that partition alone, so that a
    second one elsewhere does not take its place: all before the first is read, and it stops.
    """
    source, trouble = flow.description.source, flow.trouble
    place = None if source is None or trouble is None else bad_message(source, trouble.message)
    if source is None or trouble is None or place is None or place[0] not in ends:
        return ends
    partition, offset = place
    begin = reclocking.read_positions(shard.offsets, source.start)
    if begin.get(partition, 0) >= offset:
        return trouble.message
    return reclocking.up_to(ends, begin, partition, offset)


def _known_ms(
    flows: Iterable[Dataflow], topics: Mapping[Topic, TopicReport], now_ms: int
) -> int:
    """Return the request time of the oldest answer about these sources' topics."""
    sources = [flow.description.source for flow in flows]
    observations = [
        topics[source.topic]
        for source in sources
        if source is not None and source.topic in topics
    ]
    return min(
        [now_ms, *(topic.asked_ms for topic in observations if topic.asked_ms is not None)]
    )


def position(flow: Dataflow, view: Imports) -> Position:
    """Return the position of a source's shard."""
    state = view.state(flow.id)
    return Position(state.upper, state.source or {})


def _plan(
    decided: list[tuple[Dataflow, Ingestion]],
    view: Imports,
    topics: Mapping[Topic, TopicReport],
    now_ms: int,
    limits: IngestLimits,
) -> SourcePlan:
    units: list[SourceUnit] = []
    began: list[StartedBuild] = []
    for flow, decision in decided:
        if isinstance(decision, Ingest) and flow.is_rebase:
            match rebase_planner.planned(flow, view, decision, limits.slice_bytes):
                case Build() as build:
                    began.append(StartedBuild(flow, build))
                case unit:
                    units.append(unit)
        elif isinstance(decision, Ingest):
            source = flow.description.source
            assert source is not None
            observation = topics[source.topic]
            slices = ranges.slices(reclocking.ranges(decision, observation.ends, source.start))
            most = limits.messages_of(observation)
            if ranges.length(slices) > most:
                began.append(StartedBuild(flow, _first(flow, decision, slices, most)))
            else:
                units.append(_unit(flow, view, decision, slices))
        elif isinstance(decision, Rebuild) and flow.is_keyed:
            began.append(
                StartedBuild(flow, catch_up(flow, view, decision.at, limits.slice_bytes))
            )
    return SourcePlan(
        units=tuple(units),
        quiet=tuple(_ticks(decided, now_ms, together=bool(units))),
        stuck=tuple(
            _stuck(flow, decision) for flow, decision in decided if isinstance(decision, Broken)
        ),
        moved=tuple(
            MovedSource(flow, _at(flow, decision.at))
            for flow, decision in decided
            if isinstance(decision, Follow)
            or (isinstance(decision, Rebuild) and not flow.is_keyed)
        ),
        began=tuple(began),
    )


def _at(flow: Dataflow, at: Position) -> OwnState:
    assert flow.own is not None
    return replace(flow.own, frontier=at.frontier, offsets=at.offsets)


def _ticks(
    decided: list[tuple[Dataflow, Ingestion]], now_ms: int, *, together: bool
) -> Iterable[IdleUnit]:
    """Return idle sources that tick: all if any source is busy, else those that are due."""
    for flow, decision in decided:
        if isinstance(decision, Tick):
            yield IdleUnit(flow, decision)
        elif together and isinstance(decision, Pause) and decision.until_ms is not None:
            assert flow.own is not None
            lower, offsets = flow.own.frontier, flow.own.offsets or {}
            upper = work_units.after(max(Timestamp(now_ms), lower.time))
            yield IdleUnit(flow, Tick(lower, upper, offsets))


def _unit(
    flow: Dataflow, view: Imports, decision: Ingest, slices: tuple[ranges.Slice, ...]
) -> SourceUnit:
    assert flow.own is not None
    interval = Interval(decision.lower.time, decision.upper.time)
    load = _with_skipped(flow, decision, _raw(flow, slices, decision.time))
    share = work_units.share(flow, interval, flow.own.runs, output_of(flow, view))
    return SourceUnit(flow=flow, share=share, loads=(load,), ingest=decision)


def _raw(flow: Dataflow, slices: tuple[ranges.Slice, ...], time: Timestamp) -> RawLoad:
    source, columns = flow.description.source, flow.description.columns
    assert source is not None
    return RawLoad(dataflow=flow.id, source=source, columns=columns, slices=slices, time=time)


def _with_skipped(flow: Dataflow, decision: Ingest, load: RawLoad) -> RawLoad:
    """Let a load say what was skipped, if it is the first one of a source that resumed."""
    return replace(load, skipped=work_units.skipped(flow, decision.from_offsets, {}))


def _first(
    flow: Dataflow, decision: Ingest, slices: tuple[ranges.Slice, ...], messages: int
) -> Build:
    """Return a large first interval in slices such that later ones have later positions."""
    assert flow.own is not None
    first, *others = (
        _raw(flow, window, decision.time) for window in ranges.windows(slices, messages)
    )
    loads = (_with_skipped(flow, decision, first), *others)
    return Build(
        incarnation=flow.own.incarnation,
        lower=decision.lower.time,
        upper=decision.upper.time,
        as_of=False,
        writes=True,
        slices=tuple((load,) for load in loads),
        sizes=(0,) * len(loads),
        runs=flow.own.runs,
        ingest=decision,
        offsets=decision.to_offsets,
    )


def catch_up(flow: Dataflow, view: Imports, at: Position, slice_bytes: int) -> Build:
    """Bring keyed state to the shard's frontier: replay what others appended since.

    State at a frontier that counted equals the shard's contents there, so it lacks exactly the
    updates in [own, shard); for empty state, the shard's whole history. They are read as
    messages, in the order of their times; a slice takes whole batches. If since has reached the
    frontier of the state, history was advanced to it: then the replay starts from empty state.
    """
    own, source = flow.own, flow.description.source
    assert own is not None
    assert source is not None
    if not view.state(flow.id).since.less_equal(Timestamp(own.frontier.time - 1)):
        own = OwnState("", frontier(flow.description.as_of), {}, {})
    topic = view.shards.data_topic(flow.id)
    replay = Replay(source, flow.description.columns)
    lower, upper = own.frontier.time, at.frontier.time
    pieces = sorted(
        view.pieces(flow.id, lower, upper), key=lambda piece: (piece.lower, piece.upper)
    )
    batches = [tuple(same) for _, same in groupby(pieces, key=lambda p: (p.lower, p.upper))]
    sizes = [sum(piece.ref.size for piece in batch) for batch in batches]
    grouped = work_units.slices_of(batches, sizes, slice_bytes)
    parts = [tuple(chain.from_iterable(group)) for group in grouped]
    return Build(
        incarnation=own.incarnation or uuid.uuid4().hex,
        lower=lower,
        upper=upper,
        as_of=False,
        writes=False,
        slices=tuple((ChunkLoad(flow.id, 0, topic, part, replay=replay),) for part in parts),
        sizes=tuple(sum(piece.ref.size for piece in part) for part in parts),
        runs=own.runs,
        offsets=at.offsets,
    )


def _stuck(flow: Dataflow, broken: Broken) -> StalledSource:
    assert flow.description.source is not None
    reason = (
        f'topic "{flow.description.source.topic}", partition {broken.partition}: expected '
        f"offset {broken.expected}, actual offsets {broken.ends.low} to {broken.ends.high}"
    )
    return StalledSource(flow, reason)
