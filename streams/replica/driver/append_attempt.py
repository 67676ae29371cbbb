"""An attempt of a dataflow to append, as a machine. Pure.

An attempt either has something to submit or has ended; `answered` is its step after an outcome.
Its end is an event of the dataflow (`streams.replica.driver.events`). An Append's lower is the
shard's upper, its upper is the step's; the state moves to the step's upper, however much of it
was left to append (rule 16). Another writer may have been first:

    a view       the rest of the interval is appended, with the same chunks: the other writer
                 computed the same updates (rules 16, 18)
    a source,
    a rebase     the attempt is void: its chunks are orphans, its state does not move, and the
                 next decision begins at the shard's new upper (rule 18); so are dead letters
                 that are appended without their source

A collector may also have been first (rule 7). Then nothing counted: the step is repeated and
writes its chunks again. A build whose stage is incomplete (its lease expired) or has a slice
twice starts again. (`hydration_planner.resumed` recognises slices staged by a driver that has
died.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from streams.compute import binding, error_limit, event_time
from streams.compute.binding import Fact
from streams.compute.reclocking import Tick
from streams.compute.stepping import Idle, Step, clip
from streams.ids import CollectionId, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.replica.driver import work_units
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.dataflow_state import OwnState
from streams.replica.driver.events import (
    Built,
    Counted,
    End,
    Failed,
    Reclaimed,
    Sliced,
    Stepped,
    Superseded,
    Unstaged,
    Void,
)
from streams.replica.driver.retry_policy import Failure
from streams.replica.driver.work_units import (
    EventUnit,
    IdleUnit,
    SliceUnit,
    SourceUnit,
    Unit,
    ViewUnit,
)
from streams.replica.tasks import report
from streams.replica.tasks.report import Result
from streams.storage.log.events import Append, Body, Offsets, Part, Stage
from streams.storage.log.outcomes import (
    Appended,
    ChunksReclaimed,
    Fenced,
    OffsetsMismatch,
    Outcome,
    Staged,
    UnknownStage,
    UpperMismatch,
)

STAGE_LEASE_MS = 3_600_000

SEES_SHARD = (Staged, UpperMismatch)
"""The outcomes after which an attempt depends on what others wrote meanwhile."""

Bounds = tuple[Antichain, Antichain]


@dataclass(frozen=True, slots=True)
class ShardState:
    """A dataflow's shard, as folded so far.

    `fingerprint` is that of the version that wrote it last; `stages` has the number of chunks
    in each stage.
    """

    upper: Antichain
    fingerprint: str
    stages: Mapping[str, int]
    letters: Antichain | None = None
    """The upper of its dead letters, if it has any."""

    def is_foreign(self, flow: Dataflow) -> bool:
        """Whether another version has written a view's shard last (rule 24).

        What EMIT ON CLOSE let out stays, whichever replica did it: no version corrects another.
        """
        if flow.binds or flow.plan.emits_on_close:
            return False
        return self.fingerprint not in {"", flow.fingerprint}


@dataclass(frozen=True, slots=True)
class OpenInterval:
    """The open part of an interval whose updates are the same for all writers."""

    bounds: Bounds
    chunks: tuple[ChunkRef, ...] = ()
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetterPart:
    """The part of a source's dead letters in its Append, or an Append of them alone.

    `offsets` bind how far they are settled (`streams.compute.event_time`).
    """

    collection: CollectionId
    bounds: Bounds
    chunks: tuple[ChunkRef, ...] = ()
    stages: tuple[str, ...] = ()
    offsets: tuple[Offsets, Offsets] | None = None


@dataclass(frozen=True, slots=True)
class BoundInterval:
    """An interval of a source, with the offsets that it binds: all of it or nothing."""

    bounds: Bounds
    offsets: tuple[Offsets, Offsets]
    chunks: tuple[ChunkRef, ...] = ()
    stages: tuple[str, ...] = ()
    letters: DeadLetterPart | None = None


@dataclass(frozen=True, slots=True)
class StagedSlice:
    """A slice's chunks for a stage that has `total` of them then; none renew its lease.

    `then` is another stage, for the chunks of the slice's dead letters.
    """

    stage: str
    total: int
    chunks: tuple[ChunkRef, ...] = ()
    then: "StagedSlice | None" = None


Open = OpenInterval | BoundInterval | StagedSlice | DeadLetterPart
"""What is left to submit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One dataflow's events of a commit, or how it ended; `counted` if it counts.

    `awaits` names the dataflows whose attempts must have counted before.
    """

    flow: Dataflow
    counted: Counted
    now: Open | End
    awaits: frozenset[CollectionId] = frozenset()
    shard: ShardState
    """The last observed state."""

    @property
    def open(self) -> Open | None:
        """The part still to submit."""
        return self.now if isinstance(self.now, Open) else None

    @property
    def end(self) -> End | None:
        """The result."""
        return None if isinstance(self.now, Open) else self.now

    @property
    def counts(self) -> bool:
        """Whether its updates are appended, by it or by another writer."""
        return isinstance(self.now, Stepped | Sliced | Built)

    @property
    def chunks(self) -> tuple[ChunkRef, ...]:
        """The chunks that are left to submit."""
        return () if self.open is None else self.open.chunks

    def ended(self, end: End) -> "Attempt":
        """Return the attempt, ended."""
        return replace(self, now=end)

    def body(self) -> Body | None:
        """Return the event to append; None if it has ended."""
        match self.open:
            case None:
                return None
            case StagedSlice(stage=stage, chunks=chunks):
                return Stage(stage=stage, chunks=chunks, lease_ms=STAGE_LEASE_MS)
            case OpenInterval(bounds, chunks, stages):
                return Append((work_units.part(self.flow, bounds, chunks, None, stages),))
            case BoundInterval(bounds, offsets, chunks, stages, letters):
                part = work_units.part(self.flow, bounds, chunks, offsets, stages)
                return Append((part, *_parts(self.flow, letters)))
            case DeadLetterPart() as letters:
                return Append(_parts(self.flow, letters))
            case _:
                assert_never(self.open)

    def answered(self, outcome: Outcome) -> "Attempt":
        """Return the attempt after the outcome of its event.

        After an outcome in `SEES_SHARD` its shard has to be the one that was read back.
        """
        open_ = self.open
        assert open_ is not None, "an attempt that ended has no event"
        match outcome:
            case UpperMismatch(current=current) if _may_go_on(self, open_, current):
                assert isinstance(open_, OpenInterval)
                lower, upper = open_.bounds[0].join(current), open_.bounds[1]
                is_open = lower.strictly_precedes(upper)
                rest = replace(open_, bounds=(lower, upper)) if is_open else self.counted
                return replace(self, now=rest)
            case Staged() if isinstance(open_, StagedSlice) and open_.then is not None:
                if self._is_whole(open_):
                    return replace(self, now=open_.then)
                return self.ended(Unstaged())
            case Fenced(fingerprint=fingerprint):
                return self.ended(fenced_by(fingerprint))
            case _:
                return self.ended(self._end(outcome, open_))

    def _is_whole(self, staging: StagedSlice) -> bool:
        return self.shard.stages.get(staging.stage) == staging.total

    def _end(self, outcome: Outcome, open_: Open) -> End:
        match outcome:
            case Appended():
                return self.counted
            case Staged() if isinstance(open_, StagedSlice):
                return self.counted if self._is_whole(open_) else Unstaged()
            case UpperMismatch() | OffsetsMismatch():
                return (
                    Void()
                    if isinstance(open_, BoundInterval | DeadLetterPart)
                    else Superseded()
                )
            case ChunksReclaimed():
                return Reclaimed()
            case UnknownStage():
                return Unstaged()
            case _:
                return Failed(Failure(f"the append was refused: {outcome}"))


def _parts(flow: Dataflow, letters: DeadLetterPart | None) -> tuple[Part, ...]:
    if letters is None:
        return ()
    part = work_units.part_of_letters(
        flow,
        letters.collection,
        letters.bounds,
        letters.chunks,
        letters.stages,
        letters.offsets,
    )
    return (part,)


def fenced_by(fingerprint: str) -> Failed:
    """Return the failure of a version that another one has replaced."""
    text = f"another version of the dataflow writes the shard: {fingerprint}"
    return Failed(Failure(text), for_good=True)


def _may_go_on(attempt: Attempt, open_: Open, current: Antichain) -> bool:
    """Whether what was appended meanwhile is the same as the attempt's, and none was lost."""
    if not isinstance(open_, OpenInterval) or attempt.shard.is_foreign(attempt.flow):
        return False
    return not current.strictly_precedes(open_.bounds[0])  # else the shard was made again


