"""Nexmark's windows over event times, each row once when its window ends, against DuckDB."""

from typing import Literal

import numpy as np
import pyarrow as pa

from streams.bench.nexmark.events import COLUMNS, events
from streams.bench.nexmark.queries import ON_CLOSE, QUERIES
from streams.testing import maintain
from tests.support.closing_windows import Rows, expected

COUNT, RATE = 900, 20
"""So many events, and how many of them in a second: some fifty seconds."""
EVERY = {"bid": 3}
"""Of a relation with many rows one of so many is read: the model looks at each time."""


def history(rows: pa.Table, chance: np.random.Generator) -> pa.Table:
    """Each row at its event time, one in ten up to fifteen seconds late."""
    times = rows["dateTime"].cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_numpy()
    late = chance.random(len(times)) < 0.1
    times = times + late * chance.integers(0, 15_000, len(times))
    updates = rows.append_column("_time", pa.array(times))
    return updates.append_column("_diff", pa.array(np.ones(len(times), np.int64)))


def check(name: str, engine: Literal["local", "spark"]) -> None:
    """Compare every row of a query with EMIT ON CLOSE, and its time."""
    chance, generated = np.random.default_rng(7), events(COUNT, 7, RATE)
    inputs = {
        table: history(generated.of(table)[:: EVERY.get(table, 1)], chance) for table in COLUMNS
    }
    read = {table: rows for table, rows in inputs.items() if f"FROM {table}" in QUERIES[name]}
    times = np.unique(np.concatenate([rows["_time"].to_numpy() for rows in read.values()]))
    upper = int(times[-1]) + 25_000
    cuts = [int(times[0]) + 1, int(times[len(times) // 2]), upper]
    text = f"{QUERIES[name]} EMIT ON CLOSE ({ON_CLOSE[name]})"
    view = maintain(text, COLUMNS, read, cuts, engine=engine)
    actual = Rows()
    for row in view.updates.to_pylist():
        *values, diff = row.values()
        actual[tuple(values)] += diff
    expected_rows = expected(QUERIES[name], ON_CLOSE[name], read, view.since, upper)
    assert actual == expected_rows
    assert len({row[-1] for row in expected_rows}) > 2
