"""Namespaces on the broker, with services of storage as processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.kafka.embedded import EmbeddedBroker
from tests.support.command_place import Place


@pytest.fixture
def place(broker: EmbeddedBroker, tmp_path: Path) -> Place:
    """A new namespace on the real broker, without a service: the test starts its own."""
    return Place(broker.bootstrap, tmp_path)


@pytest.fixture(scope="package")
def served(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A namespace with a service, for tests that leave it running.

    Its start is most of what they cost. Each test has collections of its own.
    """
    place = Place(broker.bootstrap, tmp_path_factory.mktemp("served"))
    with place.service():
        yield place
