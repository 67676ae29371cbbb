"""One real broker for the whole run, started when the first test asks for it."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from streams.kafka.embedded import EmbeddedBroker

settings.register_profile("thorough", max_examples=5000, deadline=None)
settings.register_profile("patient", deadline=None)  # a busy machine is no failure
settings.load_profile("patient")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker, running; `broker.bootstrap` is its address."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running
