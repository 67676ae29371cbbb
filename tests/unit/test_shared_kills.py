"""The tests that share kills: each fails by what fails in its own scenario."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.integration.adapter.shared_kills import MOMENTS, Scenario, run, through_kills


def results_of(*scenarios: Scenario) -> tuple[Any, list[str]]:
    """How they fare, and what was killed meanwhile."""
    killed: list[str] = []
    environment = SimpleNamespace(
        children=dict.fromkeys(("coordinator", "replica", "storage")),
        kill=killed.append,
        client=SimpleNamespace(is_ready=lambda: True),
    )
    return run(scenarios, cast("Any", environment), cast("Any", None)), killed


def test_scenarios_take_turns_at_each_moment() -> None:
    seen: list[str] = []

    def through_all(*_: object) -> Iterator[str]:
        for moment in MOMENTS:
            yield moment
            seen.append(moment)

    def by_the_coordinators_kill(*_: object) -> Iterator[str]:
        yield "coordinator"
        seen.append("down")

    results, killed = results_of(through_all, by_the_coordinators_kill)
    assert set(results.values()) == {None}
    assert killed == ["replica", "coordinator", "coordinator", "replica"]
    assert seen == [*MOMENTS[:3], "down", *MOMENTS[3:]]


def test_a_scenario_that_fails_fails_its_test_alone() -> None:
    def fails(*killed_by: object) -> Iterator[str]:
        yield "replica"
        assert not killed_by, "it has read twice"

    def expects_a_refusal(*_: object) -> Iterator[str]:
        yield "replica"
        with pytest.raises(ValueError, match="refused"):
            pass

    def goes_on(*_: object) -> Iterator[str]:
        yield "others"

    def waits(*_: object) -> Iterator[str]:
        yield from ("replica", "nothing that comes")

    results, _ = results_of(fails, expects_a_refusal, goes_on, waits)
    through_kills(goes_on)(results)
    with pytest.raises(AssertionError, match="it has read twice"):
        through_kills(fails)(results)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        through_kills(expects_a_refusal)(results)
    with pytest.raises(AssertionError, match="it still waits for 'nothing that comes'"):
        through_kills(waits)(results)
