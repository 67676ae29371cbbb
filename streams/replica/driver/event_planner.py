"""Plans the lane of a source with a watermark: the next messages, and the next interval.

`streams.compute.event_time` decides; this module adds the state of the dataflow. Its own
position is the shard's, its progress runs ahead of it. If the shard has moved without it, its
pending rows are void: it begins again where the shard says that pending messages begin. So they
are if the topic has lost its end below what was read, and not below what is bound. With
keys, what the shard got since is replayed first (`ingest_planner.catch_up`): the row of each
key is that of the shard, whatever was pending. If its dead letters alone have moved, refused
messages are settled up to there.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from streams.compute import (
    binding,
    continuation,
    event_time,
    idleness,
    lost_races,
    reclocking,
    stalls,
)
from streams.compute.event_time import Advance, Observed, Progress, Ranges
from streams.compute.reclocking import Ends, Position
from streams.compute.skipped_offsets import Skipped
from streams.compute.stalls import (
    StaleEnds,
    Stalled,
    TopicReport,
    bad_message,
    reading_obstacle,
)
from streams.ids import Timestamp
from streams.operators.engine import is_of_pending_rows
from streams.progress import Interval
from streams.replica.driver import work_units
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.dataflow_state import OwnState
from streams.replica.driver.import_state import Imports
from streams.replica.driver.ingest_planner import (
    MovedSource,
    StalledSource,
    StartedBuild,
    catch_up,
    position,
)
from streams.replica.driver.steady_planner import output_of
from streams.replica.driver.work_units import EventUnit
from streams.replica.ingest import ranges
from streams.replica.ingest.event_times import Reading, ReadMode
from streams.replica.ingest.ranges import Slice
from streams.replica.tasks.descriptor import RawLoad, Runs

log = logging.getLogger(__name__)

SETTLING = frozenset({"dead_letter", "fail"})
"""The values of `on_error` with which refused messages become dead letters and nothing else.

An error of the source (`inline`) has a time that upper has to pass, and a skipped message is
counted where the source is bound.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The clock that nobody sets, the lane's watermark, and the messages of a micro-batch.

    `slice_bytes` is how much of a shard is replayed in one. A replica that `follows` takes over
    what the owner appends, and reads no message.
    """

    elapsed_ms: int
    watermark_ms: int
    messages: int
    slice_bytes: int
    follows: bool = False


def plan(
    flow: Dataflow, view: Imports, observation: TopicReport, moment: Moment
) -> EventUnit | MovedSource | StartedBuild | StalledSource | None:
    """Plan a running source with a watermark that is not busy; None if it has nothing to do."""
    source, own = flow.description.source, flow.own
    assert source is not None
    assert source.watermark is not None
    assert own is not None
    letters = _letters(flow, view)  # before the source: whatever moves that moves them too
    shard = position(flow, view)
    bound_letters = {} if letters is None else letters.offsets
    settled = continuation.settled(bound_letters, source.start)
    losses = _losses_unknown(own, shard, observation)
    match reading_obstacle(source, shard.offsets, losses, settled):
        case Stalled(reason):
            return StalledSource(flow, reason)
        case StaleEnds():
            return None
        case None:
            pass
    if (
        max(binding.generation(shard.offsets), binding.generation(bound_letters))
        > source.start.generation
        or max(binding.revision(shard.offsets), binding.revision(bound_letters))
        > source.revision
    ):
        return None  # it resumed elsewhere or was altered: its new description is on the way
    has_lost = _has_lost(flow, observation)
    is_void = own.position != shard or has_lost
    progress = event_time.begin(
        None if is_void else own.progress,
        shard.offsets,
        observation.ends,
        moment.elapsed_ms,
        source.start,
        settled,
    )
    progress = event_time.aware(progress, observation.losses)
    if is_void:
        upper = shard.frontier.time
        progress = idleness.as_left(
            progress, shard.offsets, source.start, upper, source.watermark
        )
        kept = None if has_lost else _kept(flow, shard, progress)
        return _void(flow, view, shard, progress, kept, moment)
    if progress != own.progress:
        return MovedSource(flow, replace(own, progress=progress))
    return None if moment.follows else _advance(flow, view, observation, progress, moment)


def _kept(flow: Dataflow, shard: Position, there: Progress) -> Progress | None:
    """What is kept of what was read, where another replica appended; None: nothing is."""
    own, source = flow.own, flow.description.source
    if own is None or source is None or flow.is_keyed or not own.progress:
        return None
    bound = (own.offsets or {}, shard.offsets)
    generations = {binding.generation(offsets) for offsets in bound}
    is_later = own.frontier.time < shard.frontier.time
    if not is_later or generations != {source.start.generation}:
        return None
    return lost_races.kept(own.progress, there, shard.frontier.time)


def _losses_unknown(own: OwnState, shard: Position, observation: TopicReport) -> TopicReport:
    """The report without lost ends where what is bound was read after they were lost.

    So it is if this replica alone has appended since it heard of them: nothing was bound there
    then, or the source would have stalled.
    """
    progress = own.progress or {}
    is_heard = bool(progress) and all(
        part.losses == observation.losses for part in progress.values()
    )
    return (
        replace(observation, shrunk={}) if is_heard and own.position == shard else observation
    )


def _has_lost(flow: Dataflow, observation: TopicReport) -> bool:
    """Whether the topic may have lost pending rows: what it holds now is to be read again."""
    progress = {} if flow.own is None else flow.own.progress or {}
    has_lost = event_time.has_lost(progress, observation.shrunk, observation.losses)
    if has_lost:
        log.warning(
            "the topic lost records at an end: what is pending is read again",
            extra={"dataflow": flow.id},
        )
    return has_lost


def _letters(flow: Dataflow, view: Imports) -> Position | None:
    """The position of the source's dead letters; None if it has no collection of them."""
    if flow.dead_letters is None:
        return None
    state = view.state(flow.dead_letters)
    return Position(state.upper, state.source or {})


