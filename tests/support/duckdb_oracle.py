"""The judge of a maintained view: DuckDB's answer over its inputs' contents, time by time."""

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from streams.ids import CollectionId, Timestamp
from streams.plan.compile import Relation
from streams.storage.client.shards import Shards
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import arrow_schema
from tests.support.lives import counts_at, relations_at
from tests.support.logical_time import timestamp_of


def updates(shards: Shards, relation: Relation) -> tuple[pa.Table, pa.Table]:
    """Everything a collection ever said up to its upper, and its errors.

    Shape: the user's names, then _time and _diff.
    """
    state = shards.state(CollectionId(relation.id))
    pieces = read.pieces(state, Timestamp(0), state.upper.time)
    loaded, errors = read.load(shards.chunks, shards.data_topic(relation.id), pieces)
    if loaded.num_columns == 2:
        loaded = arrow_schema([column.type for column in relation.columns]).empty_table()
    names = [column.name for column in relation.columns]
    return loaded.rename_columns([*names, "_time", "_diff"]), errors


def judge(
    query: str,
    actual: pa.Table,
    inputs: Mapping[str, pa.Table],
    bounds: tuple[int, int],
    times: int = 40,
) -> int:
    """Compare at many times of [lower, upper), all those of a change if they are few enough.

    Returns how many times were tried. Errors: AssertionError with what was there too much, and
    what was lacking.
    """
    con = duckdb.connect()
    con.execute("SET integer_division=true; SET default_null_order='postgres'")
    con.execute("SET TimeZone='UTC'; SET threads=1")
    moments = {bounds[0], bounds[1] - 1}
    for table in [actual, *inputs.values()]:
        moments.update(t for t in table["_time"].to_pylist() if bounds[0] <= t < bounds[1])
    ordered = sorted(moments)
    picked = sorted({*ordered[:: max(1, len(ordered) // times)], ordered[-1]})
    relations = relations_at(con, inputs)
    text = query.replace("mz_now()", timestamp_of(con, "$at::BIGINT"))
    names = ", ".join(f'"{name}"' for name in actual.column_names[:-2])
    con.execute(  # once: a query is planned for longer than it runs over so few rows
        f"PREPARE differing AS {relations} SELECT {names}, sum(_n)::BIGINT AS _n FROM ("
        f" {counts_at(con, 'the view', actual)} UNION ALL"
        f" SELECT *, -count(*)::BIGINT FROM ({text}) GROUP BY ALL"
        ") GROUP BY ALL HAVING sum(_n) <> 0"
    )
    for time_ in picked:
        differing = con.execute(f"EXECUTE differing(at := {time_})").fetchall()
        extra = [row for row in differing if row[-1] > 0]
        lacking = [row for row in differing if row[-1] < 0]
        assert not differing, (time_, "extra", extra[:9], "lacking", lacking[:9])
    return len(picked)


def net(errors: pa.Table) -> dict[str, int]:
    """The errors that are left in the end."""
    counts: dict[str, int] = {}
    for row in errors.to_pylist():
        counts[row["error"]] = counts.get(row["error"], 0) + row["diff"]
    return {text: count for text, count in counts.items() if count}
