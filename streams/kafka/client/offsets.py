"""Looks up offsets of topics: the readable range of each partition, and the first after a time.

And the broker's id of a topic, by which a topic that was created again is another.

The end of a partition is its last stable offset (rule 30).

While partitions change leaders librdkafka may answer without an error and without an offset
(-1001). Such an answer counts as none: as an end it would say that the topic lost its records.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    OffsetSpec,
    TopicDescription,
)

from streams.ids import Offset, Topic
from streams.kafka.client.clients import ANSWER_TIMEOUT_S
from streams.kafka.client.error_mapping import GONE, UNSETTLED, cause_of, read_fault
from streams.kafka.topics import OffsetRange

T = TypeVar("T")

_PASSING_S = 0.02
_NONE_AFTER = -1
"""The offset of a time after the last record."""


def ends(
    admin: AdminClient, topic: Topic, answer_s: float = ANSWER_TIMEOUT_S
) -> dict[int, OffsetRange]:
    """Return the readable range of each partition. Each request may take `answer_s`.

    Errors: Determinate, also if the topic does not exist.
    """
    return _settled(topic, lambda: _ends(admin, topic, answer_s))


def topic_id(admin: AdminClient, topic: Topic, answer_s: float) -> str | None:
    """Return the broker's id of a topic; None if it does not exist. Errors: Determinate."""
    try:
        return str(_described(admin, topic, answer_s).topic_id)
    except KafkaException as error:
        if cause_of(error).code() in GONE:
            return None
        raise read_fault(f"describe topic {topic}", error) from error


def known(offset: int, least: int = 0) -> Offset:
    """Return an offset that brokers answered. Errors: KafkaException if it is none."""
    if offset < least:
        nobody = KafkaError.LEADER_NOT_AVAILABLE
        raise KafkaException(KafkaError(nobody, f"no offset was answered ({offset})"))
    return Offset(offset)


def highs(
    admin: AdminClient, topic: Topic, partitions: Collection[int], answer_s: float
) -> dict[int, Offset]:
    """Return the end of each of these partitions. Errors: as `ends`."""
    places = [TopicPartition(topic, partition) for partition in partitions]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the client leaves it untyped
    return _settled(topic, lambda: _offsets(admin, places, latest, answer_s))


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


def _ends(admin: AdminClient, topic: Topic, answer_s: float) -> dict[int, OffsetRange]:
    partitions = _partitions(admin, topic, answer_s)
    lows = _offsets(admin, partitions, OffsetSpec.earliest(), answer_s)  # type: ignore[no-untyped-call] # the client leaves it untyped
    highs = _offsets(admin, partitions, OffsetSpec.latest(), answer_s)  # type: ignore[no-untyped-call] # as above
    return {number: OffsetRange(lows[number], highs[number]) for number in sorted(lows)}


def _at_time(admin: AdminClient, topic: Topic, ms: int) -> dict[int, Offset]:
    partitions = _partitions(admin, topic)
    offsets = _offsets(admin, partitions, OffsetSpec.for_timestamp(ms), least=_NONE_AFTER)
    highs = _offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call] # as above
    return {p: highs[p] if offsets[p] < 0 else offsets[p] for p in sorted(offsets)}


def _partitions(
    admin: AdminClient, topic: Topic, answer_s: float = ANSWER_TIMEOUT_S
) -> list[TopicPartition]:
    described = _described(admin, topic, answer_s)
    return [TopicPartition(topic, partition.id) for partition in described.partitions]


def _described(admin: AdminClient, topic: Topic, answer_s: float) -> TopicDescription:
    futures = admin.describe_topics(TopicCollection([topic]), request_timeout=answer_s)
    description: TopicDescription = futures[topic].result()
    return description


def _offsets(
    admin: AdminClient,
    partitions: Sequence[TopicPartition],
    spec: OffsetSpec,
    answer_s: float = ANSWER_TIMEOUT_S,
    least: int = 0,
) -> dict[int, Offset]:
    answers = admin.list_offsets(
        dict.fromkeys(partitions, spec),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=answer_s,
    )
    return {
        partition.partition: known(answer.result().offset, least)
        for partition, answer in answers.items()
    }
