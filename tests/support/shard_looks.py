"""A broker in memory as `slackwater shard` sees it."""

from collections.abc import Iterator
from contextlib import contextmanager

from streams.app.shard.attach import Attached
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryRawReader
from tests.support.shard_clients import client


@contextmanager
def look(made: MemoryBroker) -> Iterator[Attached]:
    with client(made) as shards:
        yield Attached("sw", shards, made.topics, MemoryRawReader(made.store))
