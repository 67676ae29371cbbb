"""Reads collections into the next transaction of a session, in bounded memory.

At most one transaction of changes is buffered; no more is read until it is taken, so reading is
as fast as the endpoint commits. An interval that does not fit in memory, such as the initial
contents of a large collection, is spilled to disk (`connectors.runtime.spill`).
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from connectors.runtime import checkpoints
from connectors.runtime.follower import ChunkVolume, CollectionFollower
from connectors.runtime.key_hasher import KeyHasher
from connectors.runtime.ranges import EVERY_KEY, unwritten
from connectors.runtime.spill import Spill
from connectors.runtime.task import TransactionLimits
from connectors.runtime.task_setup import AppliedTask
from connectors.runtime.transactions import Transaction, TransactionCutter
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.storage.sinks.sink import NO_KEYS, Flags, Hashes, Integers
from streams.trace.columns import int64
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import flatten

WAIT_MS = 200
LARGE = 2
"""An interval with more than this many times a transaction's limit waits on disk."""
FEW_ROWS = 10_000
"""The minimum held in memory, independent of the limits."""


class SessionReader:
    """The reading side of a session. One thread."""

    def __init__(  # noqa: PLR0913  dependencies
        self,
        *,
        following: CollectionFollower,
        prepared: AppliedTask,
        cutter: TransactionCutter,
        limits: TransactionLimits,
        intent: checkpoints.Intent | None,
        directory: Path,
        kernel: Kernel,
    ) -> None:
        self._following, self._prepared, self.cutter = following, prepared, cutter
        self._limits, self._intent = limits, intent
        self._directory, self._kernel = directory, kernel
        self._birth = max(
            (at.frontier for at in cutter.positions if not at.is_begun), default=MINIMUM_TIME
        )
        self._spills: dict[int, Spill] = {}

    @property
    def uppers(self) -> list[Timestamp]:
        """The upper of each binding's collection."""
        return [self._following.upper(name) for name in self._prepared.collections]

    @property
    def _read(self) -> Timestamp:
        """Up to where all bindings were read."""
        return Timestamp(min(map(self.cutter.upper, range(len(self.cutter.bindings)))))

    @property
    def unreadable(self) -> list[CollectionId]:
        """The collections that all wait for: they have no complete time yet."""
        pairs = zip(self._prepared.collections, self.uppers, strict=True)
        return list(dict.fromkeys(name for name, upper in pairs if upper <= self._birth))

    @property
    def is_full(self) -> bool:
        """Whether enough changes wait for a transaction."""
        rows = map(self.cutter.rows, range(len(self.cutter.bindings)))
        return self.cutter.large_upper is not None or max(rows) >= self._limits.rows // 2

    @property
    def waiting(self) -> int:
        """The number of changes read and not yet in a transaction."""
        return sum(map(self.cutter.rows, range(len(self.cutter.bindings))))

    def wait(self, timeout_ms: int = WAIT_MS) -> bool:
        """Wait for changes; return whether all collections have some that were not read."""

        def ready() -> bool:
            return min(self.uppers) > self._read

        return self._following.wait(ready, min(timeout_ms, WAIT_MS))

    def take(self) -> None:
        """Read available changes, at most as many as fit in one transaction."""
        while self._intent is None and min(self.uppers) > self._read and not self.is_full:
            self._take()

    def gather(self) -> Transaction | None:
        """Read available changes, and cut the next transaction; None if there is none.

        A transaction that was in progress when the last session ended is cut as before.
        """
        if self._intent is not None:
            return self._intended(self._intent)
        transaction = self.cutter.cut()
        while transaction is None and min(self.uppers) > self._read:
            self._take()
            transaction = self.cutter.cut()
        return transaction

    def discard(self, transaction: Transaction) -> None:
        """Delete the spill files of a committed transaction."""
        for index, part in enumerate(transaction.parts):
            if isinstance(part, Spill):
                shutil.rmtree(part.directory)
                if self._spills.get(index) is part:  # it has the hashes of all keys
                    del self._spills[index]

    def _intended(self, intent: checkpoints.Intent) -> Transaction | None:
        names = self._prepared.names
        aims = checkpoints.decode(intent.checkpoint, names, EVERY_KEY)
        moved = [
            aim
            for name, at in zip(names, self.cutter.positions, strict=True)
            for aim in [aims[name][0].frontier]  # a log is written as one shard
            if aim is not None and (aim > at.frontier or not at.is_begun)
        ]
        aim = max(moved, default=MINIMUM_TIME)
        if min(self.uppers) < aim:
            return None
        while self._read < aim:
            self._take(aim)
        self._intent = None
        return (self.cutter.cut(aim) if moved else None) or self.gather()

    def _take(self, bound: Timestamp | None = None) -> None:
        """Read more of the bindings that are behind, and of others that have little waiting.

        With a bound, nothing beyond it.
        """
        behind, bound = self._read, self._extended() or bound
        for index, name in enumerate(self._prepared.collections):
            lower = self.cutter.upper(index)
            end = self._following.upper(name)
            is_wanted = lower == behind or self.cutter.rows(index) < self._limits.rows
            if min(end, bound or end) <= lower or not is_wanted:
                continue
            start = self.cutter.positions[index].frontier
            upper, times = self._following.extent(name, self._first(index), start, self._most)
            if not self._is_large(index, times):
                self._load(index, min(upper, bound or upper))
            elif min(self.uppers) > lower:
                bound = bound or min(upper, *self.uppers)
                self._spill(index, bound)

    @property
    def _most(self) -> ChunkVolume:
        """Load one interval of a binding."""
        return ChunkVolume(self._limits.bytes, max(self._limits.rows, FEW_ROWS))

    def _is_large(self, index: int, times: float) -> bool:
        if self._intent is not None:
            return index in self._intent.large
        return times > LARGE

    def _first(self, index: int) -> Timestamp:
        """From where on a binding is to be read."""
        at, lower = self.cutter.positions[index], self.cutter.upper(index)
        is_begun = at.is_begun and all(reach.frontier is not None for reach in at.reaches)
        return lower if is_begun or lower > at.frontier else MINIMUM_TIME

    def _held(self, index: int) -> Timestamp:
        """The time that the collection must be readable at, to read a binding on."""
        first = self._first(index)
        frontier = self.cutter.positions[index].frontier
        return frontier if first == MINIMUM_TIME else Timestamp(first - 1)

    def _load(self, index: int, upper: Timestamp) -> None:
        """Read a binding up to a time."""
        name, interval = self._prepared.collections[index], (self._first(index), upper)
        updates, errors = self._following.read(name, interval, self._held(index))
        self.cutter.take(index, self._unwritten(index, updates), errors, upper)

    def _spill(self, index: int, upper: Timestamp) -> None:
        """Read a binding up to a time, onto the disk."""
        name, interval = self._prepared.collections[index], (self._first(index), upper)
        rows_in_memory = self._held(index)
        if not self.cutter.is_large(index):
            at, bound = self.cutter.positions[index], self.cutter.bindings[index]
            directory = self._directory / f"{index}-{upper}"
            self._spills[index] = Spill(bound, at, self._kernel, directory)
            updates, errors = self.cutter.drain(index)
            self._spills[index].add(pa.Table.from_batches([updates]), errors)
        spill = self._spills[index]
        for updates, errors in self._following.parts(name, interval, rows_in_memory):
            spill.add(self._unwritten(index, updates), errors)
        spill.decide(upper)
        self.cutter.spill(index, spill)

    def _unwritten(self, index: int, updates: pa.Table) -> pa.Table:
        """Remove changes of key parts that are written already."""
        reaches, bound = self.cutter.positions[index].reaches, self.cutter.bindings[index]
        if not reaches:
            return updates
        batch = flatten([updates], bound.schema)
        hasher = KeyHasher(bound.key_columns, self._kernel)
        hashes = hasher.hashes([batch.column(place) for place in bound.places])
        chosen = unwritten(reaches, hashes, int64(batch.column("time")))
        return pa.Table.from_batches([batch.filter(chosen)])

    def _extended(self) -> Timestamp | None:
        """Up to where all are to be read, if some are on disk.

        If some of those cannot move to there, all of them are read on.
        """
        upper, target = self.cutter.large_upper, Timestamp(min(self.uppers))
        if upper is None or self._read < upper or target <= upper:
            return upper
        for index in filter(self.cutter.is_large, range(len(self.cutter.bindings))):
            self._spill(index, target)
        return target


