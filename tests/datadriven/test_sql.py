"""What views make of changes, as scripts; at every time DuckDB says the same.

view
table NAME COLUMN TYPE, ..         one line a table
@TIME NAME +COUNT VALUE, ..        one line an update; -COUNT takes rows away
until TIME                         the last time to look at, if it is beyond all updates
SELECT ..                          the rest is the query
----
@TIME +COUNT VALUE, ..             the view's updates, and its errors as @TIME +COUNT ! TEXT

Each script runs with a micro-batch for every time and with one for all times.
"""

import re
from collections import defaultdict
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streams.testing import Maintained, maintain
from tests.support.datadriven import Case, run, scripts
from tests.support.logical_time import set_time
from tests.support.plan_tables import connect
from tests.support.recursive import naive, rows

UPDATE = re.compile(r"@(\d+) (\w+) ([+-]\d*) (.*)")


def handle(case: Case) -> str:
    assert case.directive == "view", case.directive
    lines = case.input.splitlines()
    tables = dict(line[6:].split(" ", 1) for line in lines if line.startswith("table "))
    updates = [found.groups() for line in lines if (found := UPDATE.fullmatch(line))]
    query = "\n".join(each for each in lines if not each.startswith(("table ", "@", "until ")))
    connection = connect()
    loaded = {name: load(connection, name, tables[name], updates) for name in tables}
    until = [int(line[6:]) for line in lines if line.startswith("until ")]
    times = [int(at) for at, *_ in updates]
    last = max([*until, *times])
    cuts = [[*range(min(times) + 1, last + 2)] if until else None, [last + 1]]
    views = [maintain(query, tables, loaded, each) for each in cuts]
    for view in views:
        for time in range(view.since, last + 1):
            judge(connection, view, query, loaded, time)
    texts = {describe(view) for view in views}
    assert len(texts) == 1, "the cut of time shows in the updates"
    return texts.pop()


def load(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: str,
    updates: list[tuple[str, ...]],
) -> pa.Table:
    connection.execute(f"CREATE TABLE h_{name} ({columns}, _time BIGINT, _diff BIGINT)")
    for at, table, sign, row in updates:
        if table == name:
            diff = sign if len(sign) > 1 else f"{sign}1"
            connection.execute(f"INSERT INTO h_{name} VALUES ({row}, {at}, {diff})")
    return connection.sql(f"FROM h_{name}").to_arrow_table()


def judge(
    connection: duckdb.DuckDBPyConnection,
    view: Maintained,
    query: str,
    tables: dict[str, pa.Table],
    time: int,
) -> None:
    """The view is what DuckDB says, or both fail."""
    for name in tables:
        connection.execute(
            f"CREATE OR REPLACE TABLE {name} AS SELECT * EXCLUDE (_time, _diff, _n) FROM ("
            f"SELECT * REPLACE (0 AS _time, 0 AS _diff), sum(_diff)::BIGINT AS _n "
            f"FROM h_{name} WHERE _time <= {time} GROUP BY ALL), range(_n)"
        )
    set_time(connection, time)
    try:
        want = naive(connection, query)
    except duckdb.Error:
        assert view.errors_at(time), time
        return
    assert not view.errors_at(time), time
    connection.register("got", view.at(time))
    assert rows(connection, "FROM got") == want, time


def describe(view: Maintained) -> str:
    lines: dict[int, list[str]] = defaultdict(list)
    for row in view.updates.to_pylist():
        time, diff = row.pop("_time"), row.pop("_diff")
        shown = ", ".join("NULL" if cell is None else str(cell) for cell in row.values())
        lines[time].append(f"@{time} {diff:+d} {shown}")
    for row in view._errors.to_pylist():
        lines[row["time"]].append(f"@{row['time']} {row['diff']:+d} ! {row['error']}")
    return "\n".join(line for time in sorted(lines) for line in sorted(lines[time]))


@pytest.mark.parametrize("script", scripts("sql"), ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    run(script, handle)
