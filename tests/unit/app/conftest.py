"""Commands run here in the process of the tests, which goes on after them."""

import logging
import signal
from collections.abc import Iterator

import pytest

from streams.app import signals


@pytest.fixture(autouse=True)
def own_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a service does at a signal ends with its test: Ctrl-C has to end the tests.

    A process that was asked to end stays so: a later test's command would end at once.
    """
    monkeypatch.setattr(signals, "stopping", signals.Stop())
    before = {number: signal.getsignal(number) for number in signals.ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A service's log lines end with its test.

    Its handler would write to an output that is closed: each line of each later test would
    fail, and print two stacks to say so.
    """
    root = logging.getLogger()
    level, before = root.level, tuple(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers).difference(before):
        root.removeHandler(handler)
