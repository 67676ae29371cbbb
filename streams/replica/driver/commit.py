"""Commits a micro-batch: submits what its attempts append, and tells the table how they ended.

Each dataflow sends one Append, in waves of one flush each: first the dataflows that depend on
no other, then those whose input was written in the same micro-batch
(`streams.replica.driver.fusion`) and counted. If an input did not count, its dependents are
void: their state does not move. What an attempt submits, and how it ends, is decided in
`streams.replica.driver.append_attempt`.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streams.ids import CollectionId, Topic
from streams.replica.driver import append_attempt, skew_measurement
from streams.replica.driver.append_attempt import (
    Attempt,
    BoundInterval,
    DeadLetterPart,
    ShardState,
)
from streams.replica.driver.checkpoint_writer import CheckpointWriter
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.error_causes import failure_in
from streams.replica.driver.events import Failed, Ran, Void
from streams.replica.driver.micro_batch import MicroBatch
from streams.replica.driver.retry_policy import Failure
from streams.replica.driver.scheduler import Scheduler
from streams.replica.driver.work_units import IdleUnit
from streams.replica.tasks.report import Result
from streams.storage.log.outcomes import Outcome

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Committer:
    """Commits micro-batches and idle intervals."""

    scheduler: Scheduler
    recorder: CheckpointWriter

    def commit(self, batch: MicroBatch, results: Mapping[CollectionId, Result]) -> float:
        """Commit a micro-batch; return the seconds that the Append took.

        Errors: Determinate, Indeterminate; then nothing has moved.
        """
        attempts: list[Attempt] = []
        for unit in batch.units:
            result = results.get(unit.flow.id, Result())
            present = self.scheduler.tell(unit.flow, Ran(result.milliseconds))
            if present.gone:
                continue
            if result.failure is not None:
                self._fail(unit.flow, result.failure)
                continue
            attempts.append(append_attempt.of_unit(unit, result, self._shard(unit.flow)))
        attempts.extend(self._quiet(batch.quiet))
        attempts = self._checked(attempts)
        has_chunks = any(attempt.chunks for attempt in attempts)
        if has_chunks:
            self.scheduler.crash("after-chunks")
        began = time.monotonic()
        settled = self.settle(attempts)
        seconds = time.monotonic() - began
        if has_chunks:
            self.scheduler.crash("after-append")
        self._tell(settled)
        return seconds

    def commit_quiet(self, quiet: Sequence[IdleUnit]) -> None:
        """Commit idle intervals outside of any micro-batch."""
        self._tell(self.settle(self._quiet(quiet)))

    def _quiet(self, quiet: Sequence[IdleUnit]) -> list[Attempt]:
        present = [
            advance for advance in quiet if not self.scheduler.present(advance.flow).gone
        ]
        return [
            append_attempt.of_quiet(advance, self._shard(advance.flow)) for advance in present
        ]

    def _fail(self, flow: Dataflow, traceback: str) -> None:
        """Record a failure in a task of this dataflow alone."""
        log.info("a task failed", extra={"dataflow": flow.id, "traceback": traceback})
        self.scheduler.tell(flow, Failed(failure_in(traceback)))

    def _checked(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Check that the messages came from the topics that the sources were created over.

        The id is read after the messages: ids are never reused, so it was the same throughout.
        """
        topics = {_topic(attempt.flow) for attempt in attempts if _reads_messages(attempt)}
        now = {topic: self.scheduler.describe(topic) for topic in topics}
        checked = []
        for attempt in attempts:
            source = attempt.flow.description.source
            if source is not None and _reads_messages(attempt):
                info = now[source.topic]
                if info is None or info.id != source.topic_id:
                    text = f'topic "{source.topic}" was re-created or deleted'
                    checked.append(attempt.ended(Failed(Failure(text))))
                    continue
            checked.append(attempt)
        return checked

    def settle(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Append until every attempt counts, is void, or has failed; return them, ended."""
        left, settled, counted = list(attempts), list[Attempt](), set[CollectionId]()
        while wave := [attempt for attempt in left if attempt.awaits <= counted]:
            left = [attempt for attempt in left if not attempt.awaits <= counted]
            ended = self._settle(wave)
            settled += ended
            counted.update(attempt.flow.id for attempt in ended if attempt.counts)
            if left:
                self.scheduler.crash("between-waves")
        return settled + [attempt.ended(Void()) for attempt in left]

    def _settle(self, wave: Sequence[Attempt]) -> list[Attempt]:
        ended = [attempt for attempt in wave if attempt.end is not None]
        open_ = [(attempt, body) for attempt in wave if (body := attempt.body()) is not None]
        while open_:
            events = [(attempt.flow.description.group, body) for attempt, body in open_]
            outcomes = skew_measurement.submit(self.scheduler, events)
            answered = [
                self._read_back(attempt, outcome).answered(outcome)
                for (attempt, _), outcome in zip(open_, outcomes, strict=True)
            ]
            ended += [attempt for attempt in answered if attempt.end is not None]
            open_ = [
                (attempt, body) for attempt in answered if (body := attempt.body()) is not None
            ]
        return ended

    def _read_back(self, attempt: Attempt, outcome: Outcome) -> Attempt:
        if isinstance(outcome, append_attempt.SEES_SHARD):
            return replace(attempt, shard=self._shard(attempt.flow))
        return attempt

    def _shard(self, flow: Dataflow) -> ShardState:
        shards = self.scheduler.shards
        state, group = shards.state(flow.id), shards.group_state(flow.description.group)
        stages = {name: len(stage.chunks) for name, stage in group.stages.items()}
        letters = None if flow.dead_letters is None else shards.state(flow.dead_letters).upper
        return ShardState(state.upper, state.fingerprint, stages, letters)

    def _tell(self, attempts: Sequence[Attempt]) -> None:
        with self.scheduler.lock:
            for attempt in attempts:
                assert attempt.end is not None, "an attempt is settled when it has ended"
                self.scheduler.tell(attempt.flow, attempt.end)
        self.recorder.write(self.recorder.due(attempt.flow for attempt in attempts))


def _reads_messages(attempt: Attempt) -> bool:
    if attempt.flow.is_rebase:
        return False
    if isinstance(attempt.now, DeadLetterPart):
        return True
    return (
        isinstance(attempt.now, BoundInterval)
        and attempt.now.offsets[0] != attempt.now.offsets[1]
    )


def _topic(flow: Dataflow) -> Topic:
    assert flow.description.source is not None
    return flow.description.source.topic
