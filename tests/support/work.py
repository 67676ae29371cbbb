"""How many rows a step looks at: what it reads from state and what it gives to DuckDB."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import pyarrow as pa

from streams.trace.arrange import multiset, ordered
from streams.trace.kernel.kernel import Prepared


@dataclass
class Work:
    """Rows that were looked at."""

    read: int = 0
    evaluated: int = 0

    @property
    def rows(self) -> int:
        return self.read + self.evaluated


@contextmanager
def counted() -> Iterator[Work]:
    """Count the rows that operators take out of runs, and those that statements run over."""
    work = Work()
    read_on, candidates, run = ordered.read_on, multiset.candidates, Prepared.run

    def reading(*arguments):
        imports = read_on(*arguments)
        work.read += len(imports.which)
        return imports

    def taking(*arguments):
        candidates_ = candidates(*arguments)
        work.read += candidates_.num_rows
        return candidates_

    def running(self: Prepared, *tables: pa.Table | pa.RecordBatch) -> pa.Table:
        work.evaluated += sum(table.num_rows for table in tables)
        return run(self, *tables)

    with (
        patch.object(ordered, "read_on", reading),
        patch.object(multiset, "candidates", taking),
        patch.object(Prepared, "run", running),
    ):
        yield work
