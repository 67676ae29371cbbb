"""Tests that share the kills of an environment's services: of a replica's start, Spark is most.

A scenario is a test in steps: a generator that yields what it waits for. All scenarios that are
to be run go through `MOMENTS` side by side, and each is a test of its own, which fails by what
failed in it:

    @through_kills
    def test_a_source_reads_on(environment, broker):
        ...                  # while all is well
        yield "replica"      # it was killed a moment ago
        ...                  # quickly: it is down for seconds
        yield "others"       # the others have done the same
        eventually(...)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually

MOMENTS = (
    *("before", "replica", "coordinator", "others"),
    *("coordinator", "before", "replica", "others"),
)
"""`before` is the last one before a kill. A moment with a service's name kills that first.

The coordinator is killed beside a replica that is down, and beside one that runs."""

Scenario = Callable[[Environment, EmbeddedBroker], Iterator[str]]
Results = Mapping[Scenario, BaseException | None]


def through_kills(scenario: Scenario) -> Callable[[Results], None]:
    """Make a test of a scenario."""

    def test(kills: Results) -> None:
        failure = kills[scenario]
        if failure is not None:
            raise failure

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    test.__module__, test.__qualname__ = scenario.__module__, scenario.__qualname__
    test.scenario = scenario  # type: ignore[attr-defined]
    return test


def scenarios_of(items: Sequence[pytest.Item]) -> list[Scenario]:
    """The scenarios of the tests that were chosen."""
    functions = [item.function for item in items if isinstance(item, pytest.Function)]
    return [function.scenario for function in functions if hasattr(function, "scenario")]


def run(
    scenarios: Sequence[Scenario], environment: Environment, broker: EmbeddedBroker
) -> Results:
    """Run scenarios through all moments; how each failed, or None."""
    running = [_Running(scenario, scenario(environment, broker)) for scenario in scenarios]
    for one in running:
        one.go_on()
    for moment in MOMENTS:
        if moment in environment.children:
            environment.kill(moment)
        if moment == "others":
            eventually(environment.client.is_ready)
        # what began last is next to end: some send as long as they last
        for one in reversed(running) if moment == "others" else running:
            if one.awaited == moment:
                one.go_on()
    return {one.scenario: one.end() for one in running}


class _Running:
    """A scenario that has begun: what it waits for, or how it failed."""

    def __init__(self, scenario: Scenario, steps: Iterator[str]) -> None:
        self.scenario, self._steps = scenario, steps
        self.awaited = ""
        self._failure: BaseException | None = None

    def go_on(self) -> None:
        try:
            self.awaited = next(self._steps, "")
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001  its test raises it
            self._failure, self.awaited = failure, ""

    def end(self) -> BaseException | None:
        """How it failed: also one that has not ended yet."""
        if self.awaited:
            return AssertionError(f"it still waits for {self.awaited!r}")
        return self._failure
