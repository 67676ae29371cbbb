"""Spills the changes of a binding to disk, partitioned by the hash of their keys.

They are one step of their binding: a binding with a key moves to its contents at the end of the
step, and a binding of delta updates writes each change. Rows of one key, or equal changes, are
in one part, so each part is processed and written to the endpoint separately. Memory holds one
part and the hashes of the keys.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from connectors.runtime.error_rows import NO_ERRORS
from connectors.runtime.transactions import BoundCollection, Part, Position, TransactionCutter
from streams.ids import Timestamp
from streams.storage.sinks.sink import NO_KEYS, Hashes, Integers
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import advance, flatten, hash_columns

BITS = 6
"""Parts are numbered by so many of the first bits of a hash; the same number for all sizes, so
that the order of rows does not depend on how they are stored."""
PARTS = 1 << BITS
COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class Files:
    """Batches of one schema on disk, by part. What was added is read after `flush`."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory, self._schema = directory, schema
        self._open: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._paths: dict[int, list[Path]] = {}
        directory.mkdir(parents=True)

    def add(self, part: int, batch: pa.RecordBatch) -> None:
        """Append to a part."""
        writer = self._open.get(part)
        if writer is None:
            paths = self._paths.setdefault(part, [])
            paths.append(self._directory / f"{part:02}-{len(paths)}.arrow")
            writer = pa.ipc.new_stream(str(paths[-1]), self._schema, options=COMPRESSED)
            self._open[part] = writer
        writer.write_batch(batch)

    @property
    def parts(self) -> set[int]:
        """The parts that have batches."""
        return set(self._paths)

    def flush(self) -> None:
        """Close the open files."""
        for writer in self._open.values():
            writer.close()
        self._open.clear()

    def read(self, part: int) -> pa.RecordBatch:
        """All of a part, as one batch."""
        return flatten([table_of(path) for path in self._paths.get(part, ())], self._schema)

    def clear(self, part: int) -> None:
        """Forget a part."""
        for path in self._paths.pop(part, ()):
            path.unlink()


def table_of(path: Path) -> pa.Table:
    """The contents of a file."""
    with pa.ipc.open_stream(str(path)) as reader:
        return reader.read_all()


class Spill:
    """The changes of a binding from its position to `upper`, and their net effect."""

    def __init__(
        self, bound: BoundCollection, position: Position, kernel: Kernel, directory: Path
    ) -> None:
        self._bound, self._position, self._kernel = bound, position, kernel
        self.directory = directory
        self._changes = Files(directory / "changes", bound.schema)
        flags = [pa.field("exists", pa.bool_()), pa.field("deletes", pa.bool_())]
        self._rows = Files(directory / "rows", pa.schema([*bound.schema, *flags]))
        self._before = Files(directory / "before", bound.schema)
        self._touched: set[int] = set()
        self._errors = NO_ERRORS
        self._reasons: dict[int, str] = {}
        self._counts = [0] * PARTS
        self._lives: list[Hashes] = divided(position.live)
        self.upper = position.frontier

    @property
    def reason(self) -> str:
        """Why the binding has no contents at the end; empty if it has."""
        return next(iter(self._reasons.values()), "")

    @property
    def count(self) -> int:
        """The number of rows it writes."""
        return sum(self._counts)

    @property
    def live(self) -> Hashes:
        """The hashes of the keys that have a row at the end, sorted. The parts become views."""
        joined: Hashes = np.empty(sum(map(len, self._lives)), np.uint64)
        begin = 0
        for part, hashes in enumerate(self._lives):
            view = joined[begin : begin + len(hashes)]
            view[:] = hashes
            self._lives[part] = view
            begin += len(hashes)
        return joined

    def add(self, updates: pa.Table, errors: pa.Table) -> None:
        """Take changes. Shape: as `TransactionCutter.take`."""
        bound = self._bound
        batch = flatten([updates], bound.schema)
        width = batch.num_columns - 2
        hashes = hash_columns(
            batch, range(width) if bound.delta else bound.places, self._kernel
        )
        parts = part_of(hashes)
        order = np.argsort(parts, kind="stable")
        ordered = batch.take(pa.array(order))
        starts: Integers = np.searchsorted(parts[order], np.arange(PARTS + 1))
        for part in np.flatnonzero(np.diff(starts)).tolist():
            rows = ordered.slice(starts[part], starts[part + 1] - starts[part])
            self._changes.add(part, rows)
            self._touched.add(part)
        self._errors = pa.concat_tables([self._errors, errors])

    def decide(self, upper: Timestamp) -> None:
        """All updates before `upper` were added: compute their net effect.

        Errors: Corrupt if the collection removes rows that it does not have.
        """
        self._changes.flush()
        for part in sorted(self._undecided()):
            self._decide(part, upper)
        for files in (self._rows, self._before):
            files.flush()
        self._touched, self.upper = set(), upper

    def _undecided(self) -> set[int]:
        """The parts that may be others than they were before the last changes."""
        if self._errors.num_rows or self.reason:
            return set(range(PARTS))
        return self._changes.parts if self._bound.delta else self._touched

    def _decide(self, part: int, upper: Timestamp) -> None:
        bound, at = self._bound, self._position
        live = divided(at.live)[part]
        start = at.frontier if bound.delta else Timestamp(upper - 1)
        cutter = TransactionCutter(
            [bound], [Position(at.frontier, at.is_begun, live)], self._kernel, 1 << 62
        )
        updates = advance(self._changes.read(part), start)
        cutter.take(0, pa.Table.from_batches([updates]), self._errors, upper)
        self._rows.clear(part)
        self._before.clear(part)
        self._counts[part] = 0
        self._reasons.pop(part, None)
        decided = cutter.whole(upper)
        if isinstance(decided, str):
            self._reasons[part] = decided
            return
        rows, self._lives[part] = decided
        self._counts[part] = rows.rows.num_rows
        if self._counts[part]:
            flags = [pa.array(rows.exists), pa.array(rows.deletes)]
            self._rows.add(part, with_columns(rows.rows, flags))
            self._before.add(part, rows.before)

    def pieces(self) -> Iterator[Part]:
        """The rows to write, part by part."""
        for part in np.flatnonzero(self._counts).tolist():
            whole = self._rows.read(part)
            rows = whole.select(range(whole.num_columns - 2))
            exists, deletes = (
                column.to_numpy(zero_copy_only=False) for column in whole.columns[-2:]
            )
            yield Part(rows, exists, deletes, self._before.read(part))


def with_columns(batch: pa.RecordBatch, flags: Sequence[pa.Array]) -> pa.RecordBatch:
    """Rows with the two flags of each."""
    arrays = [*batch.columns, *flags]
    return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, "exists", "deletes"])


def part_of(hashes: Hashes) -> Integers:
    """The part of each hash."""
    return (hashes >> np.uint64(64 - BITS)).astype(np.int64)


def divided(hashes: Hashes) -> list[Hashes]:
    """Sorted hashes, by part."""
    if not len(hashes):
        return [NO_KEYS] * PARTS
    return np.split(hashes, np.searchsorted(part_of(hashes), np.arange(1, PARTS)))
