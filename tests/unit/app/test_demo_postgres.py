"""The demo's views in PostgreSQL: what is said of its tables; what is wrong is found."""

import dataclasses
import datetime as dt
import io
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from streams.demo.check import History
from streams.demo.page import Headline, render
from streams.demo.postgres import InPostgres, TableFacts, in_postgres
from streams.demo.totals import compared, judged, lags_ms, time_of
from streams.demo.views import VIEWS
from streams.errors import Determinate, InvalidUsage, SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.trace.kernel.kernel import Kernel, arrow_schema
from tests.support.collections import Collections
from tests.support.postgres import Server

AIRLINE, COUNT = ("airline", "VARCHAR"), "BIGINT"
COLUMNS = {
    "delays_by_airline": (
        AIRLINE,
        ("flights", COUNT),
        ("average_delay", "DOUBLE"),
        ("worst_delay", COUNT),
    ),
    "departures_by_hour": (
        ("origin", "VARCHAR"),
        ("hour", COUNT),
        ("flights", COUNT),
        ("cancelled", "HUGEINT"),
    ),
    "board": (
        ("state", "VARCHAR"),
        ("planes", COUNT),
        ("longest_unchanged", "TIMESTAMP"),
        ("least_delay", COUNT),
        ("worst_delay", COUNT),
    ),
    "fleet_by_maker": (
        ("maker", "VARCHAR"),
        ("state", "VARCHAR"),
        ("planes", COUNT),
        ("oldest", COUNT),
        ("worst_delay", COUNT),
    ),
    "delays_by_visibility": (
        ("visibility", "DECIMAL(9,2)"),
        ("flights", COUNT),
        ("average_delay", "DOUBLE"),
        ("strongest_wind", "DECIMAL(9,2)"),
    ),
    "late_airlines": (AIRLINE, ("average_delay", "DOUBLE"), ("worst_delay", COUNT)),
}
NOON = dt.datetime(2013, 1, 1, 12)  # noqa: DTZ001  as DuckDB has it
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "delays_by_airline": [("Delta", 1, 12.5, 13, 20, 1)],
    "board": [("departed", 2, NOON, None, 3, 20, 1)],
    "fleet_by_maker": [("BOEING", "departed", 2, None, 3, 20, 1)],
    "delays_by_visibility": [(Decimal("9.50"), 1, 0.1, None, 20, 1)],
}
LATER = (21, [("JFK", 6, 2, b"1", 20, 1)])


@pytest.fixture
def collections() -> Iterator[Collections]:
    fixture = Collections()
    for name, columns in COLUMNS.items():
        fixture.create(name, columns)
    yield fixture
    fixture.close()


@pytest.fixture
def tables(collections: Collections, postgres: Server) -> Iterator[InPostgres]:
    ids = {view.name: CollectionId(view.name) for view in VIEWS}
    with in_postgres(collections.client(), postgres.config(), ids) as ward:
        yield ward


def huge(value: int) -> bytes:
    return value.to_bytes(16, "little", signed=True)


def fill(collections: Collections, cancelled: int = 1) -> None:
    """Two flights at 20, of which one is cancelled; two planes on the board."""
    for name in COLUMNS:
        rows = ROWS.get(name, [])
        if name == "departures_by_hour":
            rows = [("JFK", 6, 2, huge(cancelled), 20, 1)]
        collections.append(name, 21, rows)


def nothing() -> None:
    pass


def histories() -> dict[str, History]:
    """The inputs that say what the tables should: flights at 20, of an airline of 15."""
    kernel = Kernel()
    queries = {
        "flights": "SELECT 'DL' AS c0, false AS c1, 20::BIGINT AS time, 1::BIGINT AS diff"
        " UNION ALL SELECT 'DL', true, 20, 1",
        "airlines": "SELECT 'DL' AS c0, 15::BIGINT AS time, 1::BIGINT AS diff",
        "plane_state": "SELECT 'N1' AS c0, 20::BIGINT AS time, 2::BIGINT AS diff",
    }
    names = {"flights": ("carrier", "cancelled"), "airlines": ("carrier",)}
    return {
        name: History(
            name,
            names.get(name, ("tailnum",)),
            kernel.query(sql),
            Timestamp(10),
            Timestamp(21),
        )
        for name, sql in queries.items()
    }


def wrong(tables: InPostgres) -> int:
    return sum(verdict.wrong for verdict in judged(tables.commits(), histories(), Kernel()))


