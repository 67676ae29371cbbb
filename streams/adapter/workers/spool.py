"""Buffers a worker's answer for its reader: in memory while it is small, then on disk."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Self

from streams.adapter.workers.framing import DATA, receive, send
from streams.adapter.workers.limits import Limits, too_much_disk

IN_MEMORY = 1 << 20
"""Bytes of an answer that are kept in memory; more go to disk."""


class Spool:
    """Blocks of rows in order, `size` bytes; a context manager, which leaves no file."""

    def __init__(
        self, limits: Limits, directory: Path | None, what: str = "rows as JSON"
    ) -> None:
        """`what` is in the blocks, as an error says."""
        self._limits, self._what, self.size = limits, what, 0
        self._file = SpooledTemporaryFile(  # noqa: SIM115  closed with this context
            IN_MEMORY, dir=None if directory is None else str(directory)
        )

    def take(self, block: bytes) -> None:
        """Store a block. Errors: InvalidStatement if the answer is too large."""
        self.size += len(block)
        if self.size > self._limits.disk:
            raise too_much_disk(self._limits, self._what)
        send(self._file, DATA, block)

    def blocks(self) -> Iterator[bytes]:
        """Yield the stored blocks."""
        self._file.seek(0)
        while (frame := receive(self._file)) is not None:
            yield frame[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
