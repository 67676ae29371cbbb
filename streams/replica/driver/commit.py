"""Commits a micro-batch: appends the output of its tasks and moves the flows.

Each dataflow sends one Append, in waves of one flush each: first the dataflows that depend on
no other, then those whose input was written in the same micro-batch
(`streams.replica.driver.chain`) and counted. If an input did not count, its dependents are
void: their state does not move.

An Append's lower is the shard's upper, its upper is the step's; the state moves to the step's
upper, however much of it was left to append (rule 16). Another writer may have been first:

    a view       the rest of the interval is appended, with the same chunks: the other writer
                 computed the same updates (rules 16, 18)
    a source     the attempt is void: its chunks are orphans, its state does not move, and the
                 next decision begins at the shard's new upper (rule 18)

A collector may also have been first (rule 7). Then nothing counted: the step is repeated and
writes its chunks again. A build whose stage is incomplete (its lease expired) or has a slice
twice starts again. (`builds.resumed` recognises slices staged by a driver that has died.)
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import assert_never

from streams.compute.reclocking import Tick
from streams.compute.stepping import Idle, Step, clip
from streams.ids import CollectionId, Topic
from streams.kafka.log import ChunkRef
from streams.progress import Antichain
from streams.replica.driver import measuring, work
from streams.replica.driver.causes import failure_in
from streams.replica.driver.flow import Build, Flow, OwnState, Phase
from streams.replica.driver.recording import Recorder
from streams.replica.driver.scheduler import MicroBatch, Scheduler
from streams.replica.driver.trouble import Failure
from streams.replica.driver.work import Quiet, Unit
from streams.replica.tasks import report
from streams.replica.tasks.report import Result
from streams.storage.log.events import Append, Body, Offsets, Stage
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

log = logging.getLogger(__name__)

STAGE_LEASE_MS = 3_600_000


class Fate(Enum):
    """The disposition of an attempt."""

    COUNTS = auto()
    LOST = auto()
    """Another writer was faster with other updates, or an awaited attempt did not count."""
    UNCORRECTED = auto()
    """Another version has written the shard last (rule 24)."""
    RECLAIMED = auto()
    """A collector may have taken its chunks: the step is repeated."""
    UNSTAGED = auto()
    """Some staged chunks are gone: the build starts over."""


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One dataflow's events of a commit, and its changes when they count.

    `staged` is the number of chunks that `to_stage` has to have.
    """

    flow: Flow
    bounds: tuple[Antichain, Antichain] | None
    counted: Callable[[], None]
    awaits: frozenset[CollectionId] = frozenset()
    chunks: tuple[ChunkRef, ...] = ()
    offsets: tuple[Offsets, Offsets] | None = None
    stages: tuple[str, ...] = ()
    to_stage: str | None = None
    staged: int = 0
    failure: str | None = None
    fenced: bool = False
    fate: Fate = Fate.COUNTS

    @property
    def counts(self) -> bool:
        """Whether its updates are appended, by it or by another writer."""
        return self.failure is None and self.fate is Fate.COUNTS

    def body(self) -> Body | None:
        """Return the event to append; None if nothing is left to do."""
        if not self.counts:
            return None
        if self.to_stage is not None:
            return Stage(stage=self.to_stage, chunks=self.chunks, lease_ms=STAGE_LEASE_MS)
        if self.bounds is None:
            return None
        part = work.part(self.flow, self.bounds, self.chunks, self.offsets, self.stages)
        return Append((part,))


