"""The clock of one container after another is an hour ahead for a while, and then right again.

The bank is observed as ever, goes on while a clock is wrong, and a view is born meanwhile.
"""

import os
import time

import pytest

from tests.e2e.bank import accepted
from tests.e2e.parts import eventually
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("E2E_CLOCK" not in os.environ, reason="no compiler"),
]

HOUR_S = 3600
LASTS_S = 8.0


@pytest.fixture
def plan() -> Plan:
    return Plan(with_clocks=True)


def live_through(trial: Trial, name: str) -> None:
    """An hour ahead and back; what is born meanwhile is right."""
    part, client, born = trial.environment.parts[name], trial.environment.client, f"born_{name}"

    def ahead() -> None:
        trial.environment.set_clock(name, HOUR_S)
        eventually("the clock is ahead", lambda: abs(part.ahead_s() - HOUR_S) < 60)
        time.sleep(LASTS_S)
        trial.catch_up(f"the clock of {name} was ahead")
        client.run(f"CREATE MATERIALIZED VIEW {born} AS SELECT sum(credits) AS n FROM credits")
        ((count,),) = client.run(f"SELECT n::BIGINT FROM {born}")[0].rows
        assert int(str(count)) <= accepted(trial.environment)
        trial.environment.set_clock(name, 0)
        eventually("the clock is right", lambda: abs(part.ahead_s()) < 60)

    trial.suffer("clock", name, ahead)
    query = f"SELECT {born}.n = (SELECT sum(credits) FROM credits) FROM {born}"
    assert client.run(query)[0].rows == ((True,),)


def test_a_clock_an_hour_ahead(trial: Trial) -> None:
    for name in ("replica", "coordinator", "kafka"):
        live_through(trial, name)
    trial.end()
    trial.end_services()
