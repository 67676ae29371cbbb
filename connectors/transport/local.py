"""An in-process connector: its streams run in threads and exchange encoded messages."""

from queue import Full, Queue, SimpleQueue
from threading import Thread

from connectors import dispatch
from connectors.connector import Connector
from connectors.transport.errors import ConnectorFailed, text_of

AHEAD = 16
"""So many requests wait for the connector; a driver that is faster waits itself."""
LOOK_S = 0.2


class Cancelled(Exception):
    """The driver has gone; the stream of the connector ends as by a failure."""


class Local:
    """A connector that is called directly."""

    def __init__(self, connector: Connector) -> None:
        self.connector = connector

    def call(self, name: str, request: bytes) -> bytes:
        """Errors: ConnectorFailed."""
        try:
            return dispatch.CALLS[name](self.connector, request)
        except Exception as error:
            raise ConnectorFailed(text_of(error)) from error

    def transactions(self) -> "LocalStream":
        """A stream in a thread of its own."""
        return LocalStream(self.connector)


class LocalStream:
    """One transaction stream."""

    def __init__(self, connector: Connector) -> None:
        self.connector = connector
        self.requests: Queue[bytes | Cancelled | None] = Queue(AHEAD)
        self.responses: SimpleQueue[bytes | Exception | None] = SimpleQueue()
        self.thread = Thread(target=self._serve, daemon=True)
        self.thread.start()

    def send(self, data: bytes) -> None:
        """A connector that has failed is seen with the next response."""
        self._put(data)

    def receive(self) -> bytes | None:
        """Errors: ConnectorFailed."""
        response = self.responses.get()
        if response is None or isinstance(response, Exception):
            self.responses.put(response)
        if isinstance(response, Exception):
            raise ConnectorFailed(text_of(response)) from response
        return response

    def finish(self) -> None:
        """No more requests come."""
        self._put(None)

    def close(self) -> None:
        """End the stream, and wait until the connector has let go.

        It has what was sent before, as a process has what is in its pipe.
        """
        self._put(Cancelled())
        self.thread.join()

    def _put(self, request: bytes | Cancelled | None) -> None:
        while self.thread.is_alive():
            try:
                self.requests.put(request, timeout=LOOK_S)
            except Full:
                continue
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
