"""Run files: operator state in immutable files sorted by key hash.

A run is an Arrow IPC stream of record batches, uncompressed, so that it is memory-mapped and
its pages are the host's page cache, shared by all workers. Its first column `h` is the 64-bit
hash of the row's key, ascending; what the other columns mean is the arrangement's business. An
arrangement is a list of runs, oldest first.

A run of more than `PIECE` bytes has several record batches, its pieces, because it was merged
that way (`trace.arrange.merge`). Its rows are in order across pieces, and each piece is read as
if it were a run; the choice of what to merge is made for whole runs.

Runs are written once under names that were never used before and never change. No code here
deletes one: an older checkpoint may still name it (rule 19). To make a file costs a hundred
times as much as to add to one, so the small runs of a task share files: a run's name is that
of its file, and where it begins there. A file is needed as long as one run in it is, so it is
not added to when it has reached `SHARED_FILE` bytes, nor by another task.

A name may be of a *clipped* run, the part of a run in a range of hashes: when buckets become
more, each has its part of the runs that there are, and no row is written (D464).

Cost: a lookup of k keys reads O(k log n) places of each run, whatever the run's size. Before
a new run is added, every newer run that is less than twice its size is merged into it: so
sizes at least double from the newest to the oldest, there are at most log2 n runs, and a row
is rewritten at most log2 n times. (Runs stop growing at `LARGEST_MERGE` bytes.) A merge holds a
piece in memory, in a few copies, or the rows of one key if they are more.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.trace.arrange.disk_reserve import claim
from streams.trace.arrange.merge import buffer_bytes, coalesce, size_of
from streams.trace.columns import Ints, Words, ascending, is_ascending, spans, uint64

LARGEST_MERGE = 1 << 30
"""The most bytes merged at once: it bounds the time that one step may take."""

PIECE = 1 << 24
"""The most bytes of a merge that are in memory at a time, but for rows of one key."""

SMALL_RUN = 1 << 18
"""Bytes up to which a new run shares a file, and stays in the memory of its worker."""

SHARED_FILE = 1 << 18
"""Bytes from which on a file is not added to."""

RunName = list[str | int]
"""A run as a checkpoint names it, in JSON: `<file>.<offset>` and its number of rows.

What is pending has its next time behind these (`trace.arrange.pending`). A clipped run has a
third part of its name, `<low>-<high>`: those of its rows whose upper half of the hash is in
[low, high). Its number of rows is estimated until it is merged.
"""

EVERYWHERE = 0, 1 << 32
"""The range of the upper halves of all hashes."""

_LARGE = 1 << 12
_ALIGNMENT = 64
_OPTIONS = pa.ipc.IpcWriteOptions()
"""Arrow's own; without any, pyarrow asks the environment at every stream."""


def file_of(name: str) -> str:
    """The name of the file that a run lies in."""
    return name.partition(".")[0]


def clipped(
    run: RunName, low: int, high: int, within: tuple[int, int] = EVERYWHERE
) -> RunName | None:
    """The part of a run whose hashes' upper halves are in [low, high); None for no rows.

    All of the run are in the range `within`.
    """
    base, first, last = _clip_of(run)
    first, last = max(first, within[0]), min(last, within[1])
    low, high = max(low, first), min(high, last)
    if low >= high:
        return None
    if (low, high) == (first, last):
        return run
    share = (high - low) / (last - first)
    return [f"{base}.{low}-{high}", max(round(int(run[1]) * share), 1), *run[2:]]


def joined(left: RunName, right: RunName) -> RunName | None:
    """Two parts of one run as one, if the second begins where the first ends."""
    (base, low, end), (other, begin, high) = _clip_of(left), _clip_of(right)
    if (base, end) != (other, begin):
        return None
    return [f"{base}.{low}-{high}", int(left[1]) + int(right[1]), *left[2:]]


def _is_clipped(name: str | int) -> bool:
    return str(name).count(".") > 1


def _clip_of(run: RunName) -> tuple[str, int, int]:
    """The name of the run that a run is or is clipped from, and its range of upper halves."""
    file, offset, *clip = str(run[0]).split(".")
    return f"{file}.{offset}", *_bounds(clip)


def _bounds(clip: Sequence[str]) -> tuple[int, int]:
    if not clip:
        return EVERYWHERE
    low, high = map(int, clip[0].split("-"))
    return low, high


