"""Run files: what an operator remembers, in immutable files sorted by key hash.

A run is one Arrow IPC file with one record batch, uncompressed, so that it is memory-mapped
and its pages are the host's page cache, shared by all workers. Its first column `h` is the
64-bit hash of the row's key, ascending; what the other columns mean is the arrangement's
business. An arrangement is a list of runs, oldest first.

Runs are written once under names that were never used before and never change. Nobody here
deletes one: an older checkpoint may still name it (rule 19).

Cost: a lookup of k keys reads O(k log n) places of each run, whatever the run's size. Before
a new run is added, every newer run that is less than twice its size is merged into it: so
sizes at least double from the newest to the oldest, there are at most log2 n runs, and a row
is rewritten at most log2 n times. (Runs stop growing at `LARGEST_MERGE` bytes.)
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.trace.columns import Ints, Words, spans, uint64

LARGEST_MERGE = 1 << 30
"""The most bytes merged at once: it bounds the time and the memory that one step may take."""

SMALL_RUN = 1 << 18
"""Bytes up to which a new run stays in memory, in the worker that wrote it."""

RunName = list[str | int]
"""A run as a checkpoint names it, in JSON: its file name and its number of rows."""


@dataclass(frozen=True, slots=True)
class Run:
    """An open run: its rows, and its hashes as numpy sees them."""

    rows: pa.RecordBatch
    hashes: Words


@dataclass(slots=True)
class RunCache:
    """The open runs of a worker; the least recently used go first.

    At most `limit` runs; of those that were just written and are still in this process's own
    memory, at most `held_bytes`.
    """

    limit: int = 4096
    held_bytes: int = 64 << 20
    _open: OrderedDict[str, Run] = field(default_factory=OrderedDict)
    _held: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def get(self, path: str) -> Run:
        """The run in this file, opened at most once while it is in use."""
        run = self._open.get(path)
        if run is None:
            rows = pa.ipc.open_file(pa.memory_map(path)).get_batch(0)
            run = self._open[path] = Run(rows, uint64(rows.column(0)))
            if len(self._open) > self.limit:
                self._drop(next(iter(self._open)))
        else:
            self._open.move_to_end(path)
        return run

    def put(self, path: str, rows: pa.RecordBatch) -> None:
        """A run that was just written here need not be opened."""
        self._open[path] = Run(rows, uint64(rows.column(0)))
        self._held[path] = rows.nbytes
        while sum(self._held.values()) > self.held_bytes or len(self._open) > self.limit:
            self._drop(next(iter(self._held or self._open)))

    def _drop(self, path: str) -> None:
        del self._open[path]
        self._held.pop(path, None)


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The directory of a dataflow's runs, and how new ones are named."""

    directory: Path
    new_name: Callable[[], str]
    cache: RunCache = field(default_factory=RunCache)
    merge_factor: int = 2

    def open(self, names: Sequence[RunName]) -> list[Run]:
        """The runs of an arrangement, in the order given."""
        return [self.cache.get(self.path(name)) for name, _ in names]

    def path(self, name: str | int) -> str:
        """Where a run lies. Text, since this is asked for at every turn."""
        return f"{self.directory}/{name}"

    def write(self, rows: pa.RecordBatch) -> list[RunName]:
        """A new run of these rows, which are sorted by `h`; no run when there are none."""
        if not rows.num_rows:
            return []
        name = self.new_name()
        path = self.path(name)
        if rows.nbytes <= SMALL_RUN:
            # In one piece, and kept: opening it again costs more than all its bytes.
            buffer = pa.BufferOutputStream()
            _write(buffer, rows)
            with Path(path).open("wb", buffering=0) as file:
                file.write(buffer.getvalue())
            self.cache.put(path, rows)
        else:
            with pa.OSFile(path, "wb") as sink:
                _write(sink, rows)
        return [[name, rows.num_rows]]

    def victims(self, names: Sequence[RunName], new: pa.RecordBatch) -> int:
        """How many of the newest runs a new run of these rows is to be merged with."""
        count, rows, size = 0, new.num_rows, new.nbytes
        for name, more in reversed(names):
            if int(more) >= self.merge_factor * rows:
                break
            size += self.cache.get(self.path(name)).rows.nbytes
            if size > LARGEST_MERGE:
                break
            rows += int(more)
            count += 1
        return count


def _write(sink: pa.NativeFile, rows: pa.RecordBatch) -> None:
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)


def lookup(run: Run, hashes: Words) -> tuple[Ints, Ints]:
    """For every row of the run whose hash is asked for: which of `hashes`, and where it is."""
    starts = np.searchsorted(run.hashes, hashes, "left")
    counts = np.searchsorted(run.hashes, hashes, "right") - starts
    return np.repeat(np.arange(len(hashes)), counts), spans(starts, counts)


def by_hash(rows: Sequence[pa.RecordBatch]) -> tuple[Words, Ints]:
    """The hashes of the rows one after the other, and the order that sorts them, stably."""
    hashes = np.concatenate([uint64(each.column(0)) for each in rows])
    return hashes, np.argsort(hashes, kind="stable")


def repeated(sorted_hashes: Words) -> Ints:
    """The places of a sorted array whose value occurs more than once."""
    same = sorted_hashes[1:] == sorted_hashes[:-1]
    both = np.zeros(len(sorted_hashes), np.bool_)
    both[1:] |= same
    both[:-1] |= same
    return np.flatnonzero(both)