def test_every_commit_is_checked_in_sql_and_is_what_the_inputs_say(
    collections: Collections, tables: InPostgres
) -> None:
    assert tables.seen() == TableFacts()
    assert tables.seen().text == "PostgreSQL: no commit yet"
    with pytest.raises(InvalidUsage, match="expected a commit"):
        assert tables.time
    tables.start()
    fill(collections)
    tables.finish(Timestamp(20), nothing, 60)
    seen = tables.seen()
    assert seen.totals == {"scheduled": 2, "cancelled": 1, "flown": 1, "planes": 2}
    assert seen.rows == {name: int(name != "late_airlines") for name in COLUMNS}
    assert "1 flown = 2 scheduled - 1 cancelled: right at every commit" in seen.text
    assert wrong(tables) == 0
    commits = tables.commits()
    assert commits[-1].time == 20
    assert lags_ms(commits)[0] > 0
    late = dataclasses.replace(commits[-1], totals={**commits[-1].totals, "planes": 3})
    assert [verdict.wrong for verdict in judged([late], histories(), Kernel())] == [1]


def test_totals_that_are_not_in_step_are_found(
    collections: Collections, tables: InPostgres
) -> None:
    """A view that is wrong: nothing between it and the table can tell."""
    tables.start()
    fill(collections, cancelled=0)
    tables.finish(Timestamp(20), nothing, 60)
    seen = tables.seen()
    assert seen.wrong == 1
    assert "WRONG at 1 commits" in seen.text
    assert wrong(tables) == 2, "out of step, and not what the inputs say"


def test_a_table_is_compared_with_its_view(
    collections: Collections, tables: InPostgres, postgres: Server
) -> None:
    tables.start()
    fill(collections)
    tables.finish(Timestamp(20), nothing, 60)
    for name in COLUMNS:
        verdict = compared(
            history(collections, name), tables.time, read(tables, name), Kernel()
        )
        assert (verdict.rows, verdict.wrong) == (int(name != "late_airlines"), 0), name
    tables._database.execute("UPDATE board SET planes = 3")
    verdict = compared(
        history(collections, "board"), tables.time, read(tables, "board"), Kernel()
    )
    assert verdict.wrong == 2


def read(tables: InPostgres, name: str) -> list[Any]:
    return list(tables.rows(name, [column for column, _ in COLUMNS[name]]))


def history(collections: Collections, name: str) -> History:
    schema = arrow_schema([kind for _, kind in COLUMNS[name]])
    rows = ROWS.get(name, [])
    if name == "departures_by_hour":
        rows = [("JFK", 6, 2, huge(1), 20, 1)]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, kind.type) for values, kind in zip(columns, schema, strict=True)]
    names = tuple(column for column, _ in COLUMNS[name])
    updates = pa.table(arrays, schema=schema)
    return History(name, names, updates, Timestamp(10), Timestamp(21))


def test_what_ends_the_materialization_ends_the_demo(
    collections: Collections, tables: InPostgres
) -> None:
    with pytest.raises(Determinate, match="tables do not reach the views after 0 s: starting"):
        tables.finish(Timestamp(20), nothing, 0)
    tables._database.execute("UPDATE slackwater_tasks SET task = 'other'")
    tables.start()
    with pytest.raises(SlackwaterError, match="is kept by task other"):
        tables.finish(Timestamp(20), nothing, 60)


def test_tables_at_two_times_have_none() -> None:
    def text(*uppers: int) -> str:
        pairs = zip(COLUMNS, uppers, strict=True)
        inside = ", ".join(f'"u1;{n}": {{"readThrough": "{at}"}}' for n, at in pairs)
        return f'{{"sources": {{{inside}}}}}'

    assert time_of(text(*[21] * 6)) == 20
    assert time_of(text(*[21] * 5, 22)) is None
    assert time_of("{}") is None


def test_the_page_shows_the_tables() -> None:
    numbers = Headline(1, 2, 1.0, 1.0, 1.0, "now")
    seen = TableFacts(
        commits=3,
        totals={"scheduled": 2000, "cancelled": 1, "flown": 1999, "planes": 2},
        rows={"board": 4},
    )
    page = io.StringIO()
    console = Console(file=page, width=200)
    console.print(render(numbers, [], [], Kernel(), tables=seen))
    assert "3 commits" in page.getvalue()
    assert "1,999 flown = 2,000 scheduled - 1 cancelled: right" in page.getvalue()
    assert set(COLUMNS) == {view.name for view in VIEWS}
