"""One environment for the tests that leave it as they found it, and kills that some share."""

from collections.abc import Iterator

import pytest

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter import shared_kills
from tests.integration.adapter.support import (
    drop_everything,
    eventually,
    open_environment,
)


@pytest.fixture(scope="package")
def environment(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """A running environment on the real broker, shared by the package's tests."""
    started = open_environment(broker.bootstrap, tmp_path_factory.mktemp("environment"))
    yield started
    started.stop()


@pytest.fixture(scope="package")
def kills(
    request: pytest.FixtureRequest, environment: Environment, broker: EmbeddedBroker
) -> shared_kills.Results:
    """All scenarios of this run, through the kills."""
    chosen = shared_kills.scenarios_of(request.session.items)
    return shared_kills.run(chosen, environment, broker)


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A source that nobody asks costs the tests behind it as much as one of theirs."""
    yield
    if "environment" in request.fixturenames or "kills" in request.fixturenames:
        environment: Environment = request.getfixturevalue("environment")
        eventually(environment.client.is_ready)
        drop_everything(environment)
