"""Everything in containers, broken one by one, and the bank observed four ways all the while.

At no time anything is wrong, each time has one answer whoever is asked, and at the end every
transfer that was acknowledged is in all four, once.
"""

import itertools
import os
from contextlib import suppress
from functools import partial

import pytest

from tests.e2e import watched
from tests.e2e.containers import SERVICES, Environment
from tests.e2e.parts import eventually
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial, inflict

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


@pytest.fixture
def plan() -> Plan:
    return Plan(more=watched.start)


def chosen(faults: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that E2E_FAULTS names, as `kill:replica,cut:kafka`; by default all."""
    named = os.environ.get("E2E_FAULTS", "")
    return [(kind, part) for kind, part in faults if not named or f"{kind}:{part}" in named]


def endure(trial: Trial, faults: list[tuple[str, str]]) -> None:
    for kind, name in chosen(faults):
        trial.suffer(kind, name, partial(inflict, kind, trial.environment.parts[name]))
    check_what_is_shown(trial.environment)
    trial.end()
    trial.end_services()


def check_what_is_shown(environment: Environment) -> None:
    """Each panel of the dashboard has data; each alert is evaluated, and fires in its test."""
    eventually("each service is scraped", lambda: watched.are_all_scraped(environment))
    # the coordinator was restarted: it may have been scraped last before it knew its objects
    with suppress(AssertionError):  # the next one says what has none
        eventually("each panel has data", lambda: watched.has_data(environment), 60)
    assert watched.without_data(environment) == {}
    rules = watched.rules(environment)
    assert {name: rule["health"] for name, rule in rules.items()} == dict.fromkeys(rules, "ok")
    assert len(rules) > 15
    code, said = watched.tested_alerts(environment)
    assert code == 0, said
    # of the service that was killed last the alert is pending until it is scraped again
    eventually("no service is down", lambda: _is_quiet(environment, "ServiceDown"), 60)
    assert _is_quiet(environment, "AuditWrong")


def _is_quiet(environment: Environment, alert: str) -> bool:
    return bool(watched.rules(environment)[f"Slackwater{alert}"]["state"] == "inactive")


def test_one_fault_after_another(trial: Trial) -> None:
    endure(trial, SHORT)


@pytest.mark.long
def test_every_fault_of_every_part(trial: Trial) -> None:
    endure(trial, LONG)
