"""An environment and the bank in it, for each test; its report is in `artifacts/`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.app import client
from tests.e2e.containers import Builder, Environment, environment
from tests.e2e.plan import Plan
from tests.e2e.timeline import write
from tests.e2e.trial import Trial

ARTIFACTS = Path(os.environ.get("E2E_ARTIFACTS", "artifacts/e2e"))
READ_TIMEOUT_S = 20.0
"""Of the observers: where a cable was pulled nothing says that a connection has ended."""


@pytest.fixture
def artifacts(request: pytest.FixtureRequest) -> Path:
    """Of a test: a directory of its name."""
    directory = ARTIFACTS / str(request.node.name)
    shutil.rmtree(directory, ignore_errors=True)
    return directory


@pytest.fixture
def plan() -> Plan:
    """The usual; a module says otherwise."""
    return Plan()


@pytest.fixture
def built(tmp_path: Path, artifacts: Path, plan: Plan) -> Iterator[tuple[Environment, Builder]]:
    """Brokers, a PostgreSQL and the services, and who makes more of them."""
    if "E2E_SLACKWATER_IMAGE" not in os.environ:
        pytest.skip("no images: `make e2e` makes an engine and them")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "_CONNECT_TIMEOUT_S", READ_TIMEOUT_S)
        with environment(secrets, plan, artifacts / "logs") as parts:
            yield parts


@pytest.fixture
def running(built: tuple[Environment, Builder]) -> Environment:
    """The parts."""
    return built[0]


@pytest.fixture
def builder(built: tuple[Environment, Builder]) -> Builder:
    """Who makes parts."""
    return built[1]


@pytest.fixture
def trial(running: Environment, artifacts: Path) -> Iterator[Trial]:
    """The bank, open and observed; its report is written whatever comes."""
    trial = Trial(running)
    trial.begin()
    yield trial
    trial.end_observers()
    ways = [*trial.observers.ways.values()]
    write(artifacts, trial.timeline, ways, trial.frontiers.uppers, trial.figures())