def without_pending(shard: Position, progress: Progress | None = None) -> OwnState:
    """Return the state of a source at its shard's position before any message is read."""
    return OwnState(uuid.uuid4().hex, shard.frontier, {}, shard.offsets, progress)


def _void(
    flow: Dataflow,
    view: Imports,
    shard: Position,
    there: Progress,
    kept: Progress | None,
    moment: Moment,
) -> EventUnit | MovedSource | StartedBuild:
    """Bring a source to its shard's position, with the pending rows that are kept."""
    if kept is None or not lost_races.has_pending(kept):
        return _to_shard(flow, view, without_pending(shard, kept or there), moment)
    assert flow.own is not None
    lower, upper = flow.own.frontier.time, shard.frontier.time
    advance = Advance(lower=lower, upper=upper, follows=kept)
    return replace(_unit(flow, view, advance, moment.elapsed_ms), there=shard)


def _to_shard(
    flow: Dataflow, view: Imports, there: OwnState, moment: Moment
) -> MovedSource | StartedBuild:
    """Bring a source to its shard's position, at which its state is `there` but for keys."""
    if flow.own is None or not flow.is_keyed:
        return MovedSource(flow, there)
    settled = replace(flow, own=replace(flow.own, runs=_without_pending_rows(flow.own.runs)))
    return StartedBuild(flow, catch_up(settled, view, there.position, moment.slice_bytes))


def _without_pending_rows(runs: Mapping[int, Runs]) -> Mapping[int, Runs]:
    """The runs of each bucket, but for the rows that wait for their event time."""
    return {
        bucket: {
            name: files for name, files in of_bucket.items() if not is_of_pending_rows(name)
        }
        for bucket, of_bucket in runs.items()
    }


def _advance(
    flow: Dataflow,
    view: Imports,
    observation: TopicReport,
    progress: Progress,
    moment: Moment,
) -> EventUnit | StalledSource | None:
    source, topic = flow.description.source, observation.ends
    assert source is not None
    assert source.watermark is not None
    broken = event_time.broken(progress, topic)
    if broken is not None:
        bound = progress[broken.partition].bound
        return StalledSource(flow, stalls.pending_are_gone(source, broken, bound))
    ends = _up_to_bad(flow, progress, topic)
    if isinstance(ends, str):
        return StalledSource(flow, ends)
    observed = Observed(
        topic=ends,
        clock_ms=asked_at_ms(observation, moment.elapsed_ms),
        watermark=moment.watermark_ms,
        budget=moment.messages,
        may_settle=_may_settle(flow, view),
        has_skipped=bool(_skipped(flow, view)),
    )
    upper = view.state(flow.id).upper.time
    advance = event_time.next_advance(progress, upper, observed, source.watermark)
    return None if advance is None else _unit(flow, view, advance, moment.elapsed_ms)


