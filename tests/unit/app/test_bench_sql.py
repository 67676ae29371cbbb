"""`slackwater bench sql`, and that the page of functions says what the planner does."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from streams.bench.sql import command
from streams.bench.sql.constructs import QUERIES, refused
from streams.bench.sql.page import page, read
from streams.bench.sql.survey import catalogue, judged, survey
from streams.trace.kernel.kernel import Kernel

PAGE = Path(__file__).parents[3] / "streams/docs/FUNCTIONS.md"
SAMPLED = 12
"""One of so many functions has its calls tried here; all of them have in the bench."""


@pytest.fixture(scope="module")
def said():
    return read(PAGE.read_text())


@pytest.fixture(scope="module")
def functions():
    return catalogue(Kernel())


def test_the_page_lists_every_function_of_the_catalogue(said, functions) -> None:
    listed = {(family, name) for family, names in said.functions.items() for name in names}
    assert listed == {(function.family, function.name) for function in functions}


def test_the_calls_that_the_page_refuses_are_refused_in_its_words(said, functions) -> None:
    aggregates = {function.name for function in functions if function.kind == "aggregate"}
    assert said.refused
    for construct, call in said.refused:
        tally = judged([call], is_aggregate=call.split("(")[0] in aggregates)
        assert [reason.construct for reason in tally.refused] == [construct], call


def test_the_constructs_that_the_page_refuses_are_refused_in_its_words(said) -> None:
    assert said.constructs == tuple((refusal.construct, refusal.query) for refusal in refused())
    assert {query for _, query in said.constructs} == set(QUERIES)


def test_what_the_page_does_not_refuse_is_maintained(said, functions) -> None:
    sample = functions[::SAMPLED]
    tallies = survey(sample, 1, lambda: None)
    reasons = {construct for construct, _ in said.refused}
    constructs = {reason.construct for tally in tallies.values() for reason in tally.refused}
    assert constructs <= reasons
    assert not [failure for tally in tallies.values() for failure in tally.failed]
    assert sum(tally.accepted for tally in tallies.values()) > len(sample) // 2


def test_what_is_surveyed_is_on_the_page_that_is_written() -> None:
    signatures = [
        signature
        for signature in catalogue(Kernel())
        if signature.name in {"abs", "approx_top_k", "|"}
    ]
    tallies = survey(signatures, 2, lambda: None)
    written = read(page(tallies, list(refused()), 2))
    assert {name for names in written.functions.values() for name in names} == {
        "abs", "approx_top_k", "|",
    }  # fmt: skip
    assert written.refused[0][0] == "aggregate approx_top_k"
    assert tallies["numeric", "abs"].accepted == tallies["numeric", "abs"].bound > 0


def test_a_planner_that_fails_is_a_defect_and_no_refusal(monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("of the planner")

    monkeypatch.setattr("streams.bench.sql.survey.compile_view", fails)
    tally = judged(["abs(x_i)", "abs(x_d)"], is_aggregate=False)
    assert (tally.accepted, len(tally.failed)) == (0, 2)
    assert "IndexError: of the planner" in tally.failed[0]


def test_the_command_writes_the_page_and_compile_times(monkeypatch, tmp_path: Path) -> None:
    few = [
        signature
        for signature in catalogue(Kernel())
        if signature.name in {"abs", "approx_top_k"}
    ]
    monkeypatch.setattr(command, "catalogue", lambda _: few)
    monkeypatch.setattr(command, "QUERIES", {6: ""})
    printed = io.StringIO()
    console = Console(file=printed, width=120)
    outcome = command.sql(console, 2, tmp_path / "page.md")
    names = [figure.name for figure in outcome.figures]
    assert names == ["defects", "compile_q6_ms", "compile_slowest_ms"]
    assert read((tmp_path / "page.md").read_text()).refused
    assert "aggregate approx_top_k" in printed.getvalue()
