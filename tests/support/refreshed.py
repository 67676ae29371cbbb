"""TPC-H's data with a life: its rows come in any order, then orders come and go.

Source: TPC Benchmark H, revision 3.0.1, chapter 2.5 (the refresh functions).
"""

from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.bench.tpch import data
from streams.bench.tpch.queries import TABLES
from tests.support.contents import Contents, inserted

INSERTS, BATCHES = 3, 4


def refreshed(scale: float, directory: Path, size: int) -> Contents:
    """All tables: rows come at the first three times, then four batches of `size` changes."""
    tables = data.generate(scale, directory)
    rng = np.random.default_rng(7)
    parts = {name: [inserted(table, INSERTS, rng)] for name, table in tables.items()}
    for batch in islice(data.changes(tables, TABLES, size, 7, INSERTS), BATCHES):
        for name, rows in batch.items():
            parts[name].append(rows)
    return Contents({name: pa.concat_tables(tables) for name, tables in parts.items()})
