"""An environment of an earlier commit becomes one of this commit, a service at a time.

Topics, the replica's state and the tables in PostgreSQL are kept, the bank goes on, and each
reading of it agrees with those of before. `docker/engine.sh earlier` makes the image.
"""

import os
from functools import partial

import pytest

from tests.e2e.bank import accepted
from tests.e2e.containers import Builder
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("E2E_EARLIER_IMAGE" not in os.environ, reason="no earlier image"),
]

ORDER = ("compaction", "storage", "materialize", "replica", "coordinator")
"""As the page on operations has it: who tells others what to do comes last."""


@pytest.fixture
def plan() -> Plan:
    return Plan(image="earlier", with_state=("replica",))


def test_an_upgrade_a_service_at_a_time(trial: Trial, builder: Builder) -> None:
    environment, client = trial.environment, trial.environment.client
    client.run("CREATE MATERIALIZED VIEW before AS SELECT sum(credits) AS n FROM credits")
    for name in ORDER:
        trial.suffer("upgrade", name, partial(builder.replace, name, "slackwater"))
    assert len(environment.replaced) == len(ORDER)
    client.run("CREATE MATERIALIZED VIEW after AS SELECT sum(credits) AS n FROM credits")
    both = "SELECT before.n = after.n, after.n::BIGINT FROM before, after"
    ((is_same, count),) = client.run(both)[0].rows
    assert is_same is True
    assert 0 < int(str(count)) <= accepted(environment)
    trial.end()
    trial.end_services()
