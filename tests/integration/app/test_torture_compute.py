"""Controllers and replicas that are tortured, and one that does something wrong, briefly.

`.ci/run` has half a minute without a mutation.
"""

import sys
from pathlib import Path

import pytest

from streams.kafka.embedded import EmbeddedBroker
from streams.torture.compute.replicas import PROGRAM
from streams.torture.compute.run import Torture
from streams.torture.oracle import Verdict

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]
TWICE = (sys.executable, "-m", "tests.support.double_answers")
LOSSY = (sys.executable, "-m", "tests.support.lost_changes")


def tortured(place: Path, program: tuple[str, ...], seconds: float) -> Verdict:
    with EmbeddedBroker(place / "broker") as broker:
        run = Torture(broker.bootstrap, place, 1, lambda _: None, program=program)
        return run.run(seconds)


def test_replicas_that_are_killed_and_replaced_answer_each_peek_once(tmp_path: Path) -> None:
    verdict = tortured(tmp_path, PROGRAM, 40)
    assert verdict.wrong == ()
    assert verdict.figures["answers checked"]
    assert verdict.figures["intervals checked"]
    assert verdict.figures["times of views checked"]


def test_a_replica_that_answers_a_peek_twice_is_found(tmp_path: Path) -> None:
    verdict = tortured(tmp_path, TWICE, 10)
    assert any("a peek has one answer" in fault for fault in verdict.wrong), verdict.wrong


def test_a_replica_that_loses_changes_of_a_subscribe_is_found(tmp_path: Path) -> None:
    verdict = tortured(tmp_path, LOSSY, 20)
    lost = [fault for fault in verdict.wrong if "changes missing" in fault]
    assert lost, verdict.wrong
