"""A broker that is stopped in order and started: every client is served again.

In about one of a hundred such restarts librdkafka loses its brokers for good (`renewal`).
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.watchdog import MetadataClient
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

RESTARTS, OF_EACH = 10, 8
BACK_S = 45
LOG = Topic("restarts.log")


class Busy:
    """Repeats a request in a thread of its own; `at` is when it was last answered."""

    def __init__(self, request: Callable[[], bool], stopping: threading.Event) -> None:
        self.request, self.at, self._stopping = request, 0.0, stopping
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(SlackwaterError):
                if self.request():
                    self.at = time.monotonic()
            time.sleep(0.01)


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("restarts")) as broker:
        yield broker


def requests(settings: ClientSettings, stack: ExitStack) -> Iterator[Callable[[], bool]]:
    """An append, a look at metadata and at bounds, and a tail."""
    metadata = MetadataClient(settings)
    stack.callback(metadata.close)
    yield lambda: metadata.topics(LOG) is not None
    kafka = KafkaBroker(settings)
    stack.callback(kafka.close)
    yield lambda: bool(kafka.logs.append([(LOG, b"x")]))
    yield lambda: bool(kafka.logs.bounds(LOG))
    tail = kafka.logs.tail({LOG: Offset(0)})
    stack.callback(tail.close)
    yield lambda: bool(tail.poll(100))


def test_every_client_is_served_again(
    own: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", 3.0)
    settings = ClientSettings(own.bootstrap)
    kafka, stopping = KafkaBroker(settings), threading.Event()
    kafka.topics.create([TopicSpec(LOG, 1, TopicKind.LOG)])
    kafka.close()
    with ExitStack() as stack:
        busy = [
            Busy(request, stopping)
            for _ in range(OF_EACH)
            for request in requests(settings, stack)
        ]
        for restart in range(RESTARTS):
            time.sleep(2)
            own.stop()
            time.sleep(1 if restart % 2 else 9)
            own.start()
            back = time.monotonic()
            while waiting := [number for number, one in enumerate(busy) if one.at <= back]:
                assert time.monotonic() < back + BACK_S, (restart, waiting)
                time.sleep(0.1)
        stopping.set()
        for one in busy:
            one.thread.join(60)
