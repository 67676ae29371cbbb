"""What every benchmark runs on: a fresh environment, a producer, and a reader of shards."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streams.app.environment import Environment, Settings
from streams.app.service_process import now_ms
from streams.bench import bids
from streams.bench.timings import TimingFile
from streams.errors import Determinate
from streams.ids import CollectionId
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.client.raw import RawReader
from streams.kafka.topics import TopicKind, Topics, TopicSpec
from streams.storage.client.id_registry import Directory
from streams.storage.client.shards import Shards
from streams.temporary import temporary_directory

PARTITIONS = 2
PATIENCE_S = 300.0
Say = Callable[[str], None]


@dataclass(slots=True)
class Rig:
    """A running environment with the source `bids`, and the clients to load and read it."""

    environment: Environment
    shards: Shards
    publisher: Publisher
    raw: RawReader
    timings: TimingFile
    say: Say
    topics: Topics

    def create(self, statement: str) -> CollectionId:
        """Run a CREATE and follow what it made."""
        facts = self.environment.sql(statement)[0].facts
        collection = CollectionId(str(facts["id"]))
        Directory(self.shards).find(collection)
        return collection

    @property
    def replica(self) -> int:
        """The process id of the replica, which has started its Spark."""
        pid = self.environment.children["replica"].pid
        assert pid is not None, "the replica runs while its environment does"
        return pid

    def ends(self) -> dict[int, int]:
        """The offsets at which the topic ends now."""
        return {part: high for part, (_, high) in self.raw.ends(bids.TOPIC).items()}

    def await_readable(self, source: CollectionId, views: list[CollectionId]) -> None:
        """Wait until all that is in the topic now is readable in every view.

        Errors: Determinate when it takes too long.
        """
        ends = self.ends()
        self._await(lambda: dict(self.shards.state(source).source or {}) == ends, "source")
        upper = self.shards.state(source).upper
        self._await(
            lambda: all(upper.precedes(self.shards.state(view).upper) for view in views),
            "views",
        )

    def _await(self, done: Callable[[], bool], what: str) -> None:
        if not self.environment.wait(self.shards, done, PATIENCE_S):
            raise Determinate(f"the {what} did not finish in {PATIENCE_S:.0f} s")

    def rest(self, seconds: float) -> None:
        """Let what was started settle."""
        time.sleep(seconds)


@contextmanager
def rig(say: Say, directory: Path | None = None) -> Iterator[Rig]:
    """A rig on an environment of its own, thrown away afterwards."""
    with temporary_directory("slackwater-") as scratch:
        settings = Settings(directory=directory or Path(scratch), timings=True)
        with Environment(settings, say) as environment, rigged(environment, say) as bench:
            yield bench


@contextmanager
def rigged(environment: Environment, say: Say) -> Iterator[Rig]:
    """A rig on a running environment."""
    broker = KafkaBroker(environment.kafka)
    broker.topics.create([TopicSpec(bids.TOPIC, PARTITIONS, TopicKind.RAW)])
    shards = Shards(
        broker.logs,
        broker.chunks,
        broker.topics,
        namespace=environment.settings.namespace,
        now_ms=now_ms,
        pump=True,
    )
    raw = RawReader(environment.kafka)
    timings = TimingFile(environment.replica_state / "timings.jsonl")
    try:
        publisher = Publisher(environment.kafka)
        yield Rig(environment, shards, publisher, raw, timings, say, broker.topics)
    finally:
        raw.close()
        shards.close()
        broker.close()
