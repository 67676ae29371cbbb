"""What a client sends, read until a moment and up to a number of bytes.

A pause is no measure of a client: one that sends a byte a second never makes one. So the whole
of what is read has to be there at a moment; `extend` sets the next one.
"""

import http.client
import socket
import time

PIECE = 1 << 16
"""Most bytes that are received at once."""


class TimedReader:
    """Reads as `http.server` does of a file. One thread.

    Errors: TimeoutError when the moment has passed; http.client.LineTooLong when lines have
    more than `most` bytes together.
    """

    def __init__(self, connection: socket.socket, until_s: float, most: int) -> None:
        """`until_s` is by `time.monotonic`."""
        self._connection = connection
        self._until_s = until_s
        self._most = most
        self._buffer = b""
        self.closed = False

    def extend(self, until_s: float) -> None:
        """Read until then."""
        self._until_s = until_s

    def peek(self, size: int) -> bytes:
        """The next bytes, which are read again; fewer at the end of what is sent."""
        while len(self._buffer) < size and self._receive(PIECE):
            pass
        return self._buffer[:size]

    def readline(self, limit: int) -> bytes:
        """A line with its end: less at the end of what is sent, and of so many bytes."""
        end = self._buffer.find(b"\n")
        while end < 0 and len(self._buffer) < limit:
            searched = len(self._buffer)
            if not self._receive(PIECE):
                break
            end = self._buffer.find(b"\n", searched)
        line = self._taken(min(limit, len(self._buffer) if end < 0 else end + 1))
        self._most -= len(line)
        if self._most < 0:
            raise http.client.LineTooLong("lines together")
        return line

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end of what is sent."""
        pieces = [self._taken(size)]
        missing = size - len(pieces[0])
        while missing and self._receive(min(missing, PIECE)):
            pieces.append(self._taken(missing))
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def discard(self, size: int) -> None:
        """Read so many bytes, and keep none."""
        while size and (piece := self.read(min(size, PIECE))):
            size -= len(piece)

    def close(self) -> None:
        """Nothing: the connection is closed by whom it belongs to."""
        self.closed = True

    def _receive(self, size: int) -> bool:
        """Whether some bytes came."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request was not whole in time")
        self._connection.settimeout(left_s)
        received = self._connection.recv(size)
        self._buffer += received
        return bool(received)

    def _taken(self, size: int) -> bytes:
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken
