"""What the tests of the adapter share."""

from collections.abc import Iterator

import pytest

from tests.support.coordinators import Environment


@pytest.fixture
def env(monkeypatch) -> Iterator[Environment]:
    monkeypatch.setattr("streams.adapter.reconciler.BEAT_S", 0.05)
    monkeypatch.setattr("streams.adapter.instances.LISTEN_MS", 10)
    environment = Environment()
    yield environment
    environment.stop()
