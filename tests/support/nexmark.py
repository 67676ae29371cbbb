"""Nexmark's relations as they come, change and go, and its queries asked of them."""

from typing import Literal

import numpy as np
import pyarrow as pa

from streams.bench.nexmark.events import COLUMNS, events
from streams.bench.nexmark.queries import QUERIES, SIDE_INPUT, SIDE_KEYS
from streams.testing import Maintained, maintain
from tests.support.plan_tables import answer, connect

TIMES = 6
DEFINITIONS = COLUMNS | SIDE_INPUT


def tables(count: int, seed: int, rate: float = 8) -> dict[str, pa.Table]:
    """A history of each relation: rows in any order, twice now and then, some taken back."""
    generated = events(count, seed, rate)
    rng = np.random.default_rng(seed)
    keys = np.arange(SIDE_KEYS)
    side = pa.table({"key": keys, "value": [f"v{key}" for key in keys]})
    inputs = {name: generated.of(name) for name in COLUMNS} | {"side_input": side}
    return {name: history(table, rng) for name, table in inputs.items()}


def history(rows: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Updates in no order: rows come once or twice, a third of them go again."""
    born = rng.integers(0, TIMES - 1, rows.num_rows)
    diff = 1 + (rng.random(rows.num_rows) < 0.1)
    deleted = np.flatnonzero(rng.random(rows.num_rows) < 0.35)
    places = np.concatenate((np.arange(rows.num_rows), deleted))
    times = np.concatenate((born, born[deleted] + 1 + rng.integers(0, TIMES - 1, len(deleted))))
    order = rng.permutation(len(places))
    updates = rows.take(pa.array(places[order]))
    updates = updates.append_column("_time", pa.array(times[order]))
    return updates.append_column(
        "_diff", pa.array(np.concatenate((diff, -diff[deleted]))[order].astype(np.int64))
    )


def view(
    name: str,
    updates: dict[str, pa.Table],
    engine: Literal["local", "spark"] = "local",
    frontiers: list[int] | None = None,
) -> Maintained:
    return maintain(QUERIES[name], DEFINITIONS, updates, frontiers, engine, buckets=3)


def compare(name: str, maintained: Maintained, updates: dict[str, pa.Table]) -> int:
    """DuckDB's answers are the view's at every time; how many rows that was."""
    connection, seen = connect(), 0
    for table, definition in DEFINITIONS.items():
        connection.register("updates", updates[table])
        columns = ", ".join(part.split()[0] for part in definition.split(", "))
        connection.execute(
            f"CREATE TABLE {table}_all ({definition}, _time BIGINT, _diff BIGINT)"
        )
        connection.execute(f"INSERT INTO {table}_all FROM updates")
        connection.execute(
            f"CREATE VIEW {table} AS SELECT {columns} FROM (SELECT {columns},"
            f" unnest(range(sum(_diff)::BIGINT)) FROM {table}_all"
            f" WHERE _time <= getvariable('now') GROUP BY {columns})"
        )
    for time in range(maintained.since, maintained.upper):
        connection.execute(f"SET VARIABLE now = {time}")
        want = answer(connection, QUERIES[name])
        assert not maintained.errors_at(time), (name, time)
        connection.register("got", maintained.at(time))
        casts = [
            f'CAST("{c.name}" AS {c.type}) AS c{i}' for i, c in enumerate(maintained.columns)
        ]
        actual = answer(connection, f"SELECT {', '.join(casts)} FROM got")
        assert actual == want, (name, time)
        seen += len(actual[1])
    return seen
