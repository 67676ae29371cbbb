"""One environment for the tests that leave it as they found it."""

from collections.abc import Iterator

import pytest

from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import open_environment


@pytest.fixture(scope="package")
def environment(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    started = open_environment(broker.bootstrap, tmp_path_factory.mktemp("environment"))
    yield started
    started.stop()
