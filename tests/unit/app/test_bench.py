"""The benchmarks' options and reports; never their figures."""

import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from streams.app.error_output import FAILED
from streams.bench import change, command, flow, sources, state, windows
from streams.bench.figures import Figure, Outcome, at_least, at_most, show, write
from streams.bench.storage import limits
from streams.bench.storage.command import PARTS, chosen
from streams.bench.storage.rig import cpu
from streams.bench.storage.rows import DESCRIPTION, rows
from streams.ids import Topic
from streams.plan.sql.statements import CreateSource, parse

OUTCOME = Outcome(
    "append",
    (at_most("quick_ms", 5.0, "ms", 10), at_least("many_a_second", 50, "/s", 200)),
    {"append": {"whole": 5.0}},
    note="what dominates",
    of="median of an append, ms",
)


def test_parts_are_chosen_by_name_and_kept_in_order() -> None:
    assert chosen("") == tuple(PARTS)
    assert chosen("bulk, append") == ("bulk", "append")
    with pytest.raises(typer.BadParameter, match=r"expected some of create, .*actual speed"):
        chosen("append,speed")


def test_a_figure_stands_beside_its_target_and_its_ratio(tmp_path: Path) -> None:
    write([OUTCOME, Outcome("other", (Figure("bare", 7),))], tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["quick_ms"], figures["quick_ms_target"]) == (5, 10)
    assert figures["quick_ms_ratio"] == 0.5
    assert figures["many_a_second_ratio"] == 0.25
    assert figures["bare"] == 7
    assert "bare_target" not in figures
    assert figures["targets"]["quick_ms"] == {"target": "<= 10", "met": True}
    assert figures["targets"]["many_a_second"] == {"target": ">= 200", "met": False}
    assert figures["breakdown"] == {"append": {"append": {"whole": 5.0}}}


def test_what_dominates_is_printed() -> None:
    out = io.StringIO()
    show([OUTCOME], Console(file=out, width=120))
    assert "what dominates" in out.getvalue()
    assert re.search(r"an append, ms", out.getvalue())  # the title of a narrow table is broken
    assert re.search(r"whole.*\n.*\n.*5\.00", out.getvalue())


def test_of_all_benchmarks_one_that_fails_costs_no_other(monkeypatch, tmp_path: Path) -> None:
    def broken(*_: object) -> Outcome:
        raise ZeroDivisionError

    def one(*_: object) -> Outcome:
        return OUTCOME

    def many(*_: object) -> list[Outcome]:
        return [replace(OUTCOME, figures=(Figure("late_ms", 7),))]

    for module, name in ((flow, "throughput"), (state, "memory")):
        monkeypatch.setattr(module, name, one)
    for name in ("freshness", "dataflows"):
        monkeypatch.setattr(flow, name, one)
    for name in ("sources", "partitions", "change", "windows", "cluster", "revisions"):
        monkeypatch.setattr(command, f"measure_{name}", one)
    monkeypatch.setattr(command, "measure_footprint", broken)
    for name in ("compute", "storage"):
        monkeypatch.setattr(command, f"measure_{name}", many)
    file = tmp_path / "figures.json"
    done = CliRunner().invoke(command.app, ["all", "--json", str(file)])
    assert done.exit_code == FAILED
    assert "13 of 13: storage" in done.stderr
    assert "failed: footprint" in done.stderr
    assert json.loads(file.read_text())["late_ms"] == 7
    monkeypatch.setattr(command, "measure_footprint", one)
    assert CliRunner().invoke(command.app, ["all"]).exit_code == 0


def test_the_command_runs_the_parts_that_are_asked_for(monkeypatch, tmp_path: Path) -> None:
    calls = []

    def measured(names, scale, console, collections):
        calls.append((names, scale, collections))
        return [OUTCOME]

    monkeypatch.setattr(command, "measure_storage", measured)
    file = tmp_path / "figures.json"
    arguments = ["storage", "--only", "append", "--scale", "0.5", "--json", str(file)]
    arguments += ["--collections", "7"]
    done = CliRunner().invoke(command.app, arguments)
    assert done.exit_code == 0, done.output
    assert calls == [(("append",), 0.5, 7)]
    assert json.loads(file.read_text())["quick_ms"] == 5
    assert CliRunner().invoke(command.app, ["storage", "--only", "all"]).exit_code == 2


def test_where_more_collections_break_is_told_by_what_each_takes() -> None:
    row = limits.row(100, 1_000.0, 2_000.0, 11_000.0)
    assert row == {
        "at 100": 2_000.0,
        "at 10,000": 101_000.0,
        "limit": 11_000.0,
        "full at": 1_000.0,
    }
    assert limits.row(100, 5.0, 5.0, 10.0)["full at"] == 0.0, "it does not grow"
    none, some = limits.Use(1, 1, 1, 1), limits.Use(2, 2, 2, 2)
    rows = limits.table(10, (none, none), (some, none), limits.Use(9, 9, 9, 9))
    assert rows["broker: files"]["full at"] == 80.0
    assert rows["follower: MiB"]["full at"] == 0.0


