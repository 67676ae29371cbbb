"""An in-process connector: it runs in threads and exchanges encoded messages.

A thread cannot be ended from outside: one that hangs is left behind, and ends with the process.
"""

import logging
import time
from contextlib import suppress
from queue import Full, Queue, SimpleQueue
from threading import Thread

from connectors import dispatch
from connectors.answer_timeouts import LOOK_S, NO_ANSWER, NOT_READ, PATIENT, Patience
from connectors.connector import Connector
from connectors.transport.errors import ConnectorFailed, text_of

log = logging.getLogger(__name__)

AHEAD = 16
"""So many requests wait for the connector; a driver that is faster waits itself."""
GRACE_S = 5.0
"""How long a stream may take to end."""

Said = bytes | Exception | None


class Cancelled(Exception):
    """The driver has gone; the stream of the connector ends as by a failure."""


class Local:
    """A connector that is called directly."""

    def __init__(self, connector: Connector) -> None:
        self.connector = connector

    def call(self, name: str, request: bytes, patience: Patience = PATIENT, /) -> bytes:
        """Errors: ConnectorFailed."""
        answers = SimpleQueue[bytes | Exception]()

        def answer() -> None:
            try:
                answers.put(dispatch.CALLS[name](self.connector, request))
            except Exception as error:  # noqa: BLE001 whatever it is, the driver is told
                answers.put(error)

        Thread(target=answer, name=f"connector-{name}", daemon=True).start()
        response = patience.take(answers, f"no answer to {name}")
        if isinstance(response, Exception):
            raise ConnectorFailed(text_of(response)) from response
        return response

    def transactions(self, patience: Patience = PATIENT, /) -> "LocalStream":
        """A stream in a thread of its own."""
        return LocalStream(self.connector, patience)


class LocalStream:
    """One transaction stream."""

    def __init__(self, connector: Connector, patience: Patience) -> None:
        self.connector, self.patience = connector, patience
        self.requests: Queue[bytes | Cancelled | None] = Queue(AHEAD)
        self.responses: SimpleQueue[Said] = SimpleQueue()
        self.thread = Thread(target=self._serve, daemon=True)
        self.thread.start()

    def send(self, data: bytes) -> None:
        """A connector that has failed is seen with the next response."""
        self._put(data)

    def receive(self) -> bytes | None:
        """Errors: ConnectorFailed."""
        response: Said = self.patience.take(self.responses, NO_ANSWER)
        if response is None or isinstance(response, Exception):
            self.responses.put(response)
        if isinstance(response, Exception):
            raise ConnectorFailed(text_of(response)) from response
        return response

    def finish(self) -> None:
        """No more requests come."""
        self._put(None)

    def close(self) -> None:
        """End the stream, and wait until the connector has let go, unless it hangs.

        It has what was sent before, as a process has what is in its pipe.
        """
        deadline_s = time.monotonic() + GRACE_S
        while self.thread.is_alive() and time.monotonic() < deadline_s:
            with suppress(Full):
                self.requests.put(Cancelled(), timeout=LOOK_S)
                break
        self.thread.join(max(0.0, deadline_s - time.monotonic()))
        if self.thread.is_alive():
            log.warning("a connector hangs; its stream is left behind")

    def _put(self, request: bytes | None) -> None:
        with self.patience.waiting(NOT_READ) as look:
            while self.thread.is_alive():
                try:
                    self.requests.put(request, timeout=LOOK_S)
                except Full:
                    look()
                else:
                    return

    def _serve(self) -> None:
        try:
            for response in dispatch.transactions(self.connector, iter(self._next, None)):
                self.responses.put(response)
        except Exception as error:  # noqa: BLE001 whatever it is, the driver is told
            self.responses.put(error)
        else:
            self.responses.put(None)

    def _next(self) -> bytes | None:
        request = self.requests.get()
        if isinstance(request, Cancelled):
            raise request
        return request
