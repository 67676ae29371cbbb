"""Read positions of topics, stored as the committed offsets of a consumer group.

No consumer joins the group: a position is data that outlives its process. The brokers drop it
with its topic, and if nothing was committed for a while (`offsets.retention.minutes`, a week);
then the reader starts over. So a position may save work, but correctness may not depend on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import read_fault
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.settings import ClientSettings


@dataclass(frozen=True, slots=True)
class Position:
    """A partition was read up to `offset`, by a scan that started at `since_ms`.

    Units: milliseconds since the epoch.
    """

    offset: Offset
    since_ms: int


class KafkaPositions:
    """Positions in one group. One thread; the client is created by the first call."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._client = _Client(settings, group)

    def load(self, topic: Topic, partitions: int) -> dict[int, Position]:
        """Return the saved positions of a topic's partitions. Errors: Determinate."""
        requested = [TopicPartition(topic, number) for number in range(partitions)]
        committed = self._client.committed(requested, f"positions in {topic}")
        noted = {
            partition.partition: position_of(partition)
            for partition in committed
            if partition.error is None
        }
        return {number: position for number, position in noted.items() if position is not None}

    def save(self, topic: Topic, positions: Mapping[int, Position]) -> None:
        """Save positions. Errors: Determinate."""
        offsets = [
            TopicPartition(topic, number, position.offset, metadata=str(position.since_ms))
            for number, position in positions.items()
        ]
        self._client.commit(offsets, f"positions in {topic}")

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class Mark:
    """`[lo, hi)` was begun `starts` times without a recorded end."""

    lo: Offset
    hi: Offset
    starts: int


class KafkaMarks:
    """Crash marks in a group's offset of the first partition of a topic. One thread."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._client = _Client(settings, group)

    def load(self, topic: Topic) -> Mark | None:
        """Return the newest mark of a topic. Errors: Determinate."""
        (partition,) = self._client.committed([TopicPartition(topic, 0)], f"mark in {topic}")
        return None if partition.error is not None else mark_of(partition)

    def save(self, topic: Topic, mark: Mark, *, is_waited_for: bool) -> None:
        """Replace a mark; without waiting it may be lost. Errors: Determinate."""
        text = f"{mark.hi} {mark.starts}"
        offset = TopicPartition(topic, 0, mark.lo, metadata=text)
        self._client.commit([offset], f"mark in {topic}", is_waited_for=is_waited_for)

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


class _Client:
    """Reads and writes the offsets of a group; created by the first call."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._consumer: ReconnectingClient[Consumer] = ReconnectingClient(
            lambda: clients.consumer(settings, {"group.id": group}, {})
        )

    def committed(self, partitions: list[TopicPartition], what: str) -> list[TopicPartition]:
        """Return the offsets of the group. Errors: Determinate."""
        try:
            consumer = self._consumer.get()
            return consumer.committed(partitions, timeout=clients.ANSWER_TIMEOUT_S)
        except KafkaException as error:
            self._consumer.failed(error)
            raise read_fault(what, error) from error

    def commit(
        self, offsets: list[TopicPartition], what: str, *, is_waited_for: bool = True
    ) -> None:
        """Replace offsets. Errors: Determinate."""
        try:
            if is_waited_for:  # two calls: the types differ
                self._consumer.get().commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.get().commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._consumer.failed(error)
            raise read_fault(f"save {what}", error) from error

    def close(self) -> None:
        """Release the connection."""
        consumer = self._consumer.drop()
        if consumer is not None:
            consumer.close()


def position_of(noted: TopicPartition) -> Position | None:
    """Parse the position in a group's offset; None if there is none, or a foreign one."""
    text = noted.metadata or ""
    if noted.offset < 0 or not text.isdecimal():
        return None
    return Position(Offset(noted.offset), int(text))


def mark_of(noted: TopicPartition) -> Mark | None:
    """Parse the mark in a group's offset; None if there is none, or a foreign one."""
    words = (noted.metadata or "").split()
    if noted.offset < 0 or len(words) != len(("hi", "starts")):
        return None
    if not all(word.isdecimal() for word in words):
        return None
    return Mark(Offset(noted.offset), Offset(int(words[0])), int(words[1]))
