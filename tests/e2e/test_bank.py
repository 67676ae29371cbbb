"""Everything in containers, broken one by one, and the bank observed four ways all the while.

At no time anything is wrong, each time has one answer whoever is asked, and at the end every
transfer that was acknowledged is in all four, once.
"""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.bank import Sender, accepted, create
from tests.e2e.containers import SERVICES, Environment, Part, eventually
from tests.e2e.ledger import disagreements
from tests.e2e.observers import Observers
from tests.e2e.timeline import Fault, Timeline, write

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

PARTS = (*SERVICES, "postgres", "kafka")
SHORT = [
    *(("kill", part) for part in PARTS),
    ("pause", "replica"),
    ("pause", "kafka"),
    ("cut", "replica"),
    ("cut", "materialize"),
    ("restart", "kafka"),
    ("restart", "coordinator"),
]
LONG = list(itertools.product(("kill", "pause", "cut", "restart"), PARTS))
LASTS_S = 5.0
QUIET_S = 3.0


def chosen(faults: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that E2E_FAULTS names, as `kill:replica,cut:kafka`; by default all."""
    named = os.environ.get("E2E_FAULTS", "")
    return [(kind, part) for kind, part in faults if not named or f"{kind}:{part}" in named]


def inflict(kind: str, part: Part) -> None:
    """Break a part, wait, and put it right."""
    match kind:
        case "kill":
            part.kill()
            time.sleep(1)
            part.start()
        case "restart":
            part.stop()
            part.start()
        case "pause":
            part.pause()
            time.sleep(LASTS_S)
            part.resume()
        case _:
            part.cut()
            time.sleep(LASTS_S)
            part.heal()


class Trial:
    """The bank at work in an environment, and those who look at it."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.timeline = Timeline()
        self.sender, self.observers = Sender(environment), Observers(environment)

    def begin(self) -> None:
        """The bank is open, and is looked at."""
        self.sender.open()
        create(self.environment)
        self.sender.begin()
        self.observers.begin()
        time.sleep(QUIET_S)

    def suffer(self, kind: str, name: str) -> Fault:
        """One fault, until every transfer before its end is in the views."""
        with self.timeline.fault(kind, name) as fault:
            inflict(kind, self.environment.parts[name])
        sent = self.sender.transfers.sent
        what = f"the views have all that was sent until {kind} of {name} was over"
        eventually(what, lambda: accepted(self.environment) >= sent)
        fault.recovered = time.time()
        assert self.observers.wrong == []
        time.sleep(QUIET_S)
        return fault

    def end(self) -> None:
        """Nothing is lost, nothing is there twice, and all four say so."""
        self.sender.end()
        expected = dict(self.sender.balance)
        eventually("all four have all", lambda: self.observers.have(expected))
        assert accepted(self.environment) == self.sender.transfers.sent
        self.observers.end()

    def figures(self) -> dict[str, object]:
        """What the report has."""
        compared, wrong = disagreements(self.observers.ways.values())
        figures: dict[str, object] = {
            "seconds": round(time.time() - self.timeline.began),
            "transfers": self.sender.transfers.sent,
            "times compared between two ways": compared,
            "disagreements": len(wrong),
        }
        for name, way in self.observers.ways.items():
            figures[f"{name}: observations"] = way.observations
            figures[f"{name}: wrong"] = len(way.wrong)
            figures[f"{name}: tries that failed"] = dict(way.failures.most_common(5))
        return figures


@pytest.fixture
def trial(running: Environment, artifacts: Path) -> Iterator[Trial]:
    trial = Trial(running)
    trial.begin()
    yield trial
    trial.observers.end()
    write(artifacts, trial.timeline, [*trial.observers.ways.values()], trial.figures())


def endure(trial: Trial, faults: list[tuple[str, str]]) -> None:
    for kind, name in chosen(faults):
        trial.suffer(kind, name)
    trial.end()
    compared, wrong = disagreements(trial.observers.ways.values())
    assert wrong == []
    assert trial.observers.wrong == []
    assert compared > 0
    assert all(way.observations > 10 for way in trial.observers.ways.values())
    eventually("all services are healthy", trial.environment.is_healthy)
    for service in reversed([*SERVICES]):
        part = trial.environment.parts[service]
        before = len(part.log)
        code, said = part.stop(), part.log[before:]
        assert code == 0, f"{service} ended with {code}:\n{said}"
        assert "Traceback" not in said, said


def test_one_fault_after_another(trial: Trial) -> None:
    endure(trial, SHORT)


@pytest.mark.long
def test_every_fault_of_every_part(trial: Trial) -> None:
    endure(trial, LONG)