def of_unit(unit: Unit, result: Result, shard: ShardState) -> Attempt:
    """Return the attempt after a unit's tasks."""
    chunks = tuple(result.chunks)
    now: OpenInterval | BoundInterval | End
    match unit:
        case ViewUnit(flow=flow, awaits=awaits):
            counted = Stepped(_after(unit, result, None))
            now = _rest(flow, counted, work_units.bounds(unit), shard, chunks)
            return Attempt(flow=flow, counted=counted, now=now, awaits=awaits, shard=shard)
        case SourceUnit(flow=flow, ingest=ingest):
            to_offsets = _counted(flow, ingest.to_offsets, result)
            counted = Stepped(_after(unit, result, to_offsets))
            step, offsets = work_units.bounds(unit), (ingest.from_offsets, to_offsets)
            letters = _letters(flow, shard, step.upper, result)
            now = _over_limit(flow, offsets) or BoundInterval(
                (step.lower, step.upper), offsets, chunks, letters=letters
            )
            return Attempt(flow=flow, counted=counted, now=now, shard=shard)
        case EventUnit():
            return _of_event_time(unit, result, shard)
        case SliceUnit():
            return _of_slice(unit, result, shard)
        case _:
            assert_never(unit)


def _of_event_time(unit: EventUnit, result: Result, shard: ShardState) -> Attempt:
    """Return the attempt after messages by event time.

    Without an interval only state moves, or dead letters are settled.
    """
    flow, advance, own, source = (
        unit.flow,
        unit.advance,
        unit.flow.own,
        unit.flow.description.source,
    )
    assert own is not None
    assert own.progress is not None
    assert source is not None
    progress = event_time.after(own.progress, advance, result.seen, unit.elapsed_ms)
    after = replace(own, runs=report.merge(flow.plan, own.runs, result), progress=progress)
    if unit.there is not None:
        after = replace(after, frontier=unit.there.frontier, offsets=unit.there.offsets)
    letters = _letters_by_event_time(unit, result, progress)
    bounds, offsets = work_units.bounds(unit), own.offsets or {}
    to_offsets = _revised(
        flow,
        event_time.bound_by(offsets, progress, source.start, error_limit.counts_of(source)),
    )
    over_limit = _over_limit(flow, (offsets, to_offsets))
    if not advance.appends:
        counted = Stepped(after)
        settles = over_limit or letters if advance.settles else None
        return Attempt(flow=flow, counted=counted, now=settles or counted, shard=shard)
    counted = Stepped(replace(after, frontier=bounds.upper, offsets=to_offsets))
    now = over_limit or BoundInterval(
        (bounds.lower, bounds.upper),
        (offsets, to_offsets),
        tuple(result.chunks),
        letters=letters,
    )
    return Attempt(flow=flow, counted=counted, now=now, shard=shard)


