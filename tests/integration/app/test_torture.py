"""The soak on a real broker, briefly; its workers die when they are told to, and with it.

The lap is one of `make test-long`, and `.ci/run` has a minute of them; `make test` has the same
writers, readers and judge over the broker in memory (`tests/model/test_torture.py`).
"""

import json
from pathlib import Path

import pytest

from streams.ids import CapabilityId, CollectionId
from streams.kafka.embedded import EmbeddedBroker
from streams.torture.actor_context import Target
from streams.torture.soak import Soak
from streams.torture.worker import Plan
from streams.torture.zygote import Zygote
from tests.support.processes import family, is_alive, settled

pytestmark = pytest.mark.integration


def idle_plan(place: Path) -> Path:
    """A worker that no broker answers: it waits until it is killed."""
    target = Target(CollectionId("c"), "nowhere", CapabilityId("r"), CapabilityId("w"))
    plan = Plan(
        name="writer0",
        roles=("writer",),
        seed=1,
        bootstrap="127.0.0.1:1",
        namespace="nowhere",
        journal=str(place / "journal"),
        skew_ms=0,
        targets=(target,),
    )
    plan.save(place / "plan.json")
    assert json.loads((place / "plan.json").read_text())["name"] == "writer0"
    return place / "plan.json"


def test_workers_are_killed_and_do_not_outlive_their_zygote(tmp_path: Path) -> None:
    plan = idle_plan(tmp_path)
    with Zygote(tmp_path / "log") as zygote:
        first, second = zygote.start(plan), zygote.start(plan)
        assert first != second
        assert is_alive(first)
        zygote.kill(first)
        assert not is_alive(first)
        (survivor,) = family(second)
    settled([survivor])
    assert "the process ended" not in (tmp_path / "journal").read_text()


@pytest.mark.long
def test_a_lap_is_judged(tmp_path: Path) -> None:
    passed: list[float] = []
    with (
        Zygote(tmp_path / "log") as zygote,
        EmbeddedBroker(tmp_path / "broker") as broker,
    ):
        soak = Soak(broker, zygote, tmp_path / "laps", 1, passed.append)
        verdict = soak.run(20)
    assert verdict.wrong == ()
    assert verdict.figures["kills"]
    assert verdict.figures["appends"]
    assert passed
