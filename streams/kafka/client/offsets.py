"""Looks up offsets of topics: the readable range of each partition, and the first after a time.

The end of a partition is its last stable offset (rule 30).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    OffsetSpec,
)

from streams.ids import Offset, Topic
from streams.kafka.client.clients import ANSWER_TIMEOUT_S
from streams.kafka.client.error_mapping import UNSETTLED, cause_of, read_fault
from streams.kafka.topics import OffsetRange

T = TypeVar("T")

_PASSING_S = 0.02


def ends(admin: AdminClient, topic: Topic) -> dict[int, OffsetRange]:
    """Return the readable range of each partition.

    Errors: Determinate, also if the topic does not exist.
    """
    return _settled(topic, lambda: _ends(admin, topic))


def at_time(admin: AdminClient, topic: Topic, ms: int) -> Mapping[int, Offset]:
    """Return the offset of the first record of each partition at `ms` or later, or its end.

    Units: milliseconds since the epoch, of the records' timestamps. Errors: as `ends`.
    """
    return _settled(topic, lambda: _at_time(admin, topic, ms))


def _settled(topic: Topic, ask: Callable[[], T]) -> T:
    """Ask until the leaders of the partitions are known."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if cause_of(error).code() not in UNSETTLED or time.monotonic() > deadline:
                raise read_fault(f"ends of topic {topic}", error) from error
        time.sleep(_PASSING_S)


def _ends(admin: AdminClient, topic: Topic) -> dict[int, OffsetRange]:
    partitions = _partitions(admin, topic)
    lows = _offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call] # the client leaves it untyped
    highs = _offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call] # as above
    return {number: OffsetRange(lows[number], highs[number]) for number in sorted(lows)}


def _at_time(admin: AdminClient, topic: Topic, ms: int) -> dict[int, Offset]:
    partitions = _partitions(admin, topic)
    offsets = _offsets(admin, partitions, OffsetSpec.for_timestamp(ms))
    highs = _offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call] # as above
    return {p: highs[p] if offsets[p] < 0 else offsets[p] for p in sorted(offsets)}


def _partitions(admin: AdminClient, topic: Topic) -> list[TopicPartition]:
    futures = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_TIMEOUT_S)
    return [
        TopicPartition(topic, partition.id) for partition in futures[topic].result().partitions
    ]


def _offsets(
    admin: AdminClient, partitions: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[int, Offset]:
    answers = admin.list_offsets(
        dict.fromkeys(partitions, spec),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=ANSWER_TIMEOUT_S,
    )
    return {
        partition.partition: Offset(answer.result().offset)
        for partition, answer in answers.items()
    }
