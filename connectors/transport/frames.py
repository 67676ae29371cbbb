"""Frames messages on a pipe: each after its length, four bytes, little-endian."""

from collections.abc import Iterator
from typing import IO

from connectors.protocol.violations import Rule, Side, broken
from connectors.transport.errors import LONGEST

LENGTH_BYTES = 4


def framed(data: bytes) -> bytes:
    """One message, after its length."""
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def write(pipe: IO[bytes], data: bytes) -> None:
    """Write one message, and see to it that it is on its way."""
    pipe.write(framed(data))
    pipe.flush()


def read(pipe: IO[bytes], side: Side) -> bytes | None:
    """The next message of a side; None at the end.

    Errors: Violation by that side if it is cut off, or longer than any message may be.
    """
    head = pipe.read(LENGTH_BYTES)
    if not head:
        return None
    length = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or length > LONGEST:
        detail = f"expected a length of at most {LONGEST}, actual 0x{head.hex()}"
        broken(side, Rule.WIRE, detail)
    data = pipe.read(length)
    if len(data) < length:
        detail = f"expected a message of {length} bytes, actual {len(data)} and the end"
        broken(side, Rule.WIRE, detail)
    return data


def read_all(pipe: IO[bytes], side: Side) -> Iterator[bytes]:
    """All messages of a side, until it closes its end."""
    while (data := read(pipe, side)) is not None:
        yield data
