"""`slackwater bench footprint` on an environment of its own, without a rest."""

import sys

import pytest

from streams.bench.footprint import footprint

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="/proc"),
]

TARGETS = {
    "footprint_mb": 700,
    "footprint_processes": 8,
    "first_row_s": 10,
    "replica_killed_to_fresh_s": 8,
}


def test_the_footprint_of_an_environment_is_reported() -> None:
    said: list[str] = []
    outcome = footprint(said.append, settle_s=0.0, idle_s=0.5)
    assert {figure.name: figure.limit for figure in outcome.figures if figure.target} == TARGETS
    values = {figure.name: float(figure.value) for figure in outcome.figures}
    assert 0 < values["first_answer_s"] < values["first_row_s"]
    assert values["footprint_mb"] > 100
    assert outcome.breakdown.keys() == {
        "broker",
        "Spark's JVM",
        "Spark's Python",
        "replica",
        "other services",
    }
    assert outcome.breakdown["replica"]["processes"] == 1
    assert said[-1] == "killing the replica"
