"""DuckDB with a logical time: `mz_now()` as a macro, a timestamp if some column is one."""

import duckdb

_TIMESTAMPS = (
    "SELECT count(*) FROM duckdb_columns() WHERE data_type LIKE 'TIMESTAMP%' AND NOT internal"
)


def set_time(connection: duckdb.DuckDBPyConnection, time: int) -> None:
    """Make it this time for queries over the connection's tables."""
    row = connection.execute(_TIMESTAMPS).fetchone()
    value = f"make_timestamp({time} * 1000)" if row and row[0] else f"{time}::BIGINT"
    connection.execute(f"CREATE OR REPLACE TEMP MACRO mz_now() AS {value}")
