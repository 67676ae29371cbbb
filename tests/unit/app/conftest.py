"""Commands run here in the process of the tests, which goes on after them."""

import signal
from collections.abc import Iterator

import pytest

from streams.app import signals


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """What a service does at a signal ends with its test: Ctrl-C has to end the tests."""
    before = {number: signal.getsignal(number) for number in signals.ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
