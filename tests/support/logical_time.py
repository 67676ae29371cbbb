"""DuckDB with a logical time: `mz_now()` as a macro, a timestamp if some column is one."""

import duckdb

_TIMESTAMPS = (
    "SELECT count(*) FROM duckdb_columns() WHERE data_type LIKE 'TIMESTAMP%' AND NOT internal"
)


def timestamp_of(connection: duckdb.DuckDBPyConnection, time: str) -> str:
    """SQL for what `mz_now()` is at a time, given in SQL, over the connection's tables."""
    ((timestamps,),) = connection.execute(_TIMESTAMPS).fetchall()
    return f"make_timestamp({time} * 1000)" if timestamps else f"{time}::BIGINT"


def set_time(connection: duckdb.DuckDBPyConnection, time: int) -> None:
    """Make it this time for queries over the connection's tables."""
    value = timestamp_of(connection, str(time))
    connection.execute(f"CREATE OR REPLACE TEMP MACRO mz_now() AS {value}")
