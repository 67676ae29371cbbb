"""`slackwater audit` against a coordinator that is served."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streams.adapter.server import Server
from streams.app.commands import app, register
from streams.app.coordinator import auditing
from streams.http.listening import Listening
from streams.http.server import served
from tests.support.coordinators import NOW, TOTALS, Environment, with_orders
from tests.support.processes import eventually

register(["audit"])
SUMS = [((1, 0.5), NOW, 1)]
WRONG = [((1, 0.5), NOW, 1), ((9, 9.0), NOW + 5, 1)]


@pytest.fixture
def env() -> Iterator[Environment]:
    environment = Environment()
    replica = with_orders(environment)
    environment.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    replica.append("s1", NOW + 10, [((1, 0.5), NOW, 1)])
    yield environment
    environment.stop()


def run(env: Environment, *arguments: str) -> Result:
    server = Server(Listening(), env.coordinator)
    with served(server.endpoint):
        url = f"http://127.0.0.1:{server.endpoint.server_port}"
        return CliRunner().invoke(app, ["audit", "--url", url, *arguments])


def figures(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_views_that_are_right(env: Environment) -> None:
    env.replica.append("u2", NOW + 10, SUMS)
    result = run(env, "--observations", "5", "--rate", "0", "--seconds", "60", "--json")
    assert result.exit_code == 0
    reported = figures(result)
    assert (reported["audits"], reported["observations"], reported["wrong"]) == (5, 5, 0)
    assert reported["views"][0] == {
        "view": "totals",
        "audits": 5,
        "observations": 5,
        "missing": 0,
        "excess": 0,
        "refused": "",
        "wrong_at": None,
    }


def test_a_planted_defect_is_shown_with_its_time(env: Environment) -> None:
    env.replica.append("u2", NOW + 10, WRONG)
    result = run(env, "totals", "--observations", "40", "--rate", "0", "--seconds", "60")
    assert result.exit_code == 1
    assert "totals" in result.stdout
    assert "wrong at" in result.stdout


def test_the_rate_is_a_bound(env: Environment) -> None:
    env.replica.append("u2", NOW + 10, SUMS)
    result = run(env, "--rate", "4", "--seconds", "0.6", "--json")
    assert result.exit_code == 0
    assert 1 <= figures(result)["audits"] <= 3


def test_a_view_that_there_is_not_is_named(env: Environment) -> None:
    result = run(env, "none", "--seconds", "0.2", "--rate", "0", "--json")
    assert result.exit_code == 1
    assert figures(result)["views"][0]["refused"].startswith("none does not exist")


def test_nobody_answers() -> None:
    result = CliRunner().invoke(app, ["audit", "--url", "http://127.0.0.1:9", "--seconds", "1"])
    assert result.exit_code == 1
    assert "no coordinator answers at http://127.0.0.1:9" in result.output


def test_a_coordinator_audits_by_itself(env: Environment) -> None:
    env.replica.append("u2", NOW + 10, SUMS)
    counts = env.coordinator.audit_counts
    with auditing(env.coordinator.audits, 0.05):
        eventually(lambda: counts.right >= 2)
    with auditing(env.coordinator.audits, 0):
        assert counts.wrong == 0