def of_quiet(quiet: IdleUnit, shard: ShardState) -> Attempt:
    """Return the attempt of an idle interval."""
    flow, move = quiet.flow, quiet.move
    assert flow.own is not None
    counted = Stepped(replace(flow.own, frontier=move.upper))
    match move:
        case Tick(lower, upper, offsets, reached):
            letters = _letters(flow, shard, upper)
            to_offsets = _revised(flow, offsets if reached is None else reached)
            counted = Stepped(replace(flow.own, frontier=move.upper, offsets=to_offsets))
            now = BoundInterval((lower, upper), (offsets, to_offsets), letters=letters)
            return Attempt(flow=flow, counted=counted, now=now, shard=shard)
        case Idle():
            rest = _rest(flow, counted, move, shard)
            return Attempt(
                flow=flow, counted=counted, now=rest, awaits=quiet.awaits, shard=shard
            )
        case _:
            assert_never(move)


def _counted(flow: Dataflow, to_offsets: Offsets, result: Result) -> Offsets:
    """The binding at the end of an interval, with what its messages add to the counts."""
    source = flow.description.source
    if source is None:  # a rebase reads no messages
        return to_offsets
    skipped = result.seen.skipped
    to_offsets = binding.counted(to_offsets, source.start.generation, skipped, Fact.SKIPPED)
    return _revised(flow, error_limit.counted(source, to_offsets, result.seen))


def _revised(flow: Dataflow, bound: Offsets) -> Offsets:
    """The binding of an Append, which keeps replicas of an earlier revision from appending."""
    source = flow.description.source
    if source is None:
        return bound
    return binding.revised(bound, source.start.generation, source.revision)


def _over_limit(flow: Dataflow, offsets: tuple[Offsets, Offsets]) -> Failed | None:
    """Why an Append would pass the source's ERROR LIMIT; None if it may be made."""
    source = flow.description.source
    if source is None:
        return None
    reason = error_limit.limit_objection(source, *offsets)
    return None if reason is None else Failed(Failure(reason))


