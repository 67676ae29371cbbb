"""Frames over a TCP connection between the driver and a task, which prove who they are.

A frame is a length of four bytes, big-endian, and so many bytes; the receiver says how long one
may be. Both sides have a token. Each one proves to the other that it knows it, by an HMAC over
a nonce of the other, and the token itself is never sent. Frames are not encrypted: they carry
names of steps and files, and to tasks that share no directory with the driver descriptors too,
which have the passwords of Kafka's clients. A token comes to a task in Spark's own messages.
"""

import hmac
import secrets
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

HANDSHAKE_S = 10.0
_LENGTH = struct.Struct(">I")
_NONCE = 32
_PROOF = 32
_TASK, _DRIVER = b"task", b"driver"


@dataclass(frozen=True, slots=True)
class Door:
    """Where the driver listens, and the token."""

    host: str
    port: int
    token: bytes

    def __repr__(self) -> str:
        return f"Door({self.host}:{self.port})"

    def connect(self) -> "Frames":
        """Connect from a task. Errors: OSError; PermissionError if the driver is another."""
        frames = Frames(socket.create_connection((self.host, self.port), HANDSHAKE_S))
        try:
            mine = secrets.token_bytes(_NONCE)
            theirs = _expected(frames.receive(_NONCE, HANDSHAKE_S))
            frames.send(_proof(self.token, _TASK, theirs) + mine, HANDSHAKE_S)
            proof = frames.receive(_PROOF, HANDSHAKE_S) or b""
            _check(proof, _proof(self.token, _DRIVER, mine))
        except BaseException:
            frames.close()
            raise
        return frames


class Frames:
    """A connection. Errors of its methods: OSError, of which TimeoutError is one."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def admit(self, token: bytes) -> None:
        """Let the task on the other side in, as the driver. Errors: PermissionError."""
        mine = secrets.token_bytes(_NONCE)
        self.send(mine, HANDSHAKE_S)
        answer = self.receive(_PROOF + _NONCE, HANDSHAKE_S) or b""
        _check(answer[:_PROOF], _proof(token, _TASK, mine))
        self.send(_proof(token, _DRIVER, answer[_PROOF:]), HANDSHAKE_S)

    def send(self, body: bytes, limit_s: float) -> None:
        """Send a frame within a time."""
        self._socket.settimeout(limit_s)
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, most: int, limit_s: float | None = None) -> bytes | None:
        """Return the next frame, of at most so many bytes; None at the end."""
        until_s = None if limit_s is None else time.monotonic() + limit_s
        head = self._exactly(_LENGTH.size, until_s)
        if not head:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > most:
            raise ConnectionAbortedError(f"expected a frame of {most} bytes, actual {length}")
        body = self._exactly(length, until_s)
        if length and not body:
            raise ConnectionResetError("expected a frame, actual the end of the connection")
        return body

    def is_open(self) -> bool:
        """Whether the other side has neither closed the connection nor sent anything."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the connection."""
        self.end()
        self._socket.close()

    def end(self) -> None:
        """End the connection; a thread that waits for it fails, and closes it."""
        with suppress(OSError):  # the other side was first
            self._socket.shutdown(socket.SHUT_RDWR)

    def _exactly(self, length: int, until_s: float | None) -> bytes:
        """Return so many bytes; none if the connection ends before the first one."""
        parts, left = list[bytes](), length
        while left:
            remaining = None if until_s is None else until_s - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(remaining)
            part = self._socket.recv(min(left, 1 << 20))
            if not part:
                if parts:
                    raise ConnectionResetError("the connection ended within a frame")
                return b""
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def _expected(frame: bytes | None) -> bytes:
    if frame is None:
        raise ConnectionResetError("the driver left")
    return frame


def _proof(token: bytes, role: bytes, nonce: bytes) -> bytes:
    return hmac.digest(token, role + nonce, "sha256")


def _check(given: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(given, expected):
        raise PermissionError("the other side does not know the token")
