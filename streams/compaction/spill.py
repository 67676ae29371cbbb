"""Buckets on disk, so that a merge of any size fits in memory one bucket at a time.

Each bucket has a file for contents and one for errors; each part is appended to it as an Arrow
IPC stream. No file stays open, however many buckets there are. The files are scratch: after a
crash a merge starts again from the topics.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streams.compaction.consolidation import ERRORS, Part, together
from streams.trace.kernel.kernel import Kernel

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


@dataclass(frozen=True, slots=True)
class Spill:
    """The buckets of one merge in `directory`, which is its own."""

    directory: Path
    schema: pa.Schema

    def add(self, parts: Sequence[Part]) -> None:
        """Add a part, split by bucket."""
        for bucket, part in enumerate(parts):
            _append(self._file("updates", bucket), part.updates)
            _append(self._file("errors", bucket), part.errors)

    def take(self, bucket: int, kernel: Kernel) -> Part:
        """Return all of a bucket, consolidated, and delete its files."""
        updates = _taken(self._file("updates", bucket), self.schema)
        errors = _taken(self._file("errors", bucket), ERRORS)
        # two halves, so that `together` consolidates even a single part
        none = Part(updates.slice(0, 0), errors.slice(0, 0))
        return together([Part(updates, errors), none], self.schema, kernel)

    def _file(self, kind: str, bucket: int) -> Path:
        return self.directory / f"{bucket}.{kind}"


def _append(file: Path, rows: pa.RecordBatch) -> None:
    if not rows.num_rows:
        return
    with file.open("ab") as sink, pa.ipc.new_stream(sink, rows.schema, options=OPTIONS) as to:
        to.write_batch(rows)


def _taken(file: Path, schema: pa.Schema) -> pa.RecordBatch:
    if not file.exists():
        return pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in schema], schema=schema
        )
    with pa.OSFile(str(file)) as source:
        sheets = list(_streams(source))
    file.unlink()
    return pa.concat_batches(sheets)


def _streams(source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    end = source.size()
    while source.tell() < end:
        with pa.ipc.open_stream(source) as stream:
            yield from stream
