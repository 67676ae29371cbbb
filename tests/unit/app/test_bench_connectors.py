"""`slackwater bench connectors`: the rows in their three forms, and a short run."""

import json
from typing import Any

import pytest
import typer
from rich.console import Console

from streams.bench.connectors import command
from streams.bench.connectors.rows import ORDERS, orders


def test_documents_tuples_and_columns_are_the_same_rows() -> None:
    rows = orders(5, 20, 0.5)
    names = [each.name for each in ORDERS.columns]
    columns = [each.objects() for each in (*rows.keys, *rows.values)]
    documents = [json.loads(each) for each in rows.documents]
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
        "sqlite_changes_rows_per_s",
        "sqlite_changes_rows_per_cpu_s",
    ]
    assert set(outcome.breakdown) == {"sqlite backfill", "sqlite changes"}
    assert outcome.note.startswith("most is taken by: sqlite backfill: ")


def test_a_database_that_there_is_not_is_refused() -> None:
    assert command.chosen("") == command.DATABASES
    with pytest.raises(typer.BadParameter, match="expected some of sqlite, duckdb, postgres"):
        command.chosen("oracle")
