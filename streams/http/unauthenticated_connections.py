"""Connections of clients that have proven nothing yet: a few, and each for a short time.

Beyond the number that there may be, a new one ends the oldest: an honest client has said all it
has to say within milliseconds, so the oldest is most likely one that holds a connection to hold
it. To turn away the new one instead would let whoever holds all of them keep everyone out.
"""

import contextlib
import socket
import threading

MOST = 64
"""Most connections, and so threads, of clients that have proven nothing."""


class UnauthenticatedConnections:
    """The connections by their descriptor, oldest first. Called by any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._connections)

    def enter(self, connection: socket.socket) -> None:
        """Take note of a connection; the oldest ends if they are too many."""
        with self._lock:
            self._connections[connection.fileno()] = connection
            if len(self._connections) > self._most:
                oldest = next(iter(self._connections))
                _end(self._connections.pop(oldest))

    def secured(self, connection: socket.socket) -> None:
        """Take note that TLS is spoken on a connection, which has another object now."""
        with self._lock:
            if connection.fileno() in self._connections:
                self._connections[connection.fileno()] = connection

    def leave(self, connection: socket.socket) -> None:
        """Forget a connection: its client has proven something, or it is about to close."""
        with self._lock:
            self._connections.pop(connection.fileno(), None)


def _end(connection: socket.socket) -> None:
    """Wake its thread, which finds nothing more to read.

    The descriptor is closed by that thread alone. Of TLS the state stays as it is: that thread
    may be using it.
    """
    with contextlib.suppress(OSError):  # the client was faster
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
