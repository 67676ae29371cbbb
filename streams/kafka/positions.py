"""How far a topic was read, kept by the brokers as the offsets of a consumer group.

Nobody joins the group: a position is a note that outlives its process. The brokers drop it
with its topic, and when nothing was noted for a while (`offsets.retention.minutes`, a week);
then the reader begins again. So a position may save work, and nothing may hang on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.ids import Offset, Topic
from streams.kafka import clients
from streams.kafka.faults import read_fault
from streams.kafka.settings import ClientSettings


@dataclass(frozen=True, slots=True)
class Position:
    """A partition was read up to `offset`, by a reading that began at its start at `since_ms`.

    Units: milliseconds since the epoch.
    """

    offset: Offset
    since_ms: int


class KafkaPositions:
    """Positions of one group. One thread; the client is made by the first call."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._client = _Client(settings, group)

    def load(self, topic: Topic, partitions: int) -> dict[int, Position]:
        """What was noted of a topic's partitions. Errors: Determinate."""
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        found = self._client.committed(asked, f"positions in {topic}")
        noted = {each.partition: position_of(each) for each in found if each.error is None}
        return {number: each for number, each in noted.items() if each is not None}

    def save(self, topic: Topic, positions: Mapping[int, Position]) -> None:
        """Note positions. Errors: Determinate."""
        offsets = [
            TopicPartition(topic, number, each.offset, metadata=str(each.since_ms))
            for number, each in positions.items()
        ]
        self._client.commit(offsets, f"positions in {topic}")

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


@dataclass(frozen=True, slots=True)
class Mark:
    """`[lo, hi)` was begun `starts` times by who has not said what came of it."""

    lo: Offset
    hi: Offset
    starts: int


class KafkaMarks:
    """Marks of one group in the first partition of topics. One thread, as `KafkaPositions`."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._client = _Client(settings, group)

    def load(self, topic: Topic) -> Mark | None:
        """The newest mark of a topic. Errors: Determinate."""
        (found,) = self._client.committed([TopicPartition(topic, 0)], f"mark in {topic}")
        return None if found.error is not None else mark_of(found)

    def save(self, topic: Topic, mark: Mark, *, is_waited_for: bool) -> None:
        """Replace a mark; one that is not waited for may be lost. Errors: Determinate."""
        text = f"{mark.hi} {mark.starts}"
        offset = TopicPartition(topic, 0, mark.lo, metadata=text)
        self._client.commit([offset], f"mark in {topic}", is_waited_for=is_waited_for)

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


class _Client:
    """Reads and writes the offsets of a group; made by the first call."""

    def __init__(self, settings: ClientSettings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._made: Consumer | None = None

    def committed(self, asked: list[TopicPartition], what: str) -> list[TopicPartition]:
        """The offsets of the group. Errors: Determinate."""
        try:
            return self._consumer().committed(asked, timeout=clients.ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise read_fault(what, error) from error

    def commit(
        self, offsets: list[TopicPartition], what: str, *, is_waited_for: bool = True
    ) -> None:
        """Replace offsets. Errors: Determinate."""
        try:
            if is_waited_for:  # two calls: the types differ
                self._consumer().commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer().commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            raise read_fault(f"note {what}", error) from error

    def _consumer(self) -> Consumer:
        if self._made is None:
            self._made = clients.consumer(self._settings, {"group.id": self._group}, {})
        return self._made

    def close(self) -> None:
        """Release the connection."""
        if self._made is not None:
            self._made.close()
            self._made = None


def position_of(noted: TopicPartition) -> Position | None:
    """The position in a group's offset; None when there is none, or somebody else's."""
    text = noted.metadata or ""
    if noted.offset < 0 or not text.isdecimal():
        return None
    return Position(Offset(noted.offset), int(text))


def mark_of(noted: TopicPartition) -> Mark | None:
    """The mark in a group's offset; None when there is none, or somebody else's."""
    words = (noted.metadata or "").split()
    if noted.offset < 0 or len(words) != len(("hi", "starts")):
        return None
    if not all(each.isdecimal() for each in words):
        return None
    return Mark(Offset(noted.offset), Offset(int(words[0])), int(words[1]))
