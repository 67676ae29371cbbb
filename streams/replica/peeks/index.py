"""An index in memory: the updates of a collection, sorted by the hash of a key. Pure.

It is a value: a reader is not disturbed by later updates. Updates lie in runs, each
sorted by hash; a run is merged with the one before it as soon as it is half as long, and a
merge moves times up to since and sums what is equal. So n updates are moved O(n log n) times,
and a look-up searches O(log n) runs.

    contents at t  =  the sum of the updates with time <= t   for since <= t < upper
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from streams.operators.context import ERRORS
from streams.progress import Antichain
from streams.storage.read.reader import Loaded
from streams.trace.columns import Ints, Words
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import advance, consolidate, flatten, hash_columns


def _no_errors() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=ERRORS)


@dataclass(frozen=True, slots=True)
class IndexRun:
    """Updates (c0 .. cn, time, diff) in the order of the hashes of their keys."""

    hashes: Words
    rows: pa.RecordBatch

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.hashes)

    def find(self, hashes: Words) -> pa.RecordBatch:
        """Return the updates that have one of these hashes."""
        lows = np.searchsorted(self.hashes, hashes, "left")
        counts = np.searchsorted(self.hashes, hashes, "right") - lows
        before = np.cumsum(counts) - counts
        places: Ints = np.repeat(lows - before, counts) + np.arange(counts.sum())
        return self.rows.take(pa.array(places))


@dataclass(frozen=True, slots=True)
class IndexContents:
    """The updates of a collection by `keys`, positions of its columns of DuckDB `types`.

    `errors` are the collection's (error, time, diff).
    """

    keys: tuple[int, ...]
    types: tuple[str, ...]
    since: int
    upper: Antichain
    runs: tuple[IndexRun, ...] = ()
    errors: pa.RecordBatch = field(default_factory=_no_errors)

    @property
    def num_rows(self) -> int:
        """Return the number of its updates."""
        return sum(int(run.rows.num_rows) for run in self.runs)

    @property
    def nbytes(self) -> int:
        """Return the bytes of its rows and hashes."""
        rows = sum(run.rows.nbytes + run.hashes.nbytes for run in self.runs)
        return int(rows + self.errors.nbytes)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of its updates."""
        return arrow_schema(self.types)

    def add(
        self,
        updates: pa.Table,
        errors: pa.Table,
        since: int,
        upper: Antichain,
        kernel: Kernel,
    ) -> "IndexContents":
        """Return the contents with the updates of [self.upper, upper), readable from `since`.

        Errors: DiffOverflow.
        """
        wrong = self.errors
        if errors.num_rows or wrong.num_rows:
            wrong = consolidate(advance(flatten([wrong, errors], ERRORS), since), kernel)
        runs = self.runs
        if updates.num_rows:
            fresh = self._run(flatten([updates], self.schema), since, kernel)
            runs = self._merged((*runs, fresh), since, kernel)
        return replace(self, since=since, upper=upper, runs=runs, errors=wrong)

    def whole(self, kernel: Kernel) -> "IndexContents":
        """Return the same contents as one run, which is as small as it can be."""
        rows = flatten([run.rows for run in self.runs], self.schema)
        return replace(self, runs=(self._run(rows, self.since, kernel),))

    def find(self, keys: pa.RecordBatch, kernel: Kernel) -> Loaded:
        """Return the updates whose keys may be among these, and the errors.

        All that are among them are there; others are if their hashes are equal. Shape: `keys`
        has the key's columns in order, of their types.
        """
        hashes = np.unique(hash_columns(keys, range(keys.num_columns), kernel))
        parts = [run.find(hashes) for run in self.runs]
        return self._loaded(parts)

    def everything(self) -> Loaded:
        """Return all updates and errors."""
        return self._loaded([run.rows for run in self.runs])

    def _loaded(self, parts: Sequence[pa.RecordBatch]) -> Loaded:
        updates = pa.Table.from_batches(parts, self.schema)
        return updates, pa.Table.from_batches([self.errors], ERRORS)

    def _merged(
        self, runs: tuple[IndexRun, ...], since: int, kernel: Kernel
    ) -> tuple[IndexRun, ...]:
        while len(runs) > 1 and 2 * len(runs[-1]) >= len(runs[-2]):
            rows = flatten([runs[-2].rows, runs[-1].rows], self.schema)
            runs = (*runs[:-2], self._run(rows, since, kernel))
        return runs

    def _run(self, rows: pa.RecordBatch, since: int, kernel: Kernel) -> IndexRun:
        summed = consolidate(advance(rows, since), kernel)
        hashes = hash_columns(summed, self.keys, kernel)
        order = np.argsort(hashes, kind="stable")
        return IndexRun(hashes[order], summed.take(pa.array(order)))
