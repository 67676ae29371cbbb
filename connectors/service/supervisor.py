"""Supervises one materialization: runs it, pauses it, or ends it, as its specification says.

Each has a thread of its own, so an endpoint that is broken or slow stops no other. A run
that has failed is followed by another after a pause, however it failed: what is wrong with a
table, or with a row, somebody may put right.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

from connectors.backfill.backfill import Backfill, Job, ranges_of
from connectors.driver import Driver
from connectors.runtime.dead_letters import DeadLetterWriter
from connectors.runtime.follower import CollectionFollower
from connectors.runtime.recovery import RecoveryLog
from connectors.runtime.runner import Runner, Status, Stopping
from connectors.runtime.task import Materialization, parse
from connectors.service.status import Rate, reported
from schemas.materializations import DROPPED, Spec, State
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import CollectionId
from streams.storage.client.backoff import longer_s
from streams.storage.client.shards import Shards

log = logging.getLogger(__name__)


class TaskEndpoint(NamedTuple):
    """A task as its connector is given it, a driver of that, and where its dead letters go.

    `job` makes the job that writes the initial contents, where the task has one.
    """

    task: Materialization
    driver: Driver
    letters: DeadLetterWriter
    job: Callable[[Stopping], Job] | None = None


Opened = Callable[[Materialization], AbstractContextManager[TaskEndpoint]]
"""Errors: InvalidUsage."""


def holder_of(id_: str) -> str:
    """Names the holds and the log of a materialization; no two ever have the same."""
    return f"catalog.{id_}"


class TaskSupervisor:
    """One materialization, from its current specification."""

    def __init__(
        self,
        spec: Spec,
        shards: Shards,
        opened: Opened,
        *,
        owner: str,
        now_ms: Callable[[], int],
        crash: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spec: Spec | None = spec
        self._shards, self._opened, self._now_ms = shards, opened, now_ms
        self._crash = crash
        self._changed = threading.Event()
        self._state = State(id=spec.id, owner=owner)
        self._rate = Rate()
        self._thread = threading.Thread(target=self._turns, name=f"keep-{spec.id}", daemon=True)
        self._thread.start()

    def want(self, spec: Spec | None) -> None:
        """Go on with another specification; without one, end and leave all as it is."""
        if spec != self._spec:
            self._spec = spec
            self._changed.set()

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout_s)

    def state(self, now_ms: int) -> State:
        """The current state."""
        state = self._state
        self._rate = self._rate.at(now_ms, state.rows)
        return replace(state, rows_per_s=self._rate.per_s)

    def _turns(self) -> None:
        before, pause_s = None, 0.0
        while True:
            self._changed.clear()  # before the look: a change after it wakes who waits
            spec = self._spec
            if spec is None:
                return
            pause_s = 0.0 if spec != before else pause_s
            before, commits = spec, self._state.commits
            try:
                self._turn(spec)
            except SlackwaterError as error:
                log.warning("materialization failed", extra=facts(spec, error))
                self._fail(str(error))
            except Exception as defect:
                log.exception("materialization failed", extra=facts(spec, defect))
                self._fail(repr(defect))
            else:
                if spec.wanted == "drop":
                    return
                continue
            pause_s = longer_s(0.0 if self._state.commits > commits else pause_s)
            self._changed.wait(pause_s)

    def _turn(self, spec: Spec) -> None:
        """Run as the specification says until it changes. Errors: the cause of failure."""
        self._release(spec, spec.unbound)
        match spec.wanted:
            case "run":
                self._run(spec)
            case "pause":
                self._say(state="paused", message="")
                self._changed.wait()
            case "drop":
                bound = parse(spec.id, spec.task).collections
                self._release(spec, bound)
                RecoveryLog(self._shards, holder_of(spec.id)).drop()
                self._say(state=DROPPED, message="")

    def _run(self, spec: Spec) -> None:
        with self._opened(parse(spec.id, spec.task)) as endpoint:
            self._fill(spec, endpoint)
            if not self._changed.is_set():
                self._follow(spec, endpoint)

    def _fill(self, spec: Spec, endpoint: TaskEndpoint) -> None:
        """Have a job write the initial contents that are missing, if the task says so."""
        if endpoint.job is not None:
            Backfill(
                endpoint.task,
                endpoint.driver,
                self._shards,
                ranges=ranges_of(endpoint.task),
                job=endpoint.job(self._changed),
                stopping=self._changed,
                report=self._reports(),
                holder=holder_of(spec.id),
            ).run()

    def _follow(self, spec: Spec, endpoint: TaskEndpoint) -> None:
        """Write all changes, until the specification changes."""
        Runner(
            endpoint.task,
            endpoint.driver,
            self._shards,
            now_ms=self._now_ms,
            stopping=self._changed,
            report=self._reports(),
            crash=self._crash,
            letters=endpoint.letters,
            holder=holder_of(spec.id),
        ).run()

    def _reports(self) -> Callable[[Status], None]:
        """What takes the reports of a run, whose counts continue those of the runs before."""
        begun = self._state

        def report(status: Status) -> None:
            self._state = reported(self._state, status, begun)

        return report

    def _release(self, spec: Spec, collections: tuple[CollectionId, ...]) -> None:
        """Give up holds. A collection that is not there any more holds nothing."""
        for collection in collections:
            try:
                CollectionFollower(self._shards, holder_of(spec.id), [collection]).drop()
            except InvalidUsage as gone:
                log.info("nothing to release", extra=facts(spec, gone))

    def _fail(self, message: str) -> None:
        self._state = replace(self._state, errors=self._state.errors + 1)
        self._say(state="failed", message=message)

    def _say(self, *, state: str, message: str) -> None:
        self._state = replace(
            self._state, state=state, message=message, behind_rows=0, backfill=None
        )


def facts(spec: Spec, cause: Exception) -> dict[str, str]:
    """The log line of a failure."""
    return {"id": spec.id, "task": str(spec.task.get("task")), "cause": str(cause)}
