"""The windows of the page about event time, as it has them, against DuckDB at every event time.

Rows come at their event times, and late ones afterwards, at the watermark of that moment.
"""

import random
import re
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streams.plan.sql.emit import split
from streams.plan.sql.statements import CreateMaterializedView, parse
from streams.testing import maintain
from tests.support.closing_windows import expected as closing

PAGE = Path(__file__).parents[3] / "streams/docs/EVENT_TIME.md"
COLUMNS = "id BIGINT, page VARCHAR, ts TIMESTAMP"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("page", pa.string()),
        ("ts", pa.timestamp("us")),
        ("_time", pa.int64()),
        ("_diff", pa.int64()),
    ]
)
MINUTE_MS = 60_000
END_MS = 60 * MINUTE_MS


def windows(heading: str) -> dict[str, str]:
    """The queries of a section of the page, with views in them replaced by theirs."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    queries: dict[str, str] = {}
    for statement in (statement for block in blocks for statement in parse(block)):
        assert isinstance(statement, CreateMaterializedView)
        query = statement.query
        for name, inner in queries.items():
            query = re.sub(rf"\bFROM {name}\b", f"FROM ({inner}) AS {name}", query)
        queries[statement.name] = query
    return queries


WINDOWS = windows("Windows")
FINAL = windows("Emit on close")
DAY = "WHERE mz_now() < ts + INTERVAL '1 day'"
"""The filter by which the page bounds the state of sessions."""


def arrivals(chance: random.Random, late_share: float, count: int = 40) -> pa.Table:
    """Clicks in bursts; a late one happens at a time after its event time.

    A few clicks are taken back later: what an UPSERT source makes of a correction.
    """
    rows = []
    bursts = [chance.randrange(END_MS) for _ in range(6)]
    for number in range(count):
        event = min(END_MS - 1, chance.choice(bursts) + chance.randrange(3 * MINUTE_MS))
        is_late = chance.random() < late_share
        time = chance.randrange(event, END_MS) if is_late else event
        row = (number, chance.choice("ab"), event * 1000)
        rows.append((*row, time, 1))
        if late_share and chance.random() < 0.1:
            rows.append((*row, chance.randrange(time, END_MS), -1))
    columns = zip(*sorted(rows, key=lambda row: row[3]), strict=True)
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.table(arrays, schema=SCHEMA)


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def expected(
    oracle: duckdb.DuckDBPyConnection, query: str, clicks: pa.Table, time: int
) -> Counter[tuple[object, ...]]:
    """What DuckDB answers at a time."""
    oracle.register("updates", clicks)
    oracle.execute(
        "CREATE OR REPLACE TABLE clicks AS SELECT id, page, ts FROM"
        f" (SELECT id, page, ts, sum(_diff) AS n FROM updates WHERE _time <= {time}"
        " GROUP BY ALL) WHERE n = 1"
    )
    now = f"make_timestamp({time * 1000})"
    return Counter(oracle.execute(query.replace("mz_now()", now)).fetchall())


def rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_the_page_has_all_kinds() -> None:
    assert set(WINDOWS) == {"tumbling", "hopping", "moving", "sessions", "closed"}
    by_distance = {"next_clicks", "moving_final"}
    assert set(FINAL) == {"per_minute_final", "hops_final", "sessions_final"} | by_distance


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_exact_at_every_event_time_under_late_rows(
    name: str, seed: int, oracle: duckdb.DuckDBPyConnection
) -> None:
    chance = random.Random(f"{name} {seed}")
    clicks = arrivals(chance, late_share=0.3)
    times = sorted(set(clicks["_time"].to_pylist()))
    cuts = [*sorted(chance.sample(times[1:], 5)), END_MS + 2 * MINUTE_MS]
    view = maintain(WINDOWS[name], {"clicks": COLUMNS}, {"clicks": clicks}, cuts)
    checked = {*times, *view.updates["_time"].to_pylist(), view.upper - 1}
    for time in sorted(checked):
        assert rows(view.at(time)) == expected(oracle, WINDOWS[name], clicks, time), time
    assert len(checked) > len(times) or name != "closed"


def test_a_window_without_late_rows_appears_once_when_it_has_ended() -> None:
    clicks = arrivals(random.Random(5), late_share=0)
    cuts = [20 * MINUTE_MS, END_MS + 2 * MINUTE_MS]
    view = maintain(WINDOWS["closed"], {"clicks": COLUMNS}, {"clicks": clicks}, cuts)
    assert set(view.updates["_diff"].to_pylist()) == {1}
    starts = view.updates["window_start"].cast(pa.timestamp("ms")).cast(pa.int64())
    ends = [start + MINUTE_MS for start in starts.to_pylist()]
    assert ends
    assert view.updates["_time"].to_pylist() == ends


@pytest.mark.parametrize("name", FINAL)
def test_a_window_appears_once_when_it_ends_whatever_comes_later(name: str) -> None:
    """Sessions are shorter than a day here, so the filter that forgets them is none."""
    clicks = arrivals(random.Random(name), late_share=0.3)
    times = sorted(set(clicks["_time"].to_pylist()))
    upper = END_MS + 15 * MINUTE_MS
    view = maintain(
        FINAL[name], {"clicks": COLUMNS}, {"clicks": clicks}, [*times[3:30:9], upper]
    )
    assert set(view.updates["_diff"].to_pylist()) == {1}
    query, clause = split(FINAL[name])
    assert clause is not None
    end = clause.expression or "window_end"
    wanted_rows = closing(query.replace(DAY, ""), end, {"clicks": clicks}, view.since, upper)
    assert rows(view.updates.drop_columns("_diff")) == wanted_rows
    assert len(wanted_rows) > 5


def test_a_row_at_the_end_of_a_session_is_of_the_next_one() -> None:
    minutes = [0, 4, 14, 20, 30, 41]
    clicks = pa.table(
        {
            "id": pa.array(range(len(minutes)), pa.int64()),
            "page": ["a"] * len(minutes),
            "ts": pa.array([at * MINUTE_MS * 1000 for at in minutes], pa.timestamp("us")),
            "_time": pa.array([at * MINUTE_MS for at in minutes], pa.int64()),
            "_diff": pa.array([1] * len(minutes), pa.int64()),
        },
        schema=SCHEMA,
    )
    view = maintain(
        FINAL["sessions_final"], {"clicks": COLUMNS}, {"clicks": clicks}, [2 * END_MS]
    )
    counts = view.updates.sort_by("first_click")["clicks"].to_pylist()
    assert counts == [2, 2, 1, 1]
    assert set(view.updates["_diff"].to_pylist()) == {1}
