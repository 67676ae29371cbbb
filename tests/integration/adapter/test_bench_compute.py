"""Each part of `slackwater bench compute`, so small that only its report counts."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from streams.app.environment import Environment
from streams.bench import bids
from streams.bench.compute import many_dataflows, restart, subscribe
from streams.bench.compute.command import ALONE, OF_MANY
from streams.bench.compute.scale import ComputeScale
from streams.bench.figures import Outcome
from streams.bench.rig import Rig, rigged
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import open_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TINY = ComputeScale(events=100, rate=5, seconds=1.0, rows=1_000, dataflows=3)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bids, "KEYS", 1_000)
    monkeypatch.setattr(subscribe, "WARM_S", 0.2)
    monkeypatch.setattr(restart, "KILLS", 1)
    monkeypatch.setattr(restart, "SETTLE_S", 0.0)
    monkeypatch.setattr(many_dataflows, "SETTLE_S", 0.0)


@pytest.fixture
def bench(environment: Environment) -> Iterator[Rig]:
    with rigged(environment, lambda _: None) as rig:
        yield rig


def targets(outcome: Outcome) -> Mapping[str, float | None]:
    for figure in outcome.figures:
        assert isinstance(figure.value, int | float)
        assert figure.value >= 0, figure
    return {figure.name: figure.limit for figure in outcome.figures if figure.target}


def value(outcome: Outcome, name: str) -> float:
    (number,) = [figure.value for figure in outcome.figures if figure.name == name]
    assert isinstance(number, int | float)
    return number


def test_the_delivery_to_a_subscriber_is_reported(bench: Rig) -> None:
    outcome = ALONE["subscribe"](bench, TINY)
    assert targets(outcome) == {"subscribe_ms_p50": 20, "subscribe_loaded_ms_p50": 20}
    assert value(outcome, "subscribe_appends") > 0
    assert 0 < value(outcome, "subscribe_ms_p50") < 60_000
    assert 0 < value(outcome, "subscribe_by_replicas_ms_p50") < 60_000


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_what_idle_dataflows_take_is_reported(bench: Rig) -> None:
    many_dataflows.create_dataflows(bench, TINY.dataflows)
    outcome = OF_MANY["idle"](bench, TINY)
    assert targets(outcome) == {"idle_replica_cpu_percent": 10}
    assert {"replica", "Spark's JVM", "Spark's Python"} == outcome.breakdown.keys()


PARTS: Mapping[str, Mapping[str, float]] = {
    "peeks": {"peek_ms_p50": 8, "peek_ms_p99": 30},
    "restart": {"restart_s": 15},
    "controller": {"controller_frontiers_s": 2},
}


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_a_part_with_an_environment_of_its_own_reports(
    part: str, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        environment = open_environment(broker.bootstrap, tmp_path)
        stack.callback(environment.stop)
        bench = stack.enter_context(rigged(environment, lambda _: None))
        if part in OF_MANY:
            many_dataflows.create_dataflows(bench, TINY.dataflows)
        outcome = {**ALONE, **OF_MANY}[part](bench, TINY)
    assert targets(outcome) == PARTS[part]
    assert outcome.bench == part
