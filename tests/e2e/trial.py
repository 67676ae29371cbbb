"""The bank at work in an environment, and what it has to go through."""

import time
from collections.abc import Callable
from functools import partial

from tests.e2e.bank import Sender, accepted, create
from tests.e2e.containers import SERVICES, Environment
from tests.e2e.frontiers import Frontiers, shown
from tests.e2e.ledger import disagreements
from tests.e2e.observers import Observers
from tests.e2e.parts import Part, eventually
from tests.e2e.timeline import Timeline
from tests.support.processes import traces

LASTS_S = 5.0
QUIET_S = 3.0


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
        self.frontiers = Frontiers(partial(shown, environment))

    def begin(self) -> None:
        """The bank is open, and is looked at."""
        self.sender.open()
        create(self.environment)
        self.sender.begin()
        self.observers.begin()
        self.frontiers.begin()
        time.sleep(QUIET_S)

    def suffer(self, kind: str, name: str, inflicted: Callable[[], None]) -> None:
        """One fault, until every transfer before its end is in the views."""
        with self.timeline.fault(kind, name) as fault:
            inflicted()
        self.catch_up(f"{kind} of {name} was over")
        fault.recovered = time.time()
        assert not self.observers.wrong, self.observers.wrong[:10]
        time.sleep(QUIET_S)

    def catch_up(self, when: str) -> None:
        """Every transfer that has been sent is in the views. Errors: AssertionError."""
        sent = self.sender.transfers.sent
        what = f"the views have all that was sent until {when}"
        eventually(what, lambda: accepted(self.environment) >= sent)

    def end(self) -> None:
        """Nothing is lost, nothing is there twice, nothing was wrong, and all four say so."""
        self.sender.end()
        expected = dict(self.sender.balance)
        eventually("all four have all", lambda: self.observers.have(expected))
        assert accepted(self.environment) == self.sender.transfers.sent
        self.end_observers()
        compared, wrong = disagreements(self.observers.ways.values())
        assert wrong == []
        assert self.observers.wrong == []
        assert compared > 0
        assert all(way.observations > 10 for way in self.observers.ways.values())
        assert all(way.times for way in self.observers.ways.values())

    def end_observers(self) -> None:
        """Nobody looks any more."""
        self.observers.end()
        self.frontiers.end()

    def end_services(self) -> None:
        """Each ends in order: with 0, and without a stack trace."""
        eventually("all services are healthy", self.environment.is_healthy)
        for service in reversed([*SERVICES]):
            part = self.environment.parts[service]
            before = len(part.log)
            code, said = part.stop(), part.log[before:]
            assert code == 0, f"{service} ended with {code}:\n{said}"
            assert not traces(said), said

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
            figures[f"{name}: wrong"] = [len(way.wrong), *way.wrong[:10]]
            figures[f"{name}: tries that failed"] = dict(way.failures.most_common(5))
        return figures
