"""A broker in memory as `slackwater shard` sees it."""

from collections.abc import Iterator
from contextlib import contextmanager

from streams.app.shard.attach import AttachedNamespace
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from tests.support.shard_clients import client


@contextmanager
def look(kafka: MemoryBroker) -> Iterator[AttachedNamespace]:
    with client(kafka) as shards:
        yield AttachedNamespace("sw", shards, kafka.topics, MemoryRawReader(kafka.store))
