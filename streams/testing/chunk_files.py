"""Chunks as files of a directory: what one process writes, another on the machine reads.

They stand in for the data topics of a broker where a dataflow is stepped for a test.
"""

import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streams.errors import Corrupt, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.log import ChunkRecord, ChunkRef, ChunkWrite


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """The chunks of all topics; a body is in the file of its key."""

    directory: Path

    def write(
        self, topic: Topic, bodies: Sequence[tuple[bytes, int]], headers: Mapping[str, bytes]
    ) -> tuple[ChunkRef, ...]:
        """Write bodies with their row counts."""
        del topic, headers
        return tuple(self._written(body, rows) for body, rows in bodies)

    def _written(self, body: bytes, rows: int) -> ChunkRef:
        key = uuid.uuid4().hex
        (self.directory / key).write_bytes(body)
        return ChunkRef(0, Offset(0), key, zlib.crc32(body), rows, len(body))

    def write_all(self, wanted: Sequence[ChunkWrite]) -> list[tuple[ChunkRef, ...]]:
        """Write the bodies of many topics."""
        return [self.write(*chunk_write) for chunk_write in wanted]

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[bytes]:
        """Return the bodies. Errors: Corrupt."""
        del topic
        bodies = [(self.directory / ref.key).read_bytes() for ref in refs]
        for body, ref in zip(bodies, refs, strict=True):
            if zlib.crc32(body) != ref.checksum:
                raise Corrupt(f"chunk {ref.key} of {self.directory} is not the one written")
        return bodies

    def fetch_all(
        self, wanted: Mapping[Topic, Sequence[ChunkRef]]
    ) -> Mapping[Topic, list[bytes]]:
        """Return the bodies of many topics."""
        return {topic: self.fetch(topic, refs) for topic, refs in wanted.items()}

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> list[ChunkRecord]:
        """Return the bodies as records without headers."""
        return [ChunkRecord(body, ()) for body in self.fetch(topic, refs)]

    def forget(self, topic: Topic, refs: Sequence[ChunkRef]) -> None:
        """Delete chunks."""
        del topic
        for ref in refs:
            (self.directory / ref.key).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Files:
    """The clients of tasks whose dataflow is stepped for a test: chunks alone."""

    directory: Path

    def chunks(self) -> ChunkFiles:
        """The chunks."""
        return ChunkFiles(self.directory)

    def messages(self) -> "NoMessages":
        """A reader of no topic."""
        return NoMessages()


class NoMessages:
    """Has no raw topic."""

    def fetch_ranges(
        self,
        topic: Topic,
        ranges: Sequence[tuple[int, Offset, Offset]],
        *,
        more: Sequence[str] = (),
    ) -> pa.Table:
        """Errors: InvalidUsage."""
        raise InvalidUsage(f"topic {topic} is not read for a test: {ranges} {more}")