@dataclass(frozen=True, slots=True)
class Run:
    """An open run, or a piece of one: its rows, and its hashes as numpy sees them.

    `derived` holds what was computed of the rows, which never change, by what it is.
    """

    rows: pa.RecordBatch
    hashes: Words
    derived: dict[object, object] = field(default_factory=dict, compare=False, repr=False)


def _lost(file: Path) -> None:
    """Errors: FileNotFoundError: no file is anywhere else."""
    raise FileNotFoundError(f"run file {file} does not exist")


@dataclass(slots=True)
class RunCache:
    """The open runs of a worker; the least recently used go first.

    At most `limit` runs; of those that were just written and are still in this process's own
    memory, at most `held_bytes`. `bring` is given the path of a file that is not there, and
    makes that it is, or fails as a missing file does. `read` counts the runs that were asked
    for, and `brought` those of them whose file had to be brought.
    """

    limit: int = 4096
    held_bytes: int = 64 << 20
    bring: Callable[[Path], None] = _lost
    read: int = 0
    brought: int = 0
    _open: OrderedDict[str, tuple[Run, ...]] = field(default_factory=OrderedDict)
    _held: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _holding: int = 0

    def get(self, path: str) -> tuple[Run, ...]:
        """The pieces of the run at this path, opened at most once while it is in use."""
        self.read += 1
        run = self._open.get(path)
        if run is None:
            run = self._open[path] = self._opened(path)
            if len(self._open) > self.limit:
                self._drop(next(iter(self._open)))
        else:
            self._open.move_to_end(path)
        return run

    def put(self, path: str, rows: pa.RecordBatch, size: int) -> None:
        """A run of so many bytes that was just written here need not be opened."""
        self._open[path] = (Run(rows, uint64(rows.column(0))),)
        self._held[path] = size
        self._holding += size
        while self._holding > self.held_bytes or len(self._open) > self.limit:
            self._drop(next(iter(self._held or self._open)))

    def _opened(self, path: str) -> tuple[Run, ...]:
        try:
            return _opened(path)
        except FileNotFoundError:
            directory, _, name = path.rpartition("/")
            self.bring(Path(directory) / file_of(name))
            self.brought += 1
        return _opened(path)

    def _drop(self, path: str) -> None:
        del self._open[path]
        self._holding -= self._held.pop(path, 0)


def _opened(path: str) -> tuple[Run, ...]:
    directory, _, name = path.rpartition("/")
    file, offset, *clip = name.split(".")
    source = pa.memory_map(f"{directory}/{file}")
    source.seek(int(offset))
    pieces = (Run(rows, uint64(rows.column(0))) for rows in pa.ipc.open_stream(source))
    return tuple(_parts(pieces, *_bounds(clip))) if clip else tuple(pieces)


def _parts(pieces: Iterable[Run], low: int, high: int) -> Iterator[Run]:
    """The rows of a clipped run."""
    ends = np.array([low << 32, (high << 32) - 1], np.uint64)
    for piece in pieces:
        start = int(np.searchsorted(piece.hashes, ends[0], "left"))
        end = int(np.searchsorted(piece.hashes, ends[1], "right"))
        if start < end:
            yield Run(piece.rows[start:end], piece.hashes[start:end])