@dataclass(slots=True)
class Committer:
    """Commits micro-batches and idle intervals."""

    scheduler: Scheduler
    recorder: Recorder

    def commit(self, batch: MicroBatch, results: Mapping[CollectionId, Result]) -> float:
        """Commit a micro-batch; return the seconds that the Append took.

        Errors: Determinate, Indeterminate; then nothing has moved.
        """
        attempts: list[Attempt] = []
        for unit in batch.units:
            result = results.get(unit.flow.id, Result())
            unit.flow.cost_ms = result.milliseconds
            if unit.flow.gone:
                continue
            if result.failure is not None:
                self._fail(unit.flow, result.failure)
                continue
            attempts.append(self._attempt(unit, result))
        attempts.extend(self._quiet(each) for each in batch.quiet if not each.flow.gone)
        self._check_topics(attempts)
        if any(attempt.chunks for attempt in attempts):
            self.scheduler.crash("after-chunks")
        began = time.monotonic()
        self.settle(attempts)
        seconds = time.monotonic() - began
        if any(attempt.chunks for attempt in attempts):
            self.scheduler.crash("after-append")
        self._apply(attempts)
        return seconds

    def _fail(self, flow: Flow, traceback: str) -> None:
        """Record a failure in a task of this dataflow alone."""
        log.info("a task failed", extra={"dataflow": flow.id, "traceback": traceback})
        with self.scheduler.lock:
            self.scheduler.fail(flow, failure_in(traceback))

    def _check_topics(self, attempts: Sequence[Attempt]) -> None:
        """Check that the messages came from the topics that the sources were created over.

        The id is read after the messages: ids are never reused, so it was the same throughout.
        """
        read = [
            each for each in attempts if each.offsets and each.offsets[0] != each.offsets[1]
        ]
        now = {each: self.scheduler.describe(each) for each in {_topic(a.flow) for a in read}}
        for attempt in read:
            source, info = attempt.flow.description.source, now[_topic(attempt.flow)]
            assert source is not None
            if info is None or info.id != source.topic_id:
                attempt.failure = f'topic "{source.topic}" was re-created or deleted'

    def commit_quiet(self, quiet: Sequence[Quiet]) -> None:
        """Commit idle intervals outside of any micro-batch."""
        attempts = [self._quiet(each) for each in quiet if not each.flow.gone]
        self.settle(attempts)
        self._apply(attempts)

    def settle(self, attempts: Sequence[Attempt]) -> None:
        """Append until every attempt counts, is void, or has failed."""
        left, counted = list(attempts), set[CollectionId]()
        while wave := [each for each in left if each.awaits <= counted]:
            self._settle(wave)
            counted.update(each.flow.id for each in wave if each.counts)
            left = [each for each in left if each not in wave]
            if left:
                self.scheduler.crash("between-waves")
        for each in left:
            each.fate = Fate.LOST

    def _settle(self, wave: Sequence[Attempt]) -> None:
        open_ = list(wave)
        while open_:
            asked = [(attempt, body) for attempt in open_ if (body := attempt.body())]
            if not asked:
                return
            events = [(attempt.flow.description.group, body) for attempt, body in asked]
            outcomes = measuring.submit(self.scheduler, events)
            open_ = [
                attempt
                for (attempt, _), outcome in zip(asked, outcomes, strict=True)
                if not self._settled(attempt, outcome)
            ]

    def _settled(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Record an outcome; return False if there is something left to append."""
        match outcome:
            case UpperMismatch(current=current) if self._may_go_on(attempt):
                assert attempt.bounds is not None
                lower, upper = attempt.bounds[0].join(current), attempt.bounds[1]
                attempt.bounds = (lower, upper) if lower.strictly_precedes(upper) else None
                return attempt.bounds is None
            case Fenced(fingerprint=fingerprint):
                attempt.failure = (
                    f"another version of the dataflow writes the shard: {fingerprint}"
                )
                attempt.fenced = True
            case _:
                fate = self._fate_after(attempt, outcome)
                if fate is None:
                    attempt.failure = f"the append was refused: {outcome}"
                else:
                    attempt.fate = fate
        return True

    def _may_go_on(self, attempt: Attempt) -> bool:
        """Whether the updates that were appended meanwhile are the same as the attempt's."""
        return attempt.offsets is None and not self._is_foreign(attempt.flow)

    def _fate_after(self, attempt: Attempt, outcome: Outcome) -> Fate | None:
        """Return the disposition after an outcome that ends the attempt; None if unexpected."""
        match outcome:
            case Appended():
                return Fate.COUNTS
            case Staged():
                return Fate.COUNTS if self._is_whole(attempt) else Fate.UNSTAGED
            case UpperMismatch() | OffsetsMismatch():
                return Fate.LOST if attempt.offsets is not None else Fate.UNCORRECTED
            case ChunksReclaimed():
                return Fate.RECLAIMED
            case UnknownStage():
                return Fate.UNSTAGED
            case _:
                return None

    def _is_whole(self, attempt: Attempt) -> bool:
        """Whether all staged chunks are there, none of them twice."""
        group = self.scheduler.shards.group_state(attempt.flow.description.group)
        found = group.stages.get(attempt.to_stage or "")
        return found is not None and len(found.chunks) == attempt.staged

    def _is_foreign(self, flow: Flow) -> bool:
        """Whether another version has written a view's shard last (rule 24)."""
        written = self.scheduler.shards.state(flow.id).fingerprint
        return not flow.is_source and written not in {"", flow.fingerprint}

    def _apply(self, attempts: Sequence[Attempt]) -> None:
        with self.scheduler.lock:
            for attempt in attempts:
                if attempt.failure is not None:
                    failure = Failure(attempt.failure)
                    self.scheduler.fail(attempt.flow, failure, for_good=attempt.fenced)
                else:
                    self._settle_fate(attempt)
        self.recorder.record(attempt.flow for attempt in attempts)

    def _settle_fate(self, attempt: Attempt) -> None:
        flow = attempt.flow
        match attempt.fate:
            case Fate.COUNTS:
                attempt.counted()
                flow.go_on()
            case Fate.LOST:
                _give_up(flow)
            case Fate.UNCORRECTED:
                self.scheduler.fail(flow, Failure("another version of the dataflow was faster"))
                self.scheduler.restart([flow])
            case Fate.RECLAIMED:
                log.info(
                    "chunks were reclaimed; writing them again", extra={"dataflow": flow.id}
                )
            case Fate.UNSTAGED:
                log.warning("staged chunks are gone", extra={"dataflow": flow.id})
                self._begin_anew(flow)
            case _:
                assert_never(attempt.fate)

    def _begin_anew(self, flow: Flow) -> None:
        """Restart a build at the first slice; a view as after a restart without state."""
        if flow.is_source:
            _give_up(flow)
            return
        self.recorder.store.put_build(flow.id, flow.fingerprint, None)
        self.scheduler.restart([flow])

    def _attempt(self, unit: Unit, result: Result) -> Attempt:
        flow, chunks = unit.flow, tuple(result.chunks)
        match unit.kind:
            case "step":
                after = self._after(unit, result, None)
                return Attempt(
                    flow=flow,
                    bounds=self._open_part(flow, unit.step),
                    counted=lambda: _move(flow, after),
                    awaits=unit.awaits,
                    chunks=chunks,
                    fate=self._fate(flow),
                )
            case "ingest":
                assert unit.ingest is not None
                after = self._after(unit, result, unit.ingest.to_offsets)
                return Attempt(
                    flow=flow,
                    bounds=(unit.step.lower, unit.step.upper),
                    chunks=chunks,
                    offsets=(unit.ingest.from_offsets, unit.ingest.to_offsets),
                    counted=lambda: _move(flow, after),
                )
            case "slice":
                return self._slice(unit, result)
            case _:
                assert_never(unit.kind)

    def _after(self, unit: Unit, result: Result, offsets: Offsets | None) -> OwnState:
        own = unit.flow.own
        assert own is not None
        runs = report.merge(unit.flow.plan, own.runs, result)
        return OwnState(own.incarnation, unit.step.upper, runs, offsets)

    def _fate(self, flow: Flow) -> Fate:
        return Fate.UNCORRECTED if self._is_foreign(flow) else Fate.COUNTS

    def _open_part(self, flow: Flow, move: Step | Idle) -> tuple[Antichain, Antichain] | None:
        return clip(move, self.scheduler.shards.state(flow.id).upper)

    def _slice(self, unit: Unit, result: Result) -> Attempt:
        flow, build, chunks = unit.flow, unit.flow.build, tuple(result.chunks)
        assert build is not None
        runs = report.merge(flow.plan, build.runs, result)
        after = replace(build, done=build.done + 1, runs=runs, ahead=0)
        if after.done < len(build.slices):
            staged = replace(after, staged=build.staged + (build.ahead or len(chunks)))
            return Attempt(
                flow=flow,
                bounds=None,
                chunks=() if build.ahead else chunks,
                to_stage=build.stage if staged.staged else None,  # without chunks: renewed
                staged=staged.staged,
                counted=lambda: _put_build(flow, staged),
            )
        bounds = self._open_part(flow, unit.step) if build.writes else None
        is_whole = bounds == (unit.step.lower, unit.step.upper)
        return Attempt(
            flow=flow,
            bounds=bounds,
            chunks=chunks,
            stages=(build.stage,) if build.staged else (),
            offsets=_offsets(build),
            counted=lambda: _finish_build(flow, after),
            fate=Fate.COUNTS if is_whole else self._fate(flow),
        )

    def _quiet(self, quiet: Quiet) -> Attempt:
        flow, move = quiet.flow, quiet.move
        assert flow.own is not None
        after = replace(flow.own, frontier=move.upper)
        match move:
            case Tick(lower, upper, offsets):
                return Attempt(
                    flow=flow,
                    bounds=(lower, upper),
                    offsets=(offsets, offsets),
                    counted=lambda: _move(flow, after),
                )
            case Idle():
                return Attempt(
                    flow=flow,
                    bounds=self._open_part(flow, move),
                    counted=lambda: _move(flow, after),
                    awaits=quiet.awaits,
                    fate=self._fate(flow),
                )
            case _:
                assert_never(move)


def _move(flow: Flow, after: OwnState) -> None:
    flow.own = after


def _put_build(flow: Flow, build: Build) -> None:
    flow.build = build


def _finish_build(flow: Flow, build: Build) -> None:
    upper = Antichain((build.upper,))
    flow.own = OwnState(build.incarnation, upper, build.runs, build.offsets)
    flow.build, flow.phase, flow.recorded_ms = None, Phase.RUNNING, 0


def _give_up(flow: Flow) -> None:
    """Release a source's void attempt; its state is still the previous one."""
    flow.build, flow.phase = None, Phase.RUNNING


def _topic(flow: Flow) -> Topic:
    assert flow.description.source is not None
    return flow.description.source.topic


def _offsets(build: Build) -> tuple[Offsets, Offsets] | None:
    ingest = build.ingest
    return None if ingest is None else (ingest.from_offsets, ingest.to_offsets)
