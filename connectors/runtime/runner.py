"""Runs a task: session after session, until it is stopped, caught up, or failed for good.

After a transient failure, such as an unreachable endpoint or broker, another session starts,
with pauses that grow until a transaction is committed. All other failures end the task: a newer
session of it, a document that the endpoint refuses, drift.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from connectors.answer_timeouts import Patience
from connectors.driver import Driver
from connectors.protocol import messages
from connectors.runtime.dead_letters import DeadLetterWriter, Refusals
from connectors.runtime.follower import CollectionFollower
from connectors.runtime.ranges import EVERY_KEY, KeyRange, divided
from connectors.runtime.reader import WAIT_MS
from connectors.runtime.recovery import RecoveryLog, StoredCheckpoints
from connectors.runtime.session import Step, TaskSession
from connectors.runtime.task import Materialization
from connectors.runtime.task_setup import AppliedTask, prepare
from connectors.runtime.transactions import Position, Transaction
from connectors.transport.errors import causes, is_known
from streams.errors import Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.storage.client.backoff import longer_s
from streams.storage.client.shards import Shards
from streams.temporary import temporary_directory
from streams.trace.kernel.kernel import Kernel

log = logging.getLogger(__name__)

TRIES = 5
"""Sessions without a commit in between: of a connector that does not say whether its failure
can pass, and where somebody waits for the end."""


SPILL_PREFIX = "slackwater-spill-"
RELEASE_MS = 1_000
"""The least time between two moves of the holds: each is a record in a log."""


APART = "key ranges are at several times until the next commit"


class CannotCatchUp(InvalidUsage):
    """A binding stands still, so the task cannot catch up; the text says which and why."""


class Stopping(Protocol):
    """A stop signal; `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether stop was requested."""

    def wait(self, timeout_s: float | None, /) -> bool:
        """Wait until it is, but not longer."""


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """Progress of the initial contents: rows sent, and rows in all.

    A job that writes many key ranges at a time knows how many rows there are once it has
    written them, so `unit` is then key ranges, each of which is committed.
    """

    done: int
    total: int
    unit: str = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a task.

    `state` is starting, waiting, backfilling, running, stalled, stopped, failed or done. `time`
    is the time of the endpoint's contents, of the bindings that are not stalled; `stalls` has
    the stalled bindings with their reasons.
    """

    task: str
    state: str = "starting"
    message: str = ""
    time: Timestamp | None = None
    at_one_time: bool = True
    """Whether all key ranges are at `time`. They are not from the first commit to the last one
    of a transaction of several shards, and after a crash in between until the next one."""
    upper: Timestamp | None = None
    """Up to where all collections are."""
    waiting: int = 0
    """Changes that were read and are not committed."""
    rows: int = 0
    """Written by this process."""
    commits: int = 0
    errors: int = 0
    """Sessions that failed and were followed by another."""
    committed_ms: int | None = None
    """When the last commit was."""
    backfill: BackfillProgress | None = None
    """The progress of initial contents in the current transaction, if it has any."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Written by this process, by the binding's place."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Keys whose last document the endpoint does not have, by the binding's place."""
    stalls: Mapping[str, str]
    applied: str = ""
    """The actions that Apply took at the start."""


class Runner:
    """A task. One thread."""

    def __init__(  # noqa: PLR0913  dependencies, passed by name
        self,
        task: Materialization,
        driver: Driver,
        shards: Shards,
        *,
        now_ms: Callable[[], int],
        stopping: Stopping,
        report: Callable[[Status], None] = lambda _: None,
        crash: Callable[[str], None] = lambda _: None,
        kernel: Kernel | None = None,
        letters: DeadLetterWriter | None = None,
        holder: str = "",
    ) -> None:
        """`holder` names the holds of the task and its log; if left out, its name does."""
        self._task, self._shards, self._now_ms = task, shards, now_ms
        patience = Patience(
            answer_s=task.limits.answer_s, is_stopping=stopping.is_set, waits=self._waits
        )
        self._driver = Driver(driver.transport, patience)
        self._holder = holder or task.task
        self._following = CollectionFollower(shards, self._holder, task.collections)
        self._stopping, self._report, self._crash = stopping, report, crash
        self._kernel = kernel or Kernel()
        self._refusals = Refusals(task, letters, crash)
        self._released_ms = 0
        self._ahead: Transaction | None = None
        """The next transaction, cut while one was being committed."""
        self._before: Status | None = None
        """What was reported before the connector did not answer, while it does not."""
        self.status = Status(task=task.task, stalls={})

    def run(self, *, until_caught_up: bool = False) -> Status:
        """Run until stopped, or until caught up. Errors: the cause of failure."""
        tries, pause_s = 0, 0.0
        while True:
            commits = self.status.commits
            try:
                return self._session(until_caught_up=until_caught_up)
            except SlackwaterError as error:
                if self._refusals.is_handled and not self._stopping.is_set():
                    log.warning("a document is refused", extra={"cause": str(error)})
                    self._say(message=str(error))
                    tries = 0
                    continue
                is_new = self.status.commits > commits
                tries, pause_s = (1, 0.0) if is_new else (tries + 1, pause_s)
                is_last = tries >= TRIES and (until_caught_up or not is_known(error))
                if is_last or not can_pass(error):
                    self._say(state="failed", message=str(error))
                    raise
                log.warning("session failed; another follows", extra={"cause": str(error)})
                errors = self.status.errors + 1
                self._say(state="stalled", message=str(error), errors=errors)
            pause_s = longer_s(pause_s)
            if self._stopping.wait(pause_s):
                return self.status

    def _session(self, *, until_caught_up: bool) -> Status:
        following, self._refusals.is_handled = self._following, False
        prepared = prepare(self._driver, self._task, following.open())
        self._say(applied=self.status.applied or prepared.applied)
        recovery = RecoveryLog(self._shards, self._holder)
        checkpoints = recovery.open()
        with ExitStack() as stack:
            streams = [
                stack.enter_context(self._driver.open(message, prepared.extensions))
                for message in openings(self._task, prepared, checkpoints)
            ]
            directory = stack.enter_context(spilling(self._task.limits.spill))
            if prepared.extensions.acknowledge:
                for stream in streams:
                    stream.acknowledge()
            session = TaskSession(
                task=self._task,
                prepared=prepared,
                following=following,
                streams=streams,
                log=recovery,
                checkpoints=checkpoints,
                kernel=self._kernel,
                directory=directory,
            )
            self._opened(session)
            following.sync()
            target = Timestamp(min(session.reading.uppers)) if until_caught_up else None
            for transaction in self._transactions(session, target):
                self._commit(session, transaction)
            session.release()
            for stream in streams:
                stream.finish()
        self._say(state="done" if until_caught_up else "stopped")
        return self.status

    def _opened(self, session: TaskSession) -> None:
        begun = [position.frontier - 1 for position in session.committed if position.is_begun]
        time = Timestamp(max(begun)) if begun else None
        self._ahead = None
        is_one = is_at_one_time(session.committed)
        self._say(
            state="running",
            message="" if is_one else APART,
            time=time,
            at_one_time=is_one,
            left_out=session.left_out,
            backfill=None,
        )

    def _transactions(
        self, session: TaskSession, target: Timestamp | None
    ) -> Iterator[Transaction]:
        """The transactions to commit, until stop is requested.

        One without changes is delayed, so that the passing of time costs few commits.
        """
        waiting: Transaction | None = None
        reading = session.reading
        while not self._stopping.is_set():
            reading.take()
            cut = None
            if self._ahead is not None or reading.is_full or not self._rest_ms():
                cut, self._ahead = self._ahead or reading.gather(), None
            self._refusals.stalled(session, session.cutter.stalls)
            waiting = cut or waiting
            self._say(
                upper=min(reading.uppers),
                stalls=dict(session.cutter.stalls),
                dead_letters=dict(self._refusals.letters),
                waiting=reading.waiting + (waiting.rows if waiting else 0),
            )
            if waiting is not None and (waiting.rows or self._is_idle()):
                yield waiting
                waiting = None
            elif cut is None and is_caught_up(session, target):
                if waiting is not None:
                    yield waiting
                return
            elif cut is None:
                self._say_waiting(reading.unreadable)
                reading.wait(self._rest_ms() or WAIT_MS)

    def _rest_ms(self) -> int:
        """How long changes are batched before a commit; 0 if a commit is due."""
        last_ms = self.status.committed_ms
        due_ms = 0 if last_ms is None else last_ms + self._task.limits.every_ms
        return max(0, due_ms - self._now_ms())

    def _is_idle(self) -> bool:
        """Whether to commit a time without changes."""
        last_ms = self.status.committed_ms
        return last_ms is None or self._now_ms() - last_ms >= self._task.limits.idle_ms

    def _say_waiting(self, collections: Sequence[CollectionId]) -> None:
        if collections:
            self._say(
                state="waiting",
                message=f"{', '.join(collections)}: no complete time yet: is the view computed,"
                " is the source read?",
            )
        elif self.status.state == "waiting":
            self._say(state="running", message="")

    def _commit(self, session: TaskSession, transaction: Transaction) -> None:
        if self._refusals.is_careful(session):
            for step in self._refusals.steps(session, transaction):
                self._write(session, step)
        else:
            self._write(session, Step(transaction))
        session.reading.discard(transaction)
        if self._now_ms() - self._released_ms >= RELEASE_MS:
            session.release()
            self._released_ms = self._now_ms()
        begun = [position.frontier for position in transaction.positions if position.is_begun]
        self._say(
            state="running",
            message="",
            time=Timestamp(max(begun) - 1),
            at_one_time=is_at_one_time(transaction.positions),
            rows=self.status.rows + transaction.rows,
            commits=self.status.commits + 1,
            committed_ms=self._now_ms(),
            backfill=None,
            dead_letters=dict(self._refusals.letters),
            left_out=session.left_out,
        )

    def _write(self, session: TaskSession, step: Step) -> None:
        self._crash("before-commit")
        if len(session.lanes) > 1:
            self._say(at_one_time=False)
        try:
            session.begin(step, self._backfilling(session, step))
            self._crash("in-commit")
            session.reading.take()
            if session.reading.is_full and not session.optional:
                self._ahead = session.reading.gather()
            session.end(step)
        except SlackwaterError as error:
            self._refusals.failed(error, session, step.transaction)
            raise
        self._crash("after-commit")

    def _backfilling(self, session: TaskSession, step: Step) -> Callable[[int, int], None]:
        """Report progress of the initial contents as rows are sent."""
        transaction = step.whole or step.transaction
        new = {
            number: part.count
            for number, (part, at) in enumerate(
                zip(transaction.parts, session.committed, strict=True)
            )
            if part is not None and not at.is_begun
        }
        done = session.written or 0
        total = sum(new.values()) + (0 if step.whole else done)

        def sent(number: int, rows: int) -> None:
            nonlocal done
            if number in new:
                done += rows
                self._say(backfill=BackfillProgress(done, total))

        if new:
            self._say(backfill=BackfillProgress(done, total))
        return sent

    def _waits(self, text: str) -> None:
        """Report that the connector does not answer, or with an empty text that it did."""
        if text:
            self._before = self.status
            self._say(state="stalled", message=text)
        elif self._before is not None:
            self._say(state=self._before.state, message=self._before.message)
            self._before = None

    def _say(self, **changes: object) -> None:
        status = replace(self.status, **changes)  # type: ignore[arg-type]  # its fields
        if status != self.status:
            self.status = status
            self._report(status)


def openings(
    task: Materialization, prepared: AppliedTask, checkpoints: StoredCheckpoints
) -> Iterator[messages.Open]:
    """The Open message of each stream. Errors: InvalidUsage if the task cannot be divided."""
    for begin, end in key_ranges(task, prepared):
        yield messages.Open(
            materialization=prepared.spec,
            version=prepared.version,
            key_begin=begin,
            key_end=end,
            driver_checkpoint=checkpoints.driver or b"{}",
            extensions=prepared.extensions,
        )


def key_ranges(task: Materialization, prepared: AppliedTask) -> Sequence[KeyRange]:
    """The key range of each stream. Errors: InvalidUsage if the task cannot be divided."""
    if task.shards == 1:
        return [EVERY_KEY]
    check_divisible(prepared, task.shards)
    return divided(task.shards)


def check_divisible(prepared: AppliedTask, count: int) -> None:
    """Errors: InvalidUsage if a task cannot be written in so many key ranges."""
    if not prepared.extensions.subranges:
        raise InvalidUsage(
            f"shards: expected 1, actual {count}: the connector does not offer the"
            " extension subranges, without which what was divided cannot be put together again"
        )
    for bound in prepared.bounds:
        if len(bound.key_columns) < len(bound.keys):
            raise InvalidUsage(
                f"shards: expected 1, actual {count}: {bound.name} has no key by which"
                " its rows could be divided; declare one"
            )


def is_at_one_time(positions: Sequence[Position]) -> bool:
    """Whether no binding has key parts that are written further than others."""
    return not any(position.reaches for position in positions)


def is_caught_up(session: TaskSession, target: Timestamp | None) -> bool:
    """Whether all bindings have reached the target. Errors: Behind if one never will."""
    if target is None:
        return False
    positions = session.cutter.positions
    behind = [
        position
        for position in positions
        if not position.is_begun or position.frontier < target
    ]
    if behind and session.cutter.stalls:
        reasons = [f"{name}: {reason}" for name, reason in session.cutter.stalls.items()]
        raise CannotCatchUp("; ".join(reasons))
    return not behind


@contextmanager
def spilling(place: str) -> Iterator[Path]:
    """A directory of the session's. Errors: InvalidUsage if there can be none."""
    with ExitStack() as stack:
        try:
            base = Path(place) if place else None
            directory = stack.enter_context(temporary_directory(SPILL_PREFIX, base))
        except OSError as error:
            raise InvalidUsage(f"limits.spill: {error}") from error
        yield directory


def can_pass(error: SlackwaterError) -> bool:
    """Whether another session may succeed."""
    if not is_known(error):
        return True
    return any(isinstance(cause, Determinate | Indeterminate) for cause in causes(error))
