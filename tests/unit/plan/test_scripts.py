"""The planner's scripts: passes before and after, statements, refusals, golden plans."""

import json
import os
from pathlib import Path

import duckdb
import pytest

from streams.errors import InvalidStatement
from streams.plan import passes
from streams.plan.bind.binder import binder
from streams.plan.compile import bound_plan, compile_view, explain
from streams.plan.display.explain import explain_logical
from streams.plan.sql.statements import parse
from tests.support.datadriven import Case, run, scripts
from tests.support.plan_tables import append_only, catalog

GOLDEN = Path(__file__).parents[2] / "golden" / "plans"
PLANS = sorted(GOLDEN.glob("*.txt"))
SERIALISED = sorted((GOLDEN / "duckdb").glob("*.json"))


def handle(case: Case) -> str:
    match case.directive:
        case "pass":
            return before_and_after(case["name"], int(case.get("nth", "1")), case.input)
        case "explain":
            relations = append_only() if case.get("sources") == "append-only" else catalog()
            return explain(case.input, relations)
        case "parse":
            return "\n".join(map(str, parse(case.input)))
        case "refuse":
            return refused(case)
        case other:
            raise AssertionError(other)


def refused(case: Case) -> str:
    try:
        if case.get("as") == "statement":
            parse(case.input)
        else:
            compile_view(case.input, catalog())
    except InvalidStatement as error:
        return str(error)
    return "accepted"


def before_and_after(name: str, nth: int, query: str) -> str:
    """The plan as it reaches the nth pass of this name, and as it leaves it."""
    node = bound_plan(query, catalog())
    for step in passes.PASSES:
        before, node = node, step(node)
        nth -= step.__name__ == name
        if nth == 0:
            return f"{explain_logical(before)}\n=>\n{explain_logical(node)}"
    raise AssertionError(f"no pass {name}")


@pytest.mark.parametrize("script", scripts("plan"), ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    run(script, handle)


@pytest.mark.parametrize("script", PLANS, ids=lambda path: path.stem)
def test_golden_plan(script: Path) -> None:
    run(script, handle)


def test_whatever_is_refused_is_refused() -> None:
    for path in scripts("plan"):
        assert "\naccepted\n" not in path.read_text(), path


def test_every_pass_has_a_script() -> None:
    texts = "\n".join(path.read_text() for path in scripts("plan"))
    for step in passes.PASSES:
        assert f"pass name={step.__name__}" in texts


@pytest.mark.parametrize("path", SERIALISED, ids=lambda path: path.stem)
def test_the_pinned_duckdb_serialises_as_it_did(path: Path) -> None:
    """A DuckDB that writes its plans otherwise is a change to review, not to discover."""
    stored = json.loads(path.read_text())
    columns = {name: relation.columns for name, relation in catalog().items()}
    with binder(columns) as bound:
        plan = json.loads(json.dumps(bound.bind(stored["query"]).plan.fields, default=str))
    now = {"duckdb": duckdb.__version__, "query": stored["query"], "plan": plan}
    if os.environ.get("REWRITE"):
        path.write_text(json.dumps(now, indent=1) + "\n")
        return
    assert now == stored


def test_there_are_plans_to_compare() -> None:
    assert len(PLANS) >= 20
    assert len(SERIALISED) >= 5
