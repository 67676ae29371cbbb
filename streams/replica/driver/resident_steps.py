"""Runs micro-batches in resident tasks: takes them from the scheduler, and commits them.

There is a thread for each resident task that is connected. While it is idle it plans the
micro-batches of the fast lanes, in place of the sources of their queries, and it runs those
that go this way (`streams.replica.driver.fast_path`). What its task fails at goes to the query
of the lane, as it is.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from streams.errors import Indeterminate, SlackwaterError
from streams.replica.driver import error_causes, fast_path
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.commit import Committer
from streams.replica.driver.fast_path import FAST_LANES, Way
from streams.replica.driver.micro_batch import LaneName, MicroBatch
from streams.replica.driver.scheduler import LONG_POLL_MS, Scheduler
from streams.replica.tasks import report, resident
from streams.replica.tasks.authenticated_frames import Frames

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""How much later than its limit a task may answer: the kernel kills it at the limit."""

RETRY_S = 0.5


@dataclass(slots=True)
class TaskTurn:
    """What the thread of a resident task remembers; the lane that it served last comes last."""

    lanes: deque[LaneName] = field(default_factory=lambda: deque(FAST_LANES))
    is_idle: bool = False
    asked_s: float = 0.0


@dataclass(slots=True)
class ResidentSteps:
    """Serves with resident tasks, each in a thread of its own."""

    scheduler: Scheduler
    committer: Committer
    timings: Timings
    clock: Callable[[], float] = time.monotonic

    def serve(self, frames: Frames) -> None:
        """Run micro-batches in the task on the other side until it is lost, or we stop."""
        turn = TaskTurn(asked_s=self.clock())
        with self.scheduler.lock:
            self.scheduler.fast_path.connected += 1
        try:
            self._serve(frames, turn)
        except Exception as defect:
            log.exception("the thread of a resident task failed")
            self.scheduler.defect = defect
        finally:
            self.leave(turn)

    def _serve(self, frames: Frames, turn: TaskTurn) -> None:
        wakeup = self.scheduler.wakeup
        while not self.scheduler.stopping and frames.is_open():
            heard = wakeup.count
            try:
                batch = self.take(turn)
            except SlackwaterError as failure:
                log.warning("cannot plan a micro-batch", extra={"cause": str(failure)})
                time.sleep(RETRY_S)
                continue
            if batch is None:
                wakeup.wait(heard, LONG_POLL_MS)
                turn.asked_s = max(turn.asked_s, self.clock() - LONG_POLL_MS / 1000)
            elif not self.run(frames, batch):
                return
            else:
                turn.asked_s = self.clock()

    def take(self, turn: TaskTurn) -> MicroBatch | None:
        """Return a micro-batch for a resident task, planned now or waiting for one."""
        scheduler, for_queries = self.scheduler, False
        with scheduler.lock:
            self._be(turn, is_idle=False)
            for lane in tuple(turn.lanes):
                place = scheduler.place(lane)
                is_new = place.current is None
                batch = place.current or scheduler.begin(place, turn.asked_s)
                if batch is None or batch.is_given:
                    continue
                if batch.way is Way.RESIDENT:
                    batch.is_given = True
                    turn.lanes.remove(lane)
                    turn.lanes.append(lane)
                    return batch
                for_queries |= is_new
            self._be(turn, is_idle=True)
        if for_queries:
            scheduler.wakeup.ring()
        return None

    def run(self, frames: Frames, batch: MicroBatch) -> bool:
        """Run and commit a micro-batch; return whether the task goes on."""
        wanted = resident.ResidentStep(
            step=batch.step,
            tasks=batch.tasks,
            depth=batch.depth,
            limit_s=fast_path.deadline_s(batch.units),
        )
        began = self.clock()
        try:
            results = report.gather(resident.ask(frames, wanted, PATIENCE_S))
        except Indeterminate as failed:
            self._pass_on(batch, failed)
            return True
        except (OSError, ValueError) as lost:
            self._pass_on(batch, lost)
            return False
        collected = self.clock()
        try:
            seconds = self.committer.commit(batch, results)
        except Exception as error:
            log.warning("a micro-batch failed", extra={"step": batch.step}, exc_info=True)
            self.scheduler.give_up(batch, error_causes.failure_of(error))
            return True
        self.scheduler.finish(batch)
        committed = self.clock()
        self.timings.note(batch, results, (began, collected, committed), seconds)
        with self.scheduler.lock:
            took = {id_: result.milliseconds for id_, result in results.items()}
            self.scheduler.fast_path.ran(took, committed)
        return True

    def _pass_on(self, batch: MicroBatch, error: Exception) -> None:
        """Give a micro-batch that failed here to the query of its lane."""
        extra = {"lane": batch.lane, "step": batch.step, "cause": _cause(error)}
        log.warning("a resident task failed; a job runs its micro-batch", extra=extra)
        with self.scheduler.lock:
            batch.way, batch.is_given = Way.QUERY, False
            dataflows = [unit.flow.id for unit in batch.units]
            self.scheduler.fast_path.failed(dataflows, self.clock())
        self.scheduler.wakeup.ring()

    def _be(self, turn: TaskTurn, *, is_idle: bool) -> None:
        """Count an idle task; the lock is held."""
        self.scheduler.fast_path.idle += is_idle - turn.is_idle
        turn.is_idle = is_idle

    def leave(self, turn: TaskTurn) -> None:
        """Count a task less; what waits for the last one goes to the queries."""
        scheduler = self.scheduler
        with scheduler.lock:
            self._be(turn, is_idle=False)
            scheduler.fast_path.connected -= 1
            if not scheduler.fast_path.connected:
                for place in scheduler.lanes.values():
                    if place.current is not None and not place.current.is_given:
                        place.current.way = Way.QUERY
        scheduler.wakeup.ring()


def busy(scheduler: Scheduler) -> list[LaneName]:
    """Return the lanes whose micro-batches are in resident tasks, or being committed."""
    with scheduler.lock:
        places = scheduler.lanes.values()
        batches = [place.current for place in places if place.current is not None]
    return [batch.lane for batch in batches if batch.is_given and batch.way is Way.RESIDENT]


def _cause(error: Exception) -> str:
    return error_causes.cause_of(str(error)) or type(error).__name__