@dataclass(slots=True)
class SharedFile:
    """The file that the small runs of a task are added to, one after the other."""

    name: str = ""
    size: int = SHARED_FILE

    def add(self, directory: Path, content: pa.Buffer, new_name: Callable[[], str]) -> str:
        """Add a run; its name. Errors: FileNotFoundError if the file was deleted meanwhile."""
        if self.size >= SHARED_FILE:
            self.name, self.size = new_name(), 0
        with Path(f"{directory}/{self.name}").open("ab") as file:
            # Asked of the file: a write that failed half way has left a part of itself.
            offset = file.tell()
            if offset < self.size:  # in a new file its runs would have the names of others
                raise FileNotFoundError(f"run file {self.name} was deleted while in use")
            padding = -offset % _ALIGNMENT
            file.write(bytes(padding))
            file.write(content)
        self.size = offset + padding + content.size
        return f"{self.name}.{offset + padding}"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The directory of a dataflow's runs, and how new ones are named."""

    directory: Path
    new_name: Callable[[], str]
    cache: RunCache = field(default_factory=RunCache)
    merge_factor: int = 2
    shared: SharedFile = field(default_factory=SharedFile)
    piece: int = PIECE

    def open(self, names: Sequence[RunName]) -> list[Run]:
        """The pieces of the runs of an arrangement, in the order given."""
        return [piece for name, *_ in names for piece in self.cache.get(self.path(name))]

    def path(self, name: str | int) -> str:
        """The path of a run. Text, because it is needed often."""
        return f"{self.directory}/{name}"

    def write(self, pieces: Iterable[pa.RecordBatch]) -> list[RunName]:
        """A new run of these rows, sorted from piece to piece; no run when there are none.

        Errors: OSError when the disk is full to its reserve
        (`streams.trace.arrange.disk_reserve`).
        """
        batches = coalesce(pieces, self.piece)
        first = next(batches, None)
        if first is None:
            return []
        size = first.get_total_buffer_size()
        second = next(batches, None) if size <= SMALL_RUN else None
        if second is None and size <= SMALL_RUN:
            # Kept as well: to open it again costs more than all its bytes.
            name = self.shared.add(self.directory, _content(first), self.new_name)
            self.cache.put(self.path(name), first, size)
            return [[name, first.num_rows]]
        file = self.new_name()
        begun = [first] if second is None else [first, second]
        pieces = self._claimed(chain(begun, batches))
        try:
            with pa.OSFile(self.path(file), "wb") as sink:
                rows = _write(sink, first.schema, pieces)
        except OSError:
            Path(self.path(file)).unlink(missing_ok=True)  # others need the room now
            raise
        return [[f"{file}.0", rows]]

    def _claimed(self, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pieces of a large run, each when there is room for it."""
        for piece in pieces:
            claim(self.directory, piece.get_total_buffer_size())
            yield piece

    def victims(self, names: Sequence[RunName], new: pa.RecordBatch) -> int:
        """The number of the newest runs to merge with a new run of these rows."""
        count, rows, size = 0, new.num_rows, new.get_total_buffer_size()
        for name, more, *_ in reversed(names):
            if int(more) >= self.merge_factor * rows:
                break
            pieces = [piece.rows for piece in self.open([[name]])]
            # a clipped run lies in the buffers of all of it; counting its own bytes takes long
            size += size_of(pieces) if _is_clipped(name) else buffer_bytes(pieces)
            if size > LARGEST_MERGE:
                break
            rows += int(more)
            count += 1
        return count


def _write(sink: pa.NativeFile, schema: pa.Schema, pieces: Iterable[pa.RecordBatch]) -> int:
    """Write a run; how many rows it has."""
    rows = 0
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        for piece in pieces:
            writer.write_batch(piece)
            rows += piece.num_rows
    return rows


def _content(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write(sink, rows.schema, [rows])
    return sink.getvalue()


def lookup(run: Run, hashes: Words) -> tuple[Ints, Ints]:
    """For every row of the run whose hash is asked for: which of `hashes`, and where it is."""
    starts = np.searchsorted(run.hashes, hashes, "left")
    counts = np.searchsorted(run.hashes, hashes, "right") - starts
    return np.repeat(np.arange(len(hashes)), counts), spans(starts, counts)


def by_hash(rows: Sequence[pa.RecordBatch]) -> tuple[Words, Ints]:
    """The hashes of the rows one after the other, and the order that sorts them, stably."""
    hashes = np.concatenate([uint64(row.column(0)) for row in rows])
    return hashes, ascending(hashes)


def in_order(parts: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, Words]:
    """The rows of these parts in the order of their hashes, and these.

    What is sorted already is not copied, unless it is small: it may be a slice of much more.
    """
    hashes, order = by_hash(parts)
    everything = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    if len(order) >= _LARGE and is_ascending(hashes):
        return everything, hashes
    return everything.take(pa.array(order)), hashes[order]


def repeated(sorted_hashes: Words) -> Ints:
    """The places of a sorted array whose value occurs more than once."""
    same = sorted_hashes[1:] == sorted_hashes[:-1]
    both = np.zeros(len(sorted_hashes), np.bool_)
    both[1:] |= same
    both[:-1] |= same
    return np.flatnonzero(both)
