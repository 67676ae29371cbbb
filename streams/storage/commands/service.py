"""The command service: reads commands from their topic, executes and answers them.

A failure of the topics themselves ends the session, and the next one recovers from the topics:
there is no other state. After such a failure commands are taken one by one for a while, so that
a command that fails a session by itself is identified and finally answered as FAILED.

It stops when a newer session has begun (`Fenced`): of two services the newer one continues.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from streams.errors import Corrupt, Determinate, Indeterminate
from streams.kafka.client.transactions import Fenced
from streams.storage.commands.marks import SessionMarks
from streams.storage.commands.session import ServiceDependencies, ServiceState, Session

log = logging.getLogger(__name__)

WAIT_MS = 500
RETRY_S = 0.5

STOP_S = 5.0
"""How long a service that is stopping waits for running commands."""


class Stopping(Protocol):
    """Whether the service has to stop."""

    def is_set(self) -> bool:
        """Whether a stop was requested."""

    def wait(self, timeout: float, /) -> bool:
        """Wait up to so many seconds for a stop; return whether it was requested."""


@dataclass(frozen=True, slots=True)
class ServiceMeasures:
    """Responses by status, commands that are not answered yet, and sessions that failed."""

    answered: Mapping[str, int]
    pending: int
    failures: int


class CommandService:
    """One service. One thread; `run` is its main loop, `step` one iteration of its session."""

    def __init__(self, wiring: ServiceDependencies) -> None:
        self._wiring = wiring
        self._session: Session | None = None
        careful = SessionMarks(wiring.marks, wiring.names.commands)
        self._history = ServiceState(careful)
        self._has_begun = False
        self._failures = 0

    def measures(self) -> ServiceMeasures:
        """What it has done since it began. Called by any thread."""
        session = self._session
        return ServiceMeasures(
            answered=dict(self._history.answered),
            pending=0 if session is None else session.pending,
            failures=self._failures,
        )

    def run(self, stopping: Stopping) -> None:
        """Answer commands until stopped.

        Errors: Fenced when another service has begun; InvalidUsage when the topics exist with
        wrong settings; an internal error that only a new process recovers from, such as Stuck.
        """
        try:
            while not stopping.is_set():
                defect = self._wiring.shards.defect
                if defect is not None:
                    raise defect
                self.step(WAIT_MS)
                if self._session is None:
                    stopping.wait(RETRY_S)
        finally:
            self.close(STOP_S)

    @property
    def is_ready(self) -> bool:
        """Whether commands are being answered."""
        return self._session is not None

    def step(self, wait_ms: int) -> bool:
        """Answer new commands, waiting if there are none; return whether nothing failed.

        Errors: as `run`.
        """
        try:
            return self._opened().turn(wait_ms)
        except (Determinate, Indeterminate, Corrupt) as failure:
            log.warning(
                "command service failed; reading commands again", extra={"cause": str(failure)}
            )
            self._failures += 1
            self.close()
            self._history.careful.release()
            return False
        except Fenced:
            self._history.careful.release()
            raise

    def close(self, wait_s: float = 0.0) -> None:
        """End the session after waiting for running commands; another session may begin."""
        if self._session is not None:
            self._session.close(wait_s)
            self._session = None

    def _opened(self) -> Session:
        if self._session is None:
            self._session = Session(self._wiring, self._history)
            if not self._has_begun:
                self._history.careful.start(*self._session.backlog)
                self._has_begun = True
        return self._session
