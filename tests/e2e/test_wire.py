"""The network between the services and the broker is slow for a while, and then fast again.

The bank goes on meanwhile: later, and never wrongly.
"""

import shutil
import time
from functools import partial
from pathlib import Path

import pytest
import trustme

from tests.e2e import brokers
from tests.e2e.containers import SECRETS, Builder, image
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial
from tests.support.container_files import DOCKER

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

WIRE, DELAY = "wire", "delay"
LASTS_S = 15.0


def prepared(_: trustme.CA, directory: Path) -> None:
    shutil.copy(DOCKER / "standin" / "wire.py", directory)
    (directory / DELAY).write_text("0")


def more(builder: Builder) -> None:
    to = brokers.bootstrap(brokers.ONE)
    builder.part(
        WIRE,
        image("slackwater"),
        {},
        [str(brokers.INSIDE), to, f"{SECRETS}/{DELAY}"],
        entrypoint=["python3", "-I", f"{SECRETS}/wire.py"],
    )


@pytest.fixture
def plan() -> Plan:
    return Plan(via=WIRE, prepared=prepared, more=more)


def slow(trial: Trial, milliseconds: int) -> None:
    """Each way takes so much longer; what is sent then gets into the views then."""
    trial.environment.tell(DELAY, milliseconds)
    time.sleep(LASTS_S)
    trial.catch_up(f"the network took {milliseconds} ms")
    trial.environment.tell(DELAY, 0)


def test_a_slow_network(trial: Trial) -> None:
    for milliseconds in (50, 500):
        trial.suffer("delay", WIRE, partial(slow, trial, milliseconds))
    trial.end()
    trial.end_services()