def test_what_this_process_may_use_is_found() -> None:
    use = limits.used(os.getpid(), 3.0)
    assert use.percent == 3.0
    if sys.platform == "linux":
        most = limits.limits(os.getpid())
        assert 0 < use.maps < most.maps
        assert 0 < use.files < most.files
        assert 0 < use.mib < most.mib


def test_equal_ids_and_versions_make_equal_rows() -> None:
    one = rows(np.array([3, 4]), 0, 7)
    other = rows(np.array([4, 3]), np.array([0, 0]), 7, -1)
    assert one.column_names == [*DESCRIPTION.names, "time", "diff"]
    assert one.slice(0, 1).drop(["diff"]) == other.slice(1, 1).drop(["diff"])
    assert rows(np.array([3]), 1, 7).column("amount") != one.slice(0, 1).column("amount")


def test_processor_time_grows() -> None:
    before = cpu()
    sum(range(3_000_000))
    assert cpu().since(before).ours > 0


def test_what_changes_cost_is_told_for_the_cases_that_are_asked_for() -> None:
    assert change.chosen("") == tuple(change.CASES)
    with pytest.raises(typer.BadParameter, match=r"expected some of .*join, .*actual speed"):
        change.chosen("lag,speed")
    lines: list[str] = []
    names = change.chosen("lag, median")
    with patch.multiple(change, STEPS=1, WARM=0, TIMES=3):
        outcome = change.change(lines.append, names, 100)
    assert lines == [f"{name} over 100 and 1,000 rows" for name in names]
    ratios = ["change_ratio_lag_1", "change_ratio_lag_1000", "times_ratio_lag"]
    ratios += ["change_ratio_median_1", "change_ratio_median_1000", "times_ratio_median"]
    assert [figure.name for figure in outcome.figures] == ratios
    assert list(outcome.breakdown) == ["lag", "median"]
    out = io.StringIO()
    show([outcome], Console(file=out, width=200))
    assert "1,000 of 10 N, ms" in out.getvalue()


@pytest.mark.parametrize("name", change.CASES)
def test_every_case_of_change_is_a_view(name: str) -> None:
    case = change.CASES[name]
    with patch.multiple(change, STEPS=1, WARM=0, CHANGES=(5,), TIMES=5):
        assert change.measure(case, 50).changes[5].wall_ms > 0


@pytest.mark.parametrize("name", ["tumbling", "nearby", "moving", "not_closed"])
def test_a_view_of_windows_that_closes_them_keeps_no_more(name: str) -> None:
    with patch.multiple(windows, LAST=2, EVENTS=40):
        few, many = windows.kept_after(windows.VIEWS[name], (12, 24))
    assert few.rows > 0
    assert (many.rows <= 1.3 * few.rows) == (name != "not_closed")


@pytest.mark.parametrize("kind", sources.KINDS, ids=lambda kind: kind.name)
def test_a_source_that_is_measured_is_what_its_name_says(kind: sources.Kind) -> None:
    (statement,) = parse(kind.statement(Topic("clicks")))
    assert isinstance(statement, CreateSource)
    assert (statement.envelope.value == "upsert") == kind.name.endswith("upsert")
    assert (statement.watermark is not None) == kind.name.startswith("event")


def test_views_and_sources_of_dataflows_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def measured(_: object, *options: object) -> Outcome:
        calls.append(options)
        return OUTCOME

    monkeypatch.setattr(flow, "dataflows", measured)
    arguments = ["dataflows", "--views", "1, 1000", "--sources", "10"]
    assert CliRunner().invoke(command.app, arguments).exit_code == 0
    assert CliRunner().invoke(command.app, ["dataflows"]).exit_code == 0
    assert calls == [(15, (1, 1000), 10), (15, flow.COUNTS, 1)]


@pytest.mark.parametrize("views", ["", "0", "20,1", "1,1", "1;2", "10001", "-1"])
def test_other_views_of_dataflows_are_refused(views: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected growing numbers from 1 to 10,000"):
        command.counts_of(views)


def test_views_of_dataflows_are_shared_among_sources() -> None:
    sources_ = [flow.source_statement(number) for number in range(3)]
    created = re.compile(r"CREATE SOURCE (\w+) FROM KAFKA \(TOPIC 'bids'\)")
    names = [created.findall(text) for text in sources_]
    assert names == [["bids"], ["bids1"], ["bids2"]]
    views = [flow.small_view(number, number % 3) for number in range(4)]
    assert [re.findall(r"FROM (\w+)", view) for view in views] == [
        ["bids"],
        ["bids1"],
        ["bids2"],
        ["bids"],
    ]
