"""Message framing on the pipes between a coordinator and its workers.

A frame is a kind of one byte, the length of its body (8 bytes), and the body. A request is a
REQUEST frame, and for each table it brings along a TABLE frame. It is answered by any number
of DATA frames and one END frame. After END comes the next request.
"""

import struct
from typing import Protocol

from streams.errors import SlackwaterError

REQUEST, TABLE, DATA, END = b"R", b"T", b"D", b"E"
_HEAD = struct.Struct(">cQ")
_PIECE = 1 << 20

LARGEST = 64 << 20
"""Largest frame of an answer: the coordinator holds one at a time."""


class Garbled(SlackwaterError):
    """A worker's answer is malformed: nothing more of it can be read."""


class Reading(Protocol):
    """A pipe's read end, unbuffered."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; none at the end."""


class Writing(Protocol):
    """A pipe's write end."""

    def write(self, data: bytes | memoryview, /) -> int | None:
        """Write some of the bytes; return how many."""


def send(pipe: Writing, kind: bytes, body: bytes | memoryview) -> None:
    """Write a frame. Errors: BrokenPipeError when the reader is gone."""
    for part in (_HEAD.pack(kind, len(body)), body):
        left = memoryview(part)
        while left:
            left = left[pipe.write(left) or 0 :]


def receive(pipe: Reading, largest: int | None = None) -> tuple[bytes, bytes] | None:
    """Return a frame's kind and body; None if the pipe ends before it is complete.

    Errors: Garbled for one that is larger than it may be.
    """
    head = _exactly(pipe, _HEAD.size)
    if head is None:
        return None
    kind, length = _HEAD.unpack(head)
    if largest is not None and length > largest:
        raise Garbled(f"expected a frame of at most {largest:,} bytes, actual {length:,}")
    body = _exactly(pipe, length)
    return None if body is None else (kind, body)


def _exactly(pipe: Reading, size: int) -> bytes | None:
    chunks, left = [], size
    while left:
        chunk = pipe.read(min(left, _PIECE))
        if not chunk:
            return None
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
