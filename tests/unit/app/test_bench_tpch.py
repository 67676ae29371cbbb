"""`slackwater bench tpch`: its options, its report and its data; never its figures."""

import io
import json
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from streams.bench import command
from streams.bench.figures import write
from streams.bench.tpch import command as tpch_command
from streams.bench.tpch import data, measure
from streams.bench.tpch.command import Pair, chosen, costs, outcome, stages
from streams.bench.tpch.measure import Query, StepCost
from streams.bench.tpch.queries import QUERIES, TABLES, query, read_by
from streams.errors import InvalidUsage
from tests.support.contents import MORE

SCALE = 0.01


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return data.generate(SCALE, tmp_path_factory.mktemp("tpch"))


def measured(number: int, change: float) -> Query:
    changes = tuple(StepCost(2 * change, change) for _ in range(5))
    shares = {"Join #4": 0.75, "Linear #1": 0.25}
    return Query(number, 7, StepCost(10, 5), StepCost(40, 10), changes, (shares, shares))


PAIRS = [Pair(measured(1, 30), measured(1, 20)), Pair(measured(21, 600), measured(21, 600))]


def test_queries_are_chosen_by_number() -> None:
    assert chosen("") == tuple(QUERIES)
    assert chosen("6, 21") == (6, 21)
    for wrong in ("0", "23", "q1", "²"):
        with pytest.raises(typer.BadParameter, match=f"from 1 to 22, actual {wrong}"):
            chosen(f"1,{wrong}")


def test_a_query_reads_the_tables_it_names() -> None:
    assert read_by(QUERIES[6]) == ["lineitem"]
    assert read_by(QUERIES[16]) == ["supplier", "part", "partsupp"]
    assert read_by(QUERIES[22]) == ["customer", "orders"]
    assert "0.0100000000 FROM" in query(11, SCALE)
    assert {table for text in QUERIES.values() for table in read_by(text)} == {*TABLES}


def test_ratios_stand_beside_their_targets(tmp_path: Path) -> None:
    write([outcome(PAIRS)], tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["tpch_q1_hydration_to_duckdb"] == 4
    assert figures["tpch_q1_hydration_to_duckdb_cpu"] == 2
    assert figures["tpch_q1_change_growth"] == 1.5
    assert figures["tpch_hydrations_within_target"] == 0
    assert figures["tpch_change_ms_p50"] == 1200
    assert figures["targets"]["tpch_q21_change_p50_ms"] == {"target": "<= 1,000", "met": False}
    assert figures["targets"]["tpch_q21_change_growth"]["met"]
    assert figures["breakdown"]["tpch"]["q21 changes"]["Join #4"] == 0.75


def test_what_each_query_costs_is_printed_and_what_dominates() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    console.print(costs(PAIRS, SCALE))
    console.print(stages(PAIRS))
    assert "4.0 / 2.0" in out.getvalue()
    assert "1,200 / 600" in out.getvalue()
    assert "Join #4 75%, Linear #1 25%" in out.getvalue()


def test_the_command_measures_the_queries_that_are_asked_for(monkeypatch, tmp_path) -> None:
    calls = []

    def measuring(numbers, scale, console):
        calls.append((numbers, scale))
        return outcome(PAIRS)

    monkeypatch.setattr(tpch_command, "tpch", measuring)
    file = tmp_path / "figures.json"
    arguments = ["tpch", "--queries", "1,21", "--scale", "0.5", "--json", str(file)]
    done = CliRunner().invoke(command.app, arguments)
    assert done.exit_code == 0, done.output
    assert calls == [((1, 21), 0.5)]
    assert json.loads(file.read_text())["tpch_q1_change_growth"] == 1.5
    assert CliRunner().invoke(command.app, ["tpch", "--queries", "23"]).exit_code == 2


def test_without_the_generator_it_says_what_to_install(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(InvalidUsage, match="pip install tpchgen-cli"):
        data.generate(SCALE, tmp_path)


@pytest.mark.parametrize("shuffled", [False, True])
def test_every_batch_changes_what_is_there(
    tables: dict[str, pa.Table],
    shuffled: bool,
) -> None:
    if shuffled:
        rng = np.random.default_rng(3)
        tables = {
            name: table.take(rng.permutation(table.num_rows)) for name, table in tables.items()
        }
    counts = {name: count(table) for name, table in tables.items()}
    for batch in islice(data.changes(tables, TABLES, 500, 1, 1), 3):
        assert set(batch) == set(TABLES) - {"nation", "region"}
        size = sum(table.num_rows for table in batch.values())
        assert 400 < size < 600
        for name, table in batch.items():
            for row in table.to_pylist():
                key = tuple(cell for at, cell in row.items() if at not in MORE)
                counts[name][key] = counts[name].get(key, 0) + row["_diff"]
                assert counts[name][key] in {0, 1}
    orders = {row[0] for row, is_there in counts["orders"].items() if is_there}
    items = {row[0] for row, is_there in counts["lineitem"].items() if is_there}
    assert items == orders, "items go and come with their orders"
    assert len(orders) == tables["orders"].num_rows


def count(table: pa.Table) -> dict[tuple[object, ...], int]:
    return {tuple(row.values()): 1 for row in table.to_pylist()}


def test_a_query_is_measured(tables: dict[str, pa.Table], monkeypatch) -> None:
    monkeypatch.setattr(measure, "STEPS", 2)
    figures = measure.measure(12, SCALE, tables)
    assert figures.rows == 2
    assert len(figures.changes) == 2
    for shares in figures.stages:
        assert sum(shares.values()) == pytest.approx(1)
        assert any(name.startswith("Join #") for name in shares)
