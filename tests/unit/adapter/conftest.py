"""What the tests of the adapter share."""

from collections.abc import Iterator
from threading import Condition

import pytest

from streams.adapter.retention import History
from tests.support.coordinators import Environment

PATIENCE_S = 60.0


class Beats:
    """The passes of the thread that advances sinces, counted as they end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.ended = 0, Condition()
        advance = History.let_go

        def counted(history: History) -> None:
            try:
                advance(history)
            finally:
                with self.ended:
                    self.count += 1
                    self.ended.notify_all()

        monkeypatch.setattr(History, "let_go", counted)

    def __call__(self, count: int = 3) -> None:
        """Wait until so many have ended; all but the first of them have begun since."""
        with self.ended:
            last = self.count + count
            assert self.ended.wait_for(lambda: self.count >= last, PATIENCE_S)


@pytest.fixture
def beats(monkeypatch) -> Beats:
    """Wait for passes of the thread that advances sinces, where nothing else shows them."""
    return Beats(monkeypatch)


@pytest.fixture
def env(monkeypatch) -> Iterator[Environment]:
    """A coordinator over a broker in memory, running with short pauses; stopped at the end."""
    monkeypatch.setattr("streams.adapter.reconciler.BEAT_S", 0.05)
    monkeypatch.setattr("streams.adapter.instances.LISTEN_MS", 10)
    environment = Environment()
    yield environment
    environment.stop()
