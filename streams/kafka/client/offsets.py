"""Looks up offsets of topics: the readable range of each partition, and the first after a time.

And the broker's id of a topic, by which a topic that was created again is another.

The end of a partition is its last stable offset (rule 30).

While partitions change leaders librdkafka may answer without an error and without an offset
(-1001). Such an answer counts as none: as an end it would say that the topic lost its records.

What is asked of many topics takes as many requests as of one. Each has an answer of its own: an
error of one costs the others nothing, and one whose leaders are not known yet has none.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
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
    ListOffsetsResultInfo,
    OffsetSpec,
    TopicDescription,
)

from streams.errors import Determinate
from streams.ids import Offset, Topic
from streams.kafka.client.clients import ANSWER_TIMEOUT_S
from streams.kafka.client.error_mapping import GONE, UNSETTLED, cause_of, read_fault
from streams.kafka.topics import Answers, OffsetRange

T = TypeVar("T")

_Futures = Mapping[Topic, Mapping[int, Future[ListOffsetsResultInfo]]]

NO_LEADERS = frozenset({KafkaError._NOENT})  # noqa: SLF001 -- the client has no other name for it
"""What a request ends with if it is of such partitions alone; also if their topic is gone."""

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


def ends_of_all(
    admin: AdminClient, topics: Collection[Topic], answer_s: float
) -> Answers[dict[int, OffsetRange]]:
    """Return the readable range of each partition of topics, with four requests for all."""
    described = _each(
        "ends", {topic: f.result for topic, f in _descriptions(admin, topics, answer_s).items()}
    )
    places = {
        topic: [partition.id for partition in description.partitions]
        for topic, description in described.items()
        if not isinstance(description, Determinate)
    }
    lows = _futures(admin, places, OffsetSpec.earliest(), answer_s)  # type: ignore[no-untyped-call] # the client leaves it untyped
    # ends that are older than the starts could lie before them
    wait([future for futures in lows.values() for future in futures.values()])
    highs = _futures(admin, places, OffsetSpec.latest(), answer_s)  # type: ignore[no-untyped-call] # as above
    ranges = {topic: partial(_ranges, lows[topic], highs[topic]) for topic in places}
    failed = {t: error for t, error in described.items() if isinstance(error, Determinate)}
    return {**failed, **_each("ends", ranges)}


def highs_of_all(
    admin: AdminClient, places: Mapping[Topic, Collection[int]], answer_s: float
) -> Answers[dict[int, Offset]]:
    """Return the ends of these partitions of topics, with two requests for all."""
    futures = _futures(admin, places, OffsetSpec.latest(), answer_s)  # type: ignore[no-untyped-call] # as above
    return _each("ends", {topic: partial(_answered, futures[topic]) for topic in places})


def ids_of_all(
    admin: AdminClient, topics: Collection[Topic], answer_s: float
) -> Answers[str | None]:
    """Return the broker's ids of topics, with one request; None for one that is not there."""
    futures = _descriptions(admin, topics, answer_s)
    return _each("id", {topic: partial(_id, future) for topic, future in futures.items()})


def known(offset: int, least: int = 0) -> Offset:
    """Return an offset that brokers answered. Errors: KafkaException if it is none."""
    if offset < least:
        nobody = KafkaError.LEADER_NOT_AVAILABLE
        raise KafkaException(KafkaError(nobody, f"no offset was answered ({offset})"))
    return Offset(offset)


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


def _each(what: str, asked: Mapping[Topic, Callable[[], T]]) -> dict[Topic, T | Determinate]:
    answers: dict[Topic, T | Determinate] = {}
    for topic, answer in asked.items():
        try:
            answers[topic] = answer()
        except KafkaException as error:
            if cause_of(error).code() not in UNSETTLED | NO_LEADERS:
                answers[topic] = read_fault(f"{what} of topic {topic}", error)
    return answers


def _id(future: Future[TopicDescription]) -> str | None:
    try:
        return str(future.result().topic_id)
    except KafkaException as error:
        if cause_of(error).code() in GONE:
            return None
        raise


def _ends(admin: AdminClient, topic: Topic, answer_s: float) -> dict[int, OffsetRange]:
    partitions = _partitions(admin, topic, answer_s)
    lows = _offsets(admin, topic, partitions, OffsetSpec.earliest(), answer_s)  # type: ignore[no-untyped-call] # as above
    highs = _offsets(admin, topic, partitions, OffsetSpec.latest(), answer_s)  # type: ignore[no-untyped-call] # as above
    return {number: OffsetRange(lows[number], highs[number]) for number in sorted(lows)}


def _ranges(
    lows: Mapping[int, Future[ListOffsetsResultInfo]],
    highs: Mapping[int, Future[ListOffsetsResultInfo]],
) -> dict[int, OffsetRange]:
    low, high = _answered(lows), _answered(highs)
    return {number: OffsetRange(low[number], high[number]) for number in sorted(low)}


def _at_time(admin: AdminClient, topic: Topic, ms: int) -> dict[int, Offset]:
    partitions = _partitions(admin, topic)
    offsets = _offsets(
        admin, topic, partitions, OffsetSpec.for_timestamp(ms), least=_NONE_AFTER
    )
    highs = _offsets(admin, topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call] # as above
    return {p: highs[p] if offsets[p] < 0 else offsets[p] for p in sorted(offsets)}


def _partitions(
    admin: AdminClient, topic: Topic, answer_s: float = ANSWER_TIMEOUT_S
) -> list[int]:
    described = _descriptions(admin, [topic], answer_s)[topic].result()
    return [partition.id for partition in described.partitions]


def _descriptions(
    admin: AdminClient, topics: Collection[Topic], answer_s: float
) -> dict[Topic, Future[TopicDescription]]:
    if not topics:
        return {}
    futures = admin.describe_topics(TopicCollection([*topics]), request_timeout=answer_s)
    return {Topic(topic): future for topic, future in futures.items()}


def _offsets(
    admin: AdminClient,
    topic: Topic,
    partitions: Sequence[int],
    spec: OffsetSpec,
    answer_s: float = ANSWER_TIMEOUT_S,
    least: int = 0,
) -> dict[int, Offset]:
    return _answered(_futures(admin, {topic: partitions}, spec, answer_s)[topic], least)


def _futures(
    admin: AdminClient,
    places: Mapping[Topic, Collection[int]],
    spec: OffsetSpec,
    answer_s: float,
) -> _Futures:
    wanted = [TopicPartition(topic, number) for topic in places for number in places[topic]]
    by_topic: dict[Topic, dict[int, Future[ListOffsetsResultInfo]]] = {t: {} for t in places}
    if not wanted:
        return by_topic
    answers = admin.list_offsets(
        dict.fromkeys(wanted, spec),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=answer_s,
    )
    for place, answer in answers.items():
        by_topic[Topic(place.topic)][place.partition] = answer
    return by_topic


def _answered(
    futures: Mapping[int, Future[ListOffsetsResultInfo]], least: int = 0
) -> dict[int, Offset]:
    return {number: known(answer.result().offset, least) for number, answer in futures.items()}
