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
        self._settings = settings
        self._group = group
        self._client: Consumer | None = None

    def load(self, topic: Topic, partitions: int) -> dict[int, Position]:
        """What was noted of a topic's partitions. Errors: Determinate."""
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        try:
            found = self._consumer().committed(asked, timeout=clients.ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise read_fault(f"positions in {topic}", error) from error
        noted = {each.partition: position_of(each) for each in found if each.error is None}
        return {number: each for number, each in noted.items() if each is not None}

    def save(self, topic: Topic, positions: Mapping[int, Position]) -> None:
        """Note positions. Errors: Determinate."""
        offsets = [
            TopicPartition(topic, number, each.offset, metadata=str(each.since_ms))
            for number, each in positions.items()
        ]
        try:
            self._consumer().commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise read_fault(f"note positions in {topic}", error) from error

    def _consumer(self) -> Consumer:
        if self._client is None:
            self._client = clients.consumer(self._settings, {"group.id": self._group}, {})
        return self._client

    def close(self) -> None:
        """Release the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


def position_of(noted: TopicPartition) -> Position | None:
    """The position in a group's offset; None when there is none, or somebody else's."""
    text = noted.metadata or ""
    if noted.offset < 0 or not text.isdecimal():
        return None
    return Position(Offset(noted.offset), int(text))
