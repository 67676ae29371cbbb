"""Every implementation of the log, one after the other, under the same tests."""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

_names = itertools.count()

IMPLEMENTATIONS = ["memory", pytest.param("kafka", marks=pytest.mark.integration)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="session")
def real(broker: EmbeddedBroker) -> Iterator[KafkaBroker]:
    """A client of the embedded Kafka broker, shared by all tests and closed after them."""
    broker_client = KafkaBroker(ClientSettings(broker.bootstrap))
    yield broker_client
    broker_client.close()


@pytest.fixture(params=IMPLEMENTATIONS)
def storage(request: pytest.FixtureRequest) -> MemoryBroker | KafkaBroker:
    """Each broker in turn, in memory and Kafka: a test that passes proves that they agree."""
    if request.param == "memory":
        return MemoryBroker(now_ms)
    real: KafkaBroker = request.getfixturevalue("real")
    return real


@pytest.fixture
def make(storage: MemoryBroker | KafkaBroker) -> Callable[..., Topic]:
    """Makes a topic with a name of its own."""

    def make(kind: TopicKind = TopicKind.LOG, partitions: int = 1) -> Topic:
        name = Topic(f"contract.{next(_names)}.{kind}")
        storage.topics.create([TopicSpec(name, partitions, kind)])
        return name

    return make
