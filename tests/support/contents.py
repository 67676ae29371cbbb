"""The judge of a view over tables of updates: at each time, DuckDB over what they hold then.

Each row comes once and goes at most once, so that a table at a time is a filter over the whole
of its history, which DuckDB reads once for all queries.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa

from streams.testing import Maintained, maintain

MORE = ("_time", "_diff")


class Contents:
    """Tables with their history, in DuckDB under their names: the contents at a time."""

    def __init__(self, updates: Mapping[str, pa.Table]) -> None:
        self.updates = updates
        self.upper = 1 + max(table["_time"].to_numpy().max() for table in updates.values())
        self.connection = duckdb.connect()
        for setting in (
            "integer_division = true",
            "default_null_order = 'postgres'",
            "TimeZone = 'UTC'",
            "threads = 1",
        ):
            self.connection.execute(f"SET {setting}")
        self.definitions = {name: self._load(name, table) for name, table in updates.items()}

    def _load(self, name: str, table: pa.Table) -> str:
        columns = [name for name in table.column_names if name not in MORE]
        self.connection.register("u", table)
        self.connection.execute(
            f"CREATE TABLE {name}_ AS SELECT {', '.join(columns)}, "
            "min(_time) AS _from, max(_time) FILTER (_diff < 0) AS _until "
            "FROM u GROUP BY ALL"
        )
        self.connection.execute(
            f"CREATE VIEW {name} AS SELECT * EXCLUDE (_from, _until) FROM {name}_ WHERE "
            "_from <= getvariable('t') AND (_until IS NULL OR _until > getvariable('t'))"
        )
        described = self.connection.execute(f"DESCRIBE {name}").fetchall()
        return ", ".join(f"{column} {kind}" for column, kind, *_ in described)

    def maintain(
        self,
        query: str,
        read: Sequence[str],
        chance: random.Random,
        engine: Literal["local", "spark"] = "local",
    ) -> Maintained:
        """The view, in micro-batches cut anywhere; three on Spark, where each is slow."""
        many = 2 if engine == "spark" else chance.randrange(1, self.upper - 1)
        cuts = chance.sample(range(1, self.upper), many)
        return maintain(
            query,
            {name: self.definitions[name] for name in read},
            {name: self.updates[name] for name in read},
            [*sorted(cuts), int(self.upper)],
            engine,
            buckets=chance.randint(1, 3),
        )

    def check(self, view: Maintained, query: str) -> int:
        """Compare at every time; how many rows were there in all.

        Errors: AssertionError with what was there too much, and what was lacking.
        """
        rows = 0
        assert view.upper == self.upper
        for time in range(view.since, view.upper):
            assert not view.errors_at(time)
            self.connection.execute(f"SET VARIABLE t = {time}")
            actual = view.at(time)
            self.connection.register("got", actual)
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE want AS {query}")
            have, want = (f"SELECT {_pinned(view)} FROM {name}" for name in ("got", "want"))
            extra = self.connection.sql(f"{have} EXCEPT ALL {want}").fetchall()
            lacking = self.connection.sql(f"{want} EXCEPT ALL {have}").fetchall()
            assert not extra + lacking, (time, "extra", extra[:3], "lacking", lacking[:3])
            rows += actual.num_rows
        return rows


def _pinned(view: Maintained) -> str:
    """The columns; of a DOUBLE what DuckDB, which rounds on the way, is sure of."""
    pinned = {"DOUBLE": "format('{{:.12g}}', \"{0}\")", "FLOAT": "format('{{:.5g}}', \"{0}\")"}
    return ", ".join(
        pinned.get(column.type, '"{0}"').format(column.name) for column in view.columns
    )


def inserted(table: pa.Table, times: int, rng: np.random.Generator) -> pa.Table:
    """The rows as updates: they come in any order, at any of so many times."""
    shuffled = table.take(pa.array(rng.permutation(table.num_rows)))
    at = rng.integers(0, times, table.num_rows)
    return shuffled.append_column("_time", pa.array(at)).append_column(
        "_diff", pa.array(np.ones(len(at), np.int64))
    )
