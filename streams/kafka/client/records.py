"""Records of a topic with all their Kafka metadata, for display.

Dataflows read columns (`raw`); here a record is an object. As there, only committed records are
read, without a group.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaException, Message, TopicPartition

from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import read_fault
from streams.kafka.client.headers import headers_of
from streams.kafka.client.ranges_reading import behind, check
from streams.kafka.client.raw import COMMITTED
from streams.kafka.settings import ClientSettings

_AT_ONCE = 500
_WAIT_S = 0.1


class TopicRecord(NamedTuple):
    """A record. Units: `timestamp` in milliseconds since 1970, -1 if there is none."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records(
    settings: ClientSettings,
    topic: Topic,
    starts: Mapping[int, Offset],
    ends: Mapping[int, Offset] | None = None,
) -> Iterator[Sequence[TopicRecord]]:
    """Yield the committed records of some partitions in batches; endless without `ends`.

    A tenth of a second without records gives an empty batch, so that the caller may stop.
    Errors: Truncated if retention deleted records before they were read; Determinate.
    """
    consumer = clients.consumer(settings, COMMITTED, {})
    positions = dict(starts)
    try:
        consumer.assign(
            [TopicPartition(topic, number, start) for number, start in starts.items()]
        )
        while ends is None or any(
            positions[partition] < end for partition, end in ends.items()
        ):
            messages = consumer.consume(_AT_ONCE, _WAIT_S)
            batch = [
                _record(message)
                for message in messages
                if _is_record(message, topic, positions)
            ]
            yield [
                record
                for record in batch
                if ends is None or record.offset < ends[record.partition]
            ]
    except KafkaException as error:
        raise read_fault(f"read {topic}", error) from error
    finally:
        consumer.close()


def _is_record(message: Message, topic: Topic, positions: dict[int, Offset]) -> bool:
    """Whether the message is a record, not an event of the client; records its position."""
    partition = message.partition()
    if partition is not None:
        position = positions[partition]
        if message.error() is not None:
            check(message, topic, partition, position)
        positions[partition] = Offset(max(position, behind(message)))
    elif (error := message.error()) is not None:
        raise read_fault(f"read {topic}", error)
    return message.error() is None


def _record(message: Message) -> TopicRecord:
    _, timestamp = message.timestamp()
    return TopicRecord(
        message.partition() or 0,
        message.offset() or 0,
        timestamp,
        message.key(),
        message.value(),
        tuple(headers_of(message) or ()),
    )