def _letters(
    flow: Dataflow,
    shard: ShardState,
    upper: Antichain,
    result: Result | None = None,
    stages: tuple[str, ...] = (),
) -> DeadLetterPart | None:
    """The dead letters of a source's interval; None for a source without any collection."""
    if flow.dead_letters is None or shard.letters is None:
        return None
    chunks = () if result is None else tuple(result.letters)
    return DeadLetterPart(flow.dead_letters, (shard.letters, upper), chunks, stages)


def _letters_by_event_time(
    unit: EventUnit, result: Result, progress: event_time.Progress
) -> DeadLetterPart | None:
    """The dead letters of a micro-batch, after which all that was read is settled.

    Their collection may be ahead of the source. It moves all the same, so that of two writers
    that have settled differently one counts.
    """
    flow, at, source = unit.flow, unit.letters, unit.flow.description.source
    if flow.dead_letters is None or at is None or source is None:
        return None
    upper = work_units.after(max(at.frontier.time, Timestamp(unit.advance.upper - 1)))
    settled = {number: part.settled for number, part in progress.items()}
    to_offsets = _revised(flow, binding.extended(at.offsets, source.start.generation, settled))
    return DeadLetterPart(
        flow.dead_letters,
        (at.frontier, upper),
        tuple(result.letters),
        offsets=(at.offsets, to_offsets),
    )


def _rest(
    flow: Dataflow,
    counted: Counted,
    move: Step | Idle,
    shard: ShardState,
    chunks: tuple[ChunkRef, ...] = (),
    stages: tuple[str, ...] = (),
) -> OpenInterval | End:
    """The open part of a view's interval; empty beside another version's output."""
    if shard.is_foreign(flow):
        return Superseded()
    bounds = clip(move, shard.upper)
    return counted if bounds is None else OpenInterval(bounds, chunks, stages)


def _after(unit: ViewUnit | SourceUnit, result: Result, offsets: Offsets | None) -> OwnState:
    own = unit.flow.own
    assert own is not None
    runs = report.merge(unit.flow.plan, own.runs, result)
    return OwnState(own.incarnation, work_units.bounds(unit).upper, runs, offsets)


def _of_slice(unit: SliceUnit, result: Result, shard: ShardState) -> Attempt:
    flow, build, chunks = unit.flow, unit.build, tuple(result.chunks)
    if build.ingest is not None:
        to_offsets = _counted(flow, build.ingest.to_offsets, result)
        ingest = replace(build.ingest, to_offsets=to_offsets)
        build = replace(build, ingest=ingest, offsets=to_offsets)
        over_limit = _over_limit(flow, (ingest.from_offsets, to_offsets))
        if over_limit is not None:
            counted = Sliced(build)
            return Attempt(flow=flow, counted=counted, now=over_limit, shard=shard)
    runs = report.merge(flow.plan, build.runs, result)
    after = replace(build, done=build.done + 1, runs=runs, ahead=0)
    if after.done == len(build.slices):
        return _of_last_slice(replace(unit, build=build), Built(after), shard, result)
    total = build.staged + (build.ahead or len(chunks))
    letters = build.staged_letters + len(result.letters)
    counted = Sliced(replace(after, staged=total, staged_letters=letters))
    # a stage without new chunks is renewed; without any it is not there yet
    now: StagedSlice | Sliced = counted
    then = None
    if letters:
        then = now = StagedSlice(build.stage_of_letters, letters, tuple(result.letters))
    if total:
        now = StagedSlice(build.stage, total, () if build.ahead else chunks, then)
    return Attempt(flow=flow, counted=counted, now=now, shard=shard)


def _of_last_slice(
    unit: SliceUnit, counted: Built, shard: ShardState, result: Result
) -> Attempt:
    """Return the attempt that appends a build: beside another version's only as a whole."""
    flow, build, step = unit.flow, unit.build, work_units.bounds(unit)
    chunks = tuple(result.chunks)
    stages = (build.stage,) if build.staged else ()
    bounds = clip(step, shard.upper) if build.writes else None
    now: OpenInterval | BoundInterval | End
    if bounds != (step.lower, step.upper) and shard.is_foreign(flow):
        now = Superseded()
    elif bounds is None:  # a source's messages were bound otherwise, if there is an interval
        now = counted if build.ingest is None else Void()
    elif build.ingest is None:
        now = OpenInterval(bounds, chunks, stages)
    else:
        offsets = (build.ingest.from_offsets, build.ingest.to_offsets)
        staged = (build.stage_of_letters,) if build.staged_letters else ()
        letters = _letters(flow, shard, bounds[1], result, staged)
        now = BoundInterval(bounds, offsets, chunks, stages, letters)
    return Attempt(flow=flow, counted=counted, now=now, shard=shard)