NO_SIGNS: NDArray[np.int8] = np.empty(0, np.int8)


Diffs = Integers | NDArray[np.int8]


def narrowed(diffs: Integers) -> Diffs:
    """The same in a byte each, as nearly all diffs are: so they wait for the other parts."""
    small = diffs.astype(np.int8)
    return small if (small == diffs).all() else diffs


def counted(hashes: list[Hashes], diffs: list[Diffs]) -> Hashes:
    """The hashes whose diffs do not cancel, sorted. Parts go in; both lists are empty after it.

    There may be as many as a collection has rows, so there is no more than one copy of them.
    """
    every, signs = np.concatenate([NO_KEYS, *hashes]), np.concatenate([NO_SIGNS, *diffs])
    hashes.clear()
    diffs.clear()
    if (signs == 1).all():
        every.sort()
        return every[firsts(every)]
    order = np.argsort(every)
    ordered = every[order]
    starts = np.flatnonzero(firsts(ordered))
    sums = np.add.reduceat(signs[order], starts, dtype=np.int64)
    remaining: Hashes = ordered[starts[sums != 0]]
    return remaining


def firsts(ordered: Hashes) -> Flags:
    """Which hashes are the first of their value."""
    flags = np.ones(len(ordered), np.bool_)
    flags[1:] = ordered[1:] != ordered[:-1]
    return flags