def _skipped(flow: Dataflow, view: Imports) -> tuple[Skipped, ...]:
    """What the dead letters still have to say about messages that are never read."""
    letters = _letters(flow, view)
    bound = position(flow, view).offsets
    return work_units.skipped(flow, bound, {} if letters is None else letters.offsets)


def _may_settle(flow: Dataflow, view: Imports) -> bool:
    """Whether dead letters may be appended without the source.

    Not while a replica that knows of none may append to the source: after ALTER SOURCE has made
    their collection, the source's next Append comes first.
    """
    source, letters = flow.description.source, _letters(flow, view)
    if source is None or letters is None or source.on_error not in SETTLING:
        return False
    return not source.revision or letters.frontier.time > flow.description.as_of


def asked_at_ms(observation: TopicReport, elapsed_ms: int) -> int:
    """Return when the ends were asked for: no partition is idle by ends of an earlier time."""
    asked_ms = observation.asked_elapsed_ms
    return elapsed_ms if asked_ms is None else asked_ms


def _up_to_bad(
    flow: Dataflow, progress: Progress, topic: Mapping[int, Ends]
) -> Mapping[int, Ends] | str:
    """Return the ends to which a source reads, or why it stops here (FAIL)."""
    source, trouble = flow.description.source, flow.trouble
    place = None if source is None or trouble is None else bad_message(source, trouble.message)
    if trouble is None or place is None or place[0] not in topic:
        return topic
    partition, offset = place
    reads = {number: part.read for number, part in progress.items()}
    if reads.get(partition, 0) >= offset:
        return trouble.message
    return reclocking.up_to(topic, reads, partition, offset)


def _unit(flow: Dataflow, view: Imports, advance: Advance, elapsed_ms: int) -> EventUnit:
    assert flow.own is not None
    interval = Interval(Timestamp(advance.lower), Timestamp(advance.upper))
    output = output_of(flow, view) if advance.appends or advance.settles else None
    share = work_units.share(flow, interval, flow.own.runs, output)
    letters = _letters(flow, view)
    manner = _manner(flow.own.progress, letters, interval.lower)
    kinds: tuple[tuple[Reading, Ranges], ...] = (
        ("fresh", advance.fresh),
        ("again", advance.again),
        ("owed", advance.owed),
    )
    loads = [
        _load(flow, replace(manner, reading=kind), slices, interval.lower)
        for kind, wanted in kinds
        if (slices := ranges.without(ranges.slices(wanted), _gaps(flow.own.progress)))
    ]
    skipped = _skipped(flow, view) if output is not None else ()
    if skipped:
        loads.append(replace(_load(flow, manner, (), interval.lower), skipped=skipped))
    return EventUnit(
        flow=flow,
        share=work_units.without_output(share) if advance.settles else share,
        loads=tuple(loads),
        advance=advance,
        elapsed_ms=elapsed_ms,
        letters=letters,
    )


def _manner(progress: Progress | None, letters: Position | None, lower: Timestamp) -> ReadMode:
    """What is settled, and the time of dead letters: no earlier than their upper."""
    before = [(number, part.settled) for number, part in sorted((progress or {}).items())]
    time = lower if letters is None else max(lower, letters.frontier.time)
    return ReadMode(settled=tuple(before), letters_at=time)


def _gaps(progress: Progress | None) -> Mapping[int, continuation.Gaps]:
    return {number: part.gaps for number, part in (progress or {}).items()}


def _load(
    flow: Dataflow, manner: ReadMode, slices: tuple[Slice, ...], lower: Timestamp
) -> RawLoad:
    source = flow.description.source
    assert source is not None
    return RawLoad(
        dataflow=flow.id,
        source=source,
        columns=flow.description.columns,
        slices=slices,
        time=lower,
        manner=manner,
    )
