"""Prunes the reads of a SELECT: only relevant chunks and columns, within the memory limit."""

from dataclasses import dataclass

import pyarrow as pa

from streams.adapter.workers.limits import too_much
from streams.kafka.log import ChunkRef
from streams.plan.analyses.column_bounds import ColumnComparison
from streams.storage.read.options import Operator, overlaps
from streams.trace.kernel.arrow import is_plain


@dataclass(slots=True)
class Allowance:
    """The number of bytes that one SELECT may still load."""

    most: int
    taken: int = 0

    def expect(self, size: int) -> None:
        """Say that so many bytes are to be fetched. Errors: InvalidStatement."""
        if self.taken + size > self.most:
            raise too_much(
                f"expected at most {self.most >> 20} MiB of rows at a time, actual more"
            )

    def take(self, size: int) -> None:
        """Say that so many bytes are in memory. Errors: InvalidStatement."""
        self.expect(size)
        self.taken += size


@dataclass(slots=True)
class Wanted:
    """The parts of an import that a SELECT reads (`storage.read.ChunkSelection`).

    `columns` are positions; each row that counts meets `where`, rows that do not may come too.
    """

    columns: frozenset[int]
    allowance: Allowance
    where: tuple[ColumnComparison, ...] = ()
    taken: int = 0

    def may_match(self, chunk: ChunkRef) -> bool:
        """Whether the chunk may hold a row that counts.

        Each load asks it of all chunks first, which frees what an earlier try took.
        """
        self.allowance.taken -= self.taken
        self.taken = 0
        return not chunk.ranges or all(
            overlaps(
                chunk.ranges[comparison.column], Operator(comparison.operator), comparison.value
            )
            for comparison in self.where
        )

    def apply(self, updates: pa.Table) -> pa.Table:
        """The updates, with NULLs in place of columns that are not read.

        Errors: InvalidStatement when all that came so far takes too many bytes.
        """
        for place in range(updates.num_columns - 2):
            column = updates.schema.field(place)
            if place not in self.columns and is_plain(column.type):
                nothing = pa.nulls(updates.num_rows, column.type)
                updates = updates.set_column(
                    place, column.with_nullable(nullable=True), nothing
                )
        self.allowance.take(updates.nbytes)
        self.taken += updates.nbytes
        return updates
