"""The service of the command topics: reads commands, carries them out, answers them.

What fails of the topics themselves ends the session, and the next begins anew from what the
topics say: nothing is remembered that they do not hold. After such a failure commands are taken
one by one for a while, so that one which fails a session by itself is found, and answered as
FAILED in the end.

It ends when a newer session has begun (`Fenced`): of two services the younger goes on.
"""

import logging
from typing import Protocol

from streams.errors import Corrupt, Determinate, Indeterminate
from streams.kafka.transactions import Fenced
from streams.storage.commands.marks import Careful
from streams.storage.commands.session import History, Session, Wiring

log = logging.getLogger(__name__)

WAIT_MS = 500
RETRY_S = 0.5

STOP_S = 5.0
"""How long who is told to stop waits for what is under way."""


class Stopping(Protocol):
    """Whether the service was told to stop."""

    def is_set(self) -> bool:
        """Whether it was."""

    def wait(self, timeout: float, /) -> bool:
        """Whether it was, now or within so many seconds."""


class CommandService:
    """One service. One thread; `run` is its life, `step` a turn of its session."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._session: Session | None = None
        careful = Careful(wiring.marks, wiring.names.commands)
        self._history = History(careful)
        self._has_begun = False

    def run(self, stopping: Stopping) -> None:
        """Answer until told to stop.

        Errors: Fenced when another service has begun; InvalidUsage when the topics are there
        otherwise than they have to be; a defect after which only a new process helps, Stuck
        among them.
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

    def step(self, wait_ms: int) -> bool:
        """Answer what has come, if need be waiting for it; whether nothing went wrong.

        Errors: as `run`.
        """
        try:
            return self._opened().turn(wait_ms)
        except (Determinate, Indeterminate, Corrupt) as failure:
            log.warning(
                "command service failed; reading commands again", extra={"cause": str(failure)}
            )
            self.close()
            self._history.careful.release()
            return False
        except Fenced:
            self._history.careful.release()
            raise

    def close(self, wait_s: float = 0.0) -> None:
        """End the session; another may begin. What is under way is waited for."""
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
