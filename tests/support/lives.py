"""Histories in DuckDB, whose rows say from when until when they are there.

A statement over what was there at a time is then planned once, for a parameter `$at`: it is
planned for longer than it runs over the few rows of a test.
"""

from collections.abc import Mapping

import duckdb
import pyarrow as pa

_COUNTED = """
SELECT {own}, _time AS _from, lead(_time, 1, 9223372036854775807) OVER by_time AS _until,
    (sum(_n) OVER by_time)::BIGINT AS _n
FROM (SELECT {own}, _time, sum(_diff)::BIGINT AS _n FROM given GROUP BY ALL)
WINDOW by_time AS (PARTITION BY {own} ORDER BY _time)"""

_AT = "_from <= $at::BIGINT AND _until > $at::BIGINT"


def relations_at(connection: duckdb.DuckDBPyConnection, inputs: Mapping[str, pa.Table]) -> str:
    """Enter histories, with `_time` and `_diff`; returns WITH for the relations at `$at`."""
    bindings = []
    for name, updates in inputs.items():
        own = _enter(connection, name, updates, "_from, _until FROM ({counted}), range(_n)")
        bindings.append(f'"{name}" AS (SELECT {own} FROM "{name} history" WHERE {_AT})')
    return f"WITH {', '.join(bindings)}" if bindings else ""


def counts_at(connection: duckdb.DuckDBPyConnection, name: str, updates: pa.Table) -> str:
    """Enter a history; returns SQL for its rows at `$at` with their counts, which are not 0."""
    own = _enter(connection, name, updates, "_from, _until, _n FROM ({counted}) WHERE _n <> 0")
    return f'SELECT {own}, _n FROM "{name} history" WHERE {_AT}'


def _enter(
    connection: duckdb.DuckDBPyConnection, name: str, updates: pa.Table, kept: str
) -> str:
    own = ", ".join(f'"{c}"' for c in updates.column_names if c not in {"_time", "_diff"})
    counted = _COUNTED.replace("{own}", own)
    connection.register("given", updates)
    connection.execute(
        f'CREATE TEMP TABLE "{name} history" AS SELECT {own}, '
        + kept.replace("{counted}", counted)
    )
    connection.unregister("given")
    return own
