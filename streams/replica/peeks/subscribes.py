"""The subscribes of a replica: what is open, and the work of the one thread that serves them.

A read or a client that is slow costs no peek anything. Responses are written by that thread
alone, in the order in which the session gives them.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from streams.compute.parameters import ComputeParameters
from streams.compute.peek_session import TargetBounds
from streams.compute.peeks import PeekTarget
from streams.compute.protocol import Command
from streams.compute.subscribe_session import (
    AnswerSubscribe,
    ReadChanges,
    SubscribeAction,
    SubscribeSession,
)
from streams.compute.subscribes import Subscribe, SubscribeInterrupted, SubscribeOutcome
from streams.compute.writer import ResponseWriter
from streams.replica.peeks.subscribe_read import deliveries
from streams.storage.client.shards import Shards
from streams.trace.kernel.kernel import Kernel

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Subscribes:
    """The open subscribes. `take` belongs to the thread that hears, `serve` to another one."""

    session: SubscribeSession
    writer: ResponseWriter
    clock: Callable[[], float] = time.monotonic
    _answers: list[AnswerSubscribe] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kernel: Kernel = field(default_factory=Kernel)

    def take(self, command: Command, *, is_old: bool) -> None:
        """Take a command; `is_old` as the session has it."""
        with self._lock:
            self.session, actions = self.session.step(command, is_old=is_old)
            self._keep(actions)

    @property
    def is_idle(self) -> bool:
        """Whether nobody subscribes, and nothing is to be said."""
        return not self.session.open and not self._answers

    def groups(self) -> set[str]:
        """Return the groups that are read."""
        with self._lock:
            return {subscribe.group for subscribe in self.session.subscribes()}

    def serve(
        self,
        shards: Shards | None,
        bounds: Callable[[PeekTarget], TargetBounds],
        parameters: ComputeParameters,
    ) -> bool:
        """Read and write what can be delivered now; return whether there was anything.

        Errors: as the writer. Only a new process goes on then: it is sent what is open.
        """

        def of(subscribe: Subscribe) -> TargetBounds:
            return bounds(PeekTarget(subscribe.collection, subscribe.group))

        with self._lock:
            most_ahead = parameters.max_unacknowledged_bytes
            self.session, actions = self.session.ready(of, most_ahead, self.clock())
            reads = self._keep(actions)
        has_worked = self._write()
        for read in reads:
            assert shards is not None, "bounds come from shards"
            outcomes = self._outcomes(shards, read, parameters)
            with self._lock:
                self.session, actions = self.session.finished(read, outcomes, self.clock())
                self._keep(actions)
            has_worked = self._write() or has_worked
        return has_worked

    def _outcomes(
        self, shards: Shards, read: ReadChanges, parameters: ComputeParameters
    ) -> list[SubscribeOutcome]:
        uuid = read.subscribe.uuid
        try:
            outcomes = deliveries(shards, read, self._kernel, parameters)
        except Exception as defect:
            log.exception("subscribe failed", extra={"uuid": uuid})
            return [SubscribeInterrupted(read.lower, f"internal error: {defect!r}")]
        for outcome in outcomes[-1:]:
            if isinstance(outcome, SubscribeInterrupted):
                facts = {"uuid": uuid, "cause": outcome.message}
                log.warning("a subscribe cannot be read; retrying", extra=facts)
        return outcomes

    def _keep(self, actions: tuple[SubscribeAction, ...]) -> list[ReadChanges]:
        """Keep the answers, with the lock; return the reads."""
        self._answers += [one for one in actions if isinstance(one, AnswerSubscribe)]
        return [one for one in actions if isinstance(one, ReadChanges)]

    def _write(self) -> bool:
        with self._lock:
            answers, self._answers = self._answers, []
        for answer in answers:
            self.writer.write(answer.nonce, [answer.response])
        return bool(answers)
