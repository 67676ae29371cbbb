"""Parses lines of JSON into messages, as a user's producer would send them.

A key is written as sources read it: the JSON value of a member, or an object of several.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from streams.errors import InvalidUsage
from streams.replica.ingest.scan import Malformed, document, members

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Messages:
    """Shape: `keys` (None: no message has one) and `values` are utf8, of the same length."""

    keys: pa.Array | None
    values: pa.Array


@dataclass(frozen=True, slots=True)
class LineMapping:
    """The mapping of lines to messages: the members of the key; deletions without values."""

    key: Sequence[str] = ()
    deletes: bool = False

    def messages(self, lines: Sequence[bytes], first: int = 1) -> Messages:
        """The messages of lines; blank ones are left out. `first` is the first one's number.

        Errors: InvalidUsage, naming the line that cannot be sent.
        """
        texts = [
            (number, _text(line, number))
            for number, line in enumerate(lines, first)
            if line.strip()
        ]
        keys = [self._key(text, number) for number, text in texts]
        values = [None if self.deletes else text for _, text in texts]
        return Messages(
            pa.array(keys, pa.string()) if self.key else None, pa.array(values, pa.string())
        )

    def _key(self, text: str, number: int) -> str | None:
        if not self.key:
            return None
        if not text.startswith("{"):
            raise InvalidUsage(f"line {number}: expected a JSON object with {self._named()}")
        values = {name: token.text for name, token in members(text)}
        if missing := [name for name in self.key if name not in values]:
            raise InvalidUsage(
                f"line {number}: no member {missing[0]!r} to make the key of"
                f" (it has {', '.join(values) or 'none'})"
            )
        if len(self.key) == 1:
            return values[self.key[0]]
        parts = (f"{json.dumps(name, ensure_ascii=False)}:{values[name]}" for name in self.key)
        return f"{{{','.join(parts)}}}"

    def _named(self) -> str:
        return " and ".join(self.key)


def _text(line: bytes, number: int) -> str:
    """The line's JSON. Errors: InvalidUsage when it is none."""
    try:
        text = line.decode().strip()
        document(text)
    except UnicodeDecodeError as cause:
        raise InvalidUsage(f"line {number}: expected UTF-8") from cause
    except Malformed as cause:
        raise InvalidUsage(f"line {number}: {cause}") from cause
    return text


def blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a stream as they come, some at a time: a pipe is not waited for."""
    rest = b""
    while block := _some(stream):
        *whole, rest = (rest + block).split(b"\n")
        if whole:
            yield whole
    if rest:
        yield [rest]


def _some(stream: BinaryIO) -> bytes:
    read = getattr(stream, "read1", stream.read)
    block: bytes = read(BLOCK_BYTES)
    return block
