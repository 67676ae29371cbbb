"""`slackwater bench connectors`: the rows in their three forms, and a short run."""

import json
from typing import Any

import pytest
import typer
from rich.console import Console

from streams.bench.connectors import command
from streams.bench.connectors.measure import Resident
from streams.bench.connectors.rows import ORDERS, orders
from streams.bench.connectors.steady import steady
from streams.bench.figures import Outcome
from tests.support.postgres import Server


def test_documents_tuples_and_columns_are_the_same_rows() -> None:
    rows = orders(5, 20, 0.5)
    names = [column.name for column in ORDERS.columns]
    columns = [column.objects() for column in (*rows.keys, *rows.values)]
    documents = [json.loads(document) for document in rows.documents]
    assert documents == [
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    ]
    assert [row[:-1] for row in rows.tuples()] == list(zip(*columns, strict=True))
    assert names[len(ORDERS.keys) :] == sorted(names[len(ORDERS.keys) :])


def test_a_short_run_says_what_dominates(monkeypatch: Any) -> None:
    monkeypatch.setattr(command, "BATCH", 400)
    outcome = command.connectors(["sqlite"], 1000, Console(quiet=True))
    assert [figure.name for figure in outcome.figures] == [
        "sqlite_backfill_rows_per_s",
        "sqlite_backfill_rows_per_cpu_s",
        "sqlite_backfill_memory_growth",
        "sqlite_changes_rows_per_s",
        "sqlite_changes_rows_per_cpu_s",
        "sqlite_changes_memory_growth",
    ]
    assert set(outcome.breakdown) == {"sqlite backfill", "sqlite changes"}
    assert outcome.note.startswith("most is taken by: sqlite backfill: ")


def test_steady_changes_are_all_committed_and_have_a_lag(postgres: Server) -> None:
    config = postgres.config()
    seen = steady(config, 0.5, 1000, live=500)
    assert (seen.changes, len(seen.lags)) == (500, 5)
    assert 0 < seen.lag(0.5) <= seen.lag(0.99)
    table = postgres.query(
        config["database"], "SELECT count(*), sum(amount - id * 0.25) FROM steady"
    )
    assert table == [(500, 500.0)]
    outcome = command.with_steady(Outcome("connectors", ()), seen, 1000)
    targets = {figure.name: figure.limit for figure in outcome.figures}
    assert targets["postgres_steady_changes_per_s"] == 950
    assert {"fill", "waiting", "the feeder"} < outcome.breakdown["postgres steady"].keys()
    assert outcome.note.startswith("most is taken by: postgres steady: ")


def test_memory_is_looked_at_in_each_tenth() -> None:
    lines: list[str] = []
    resident = Resident(100, lines.append)
    for count in range(5, 101, 5):
        resident.look(count)
    assert len(lines) == 10
    assert lines[0].startswith("10 rows, ")
    assert abs(resident.growth_mb) < 100


def test_a_database_that_there_is_not_is_refused() -> None:
    assert command.chosen("") == command.DATABASES
    with pytest.raises(typer.BadParameter, match="expected some of sqlite, duckdb, postgres"):
        command.chosen("oracle")
