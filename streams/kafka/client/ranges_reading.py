"""How far ranges of offsets of one topic are read, and what of a batch of messages is in them.

A batch has messages of several partitions in any order, and events between them. A range is
read when its position has reached its end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import numpy as np
from confluent_kafka import Message, TopicPartition

from streams.errors import InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client.error_mapping import (
    END_OF_PARTITION,
    OUT_OF_RANGE,
    UNANSWERED,
    read_fault,
)
from streams.kafka.log import Truncated


class RangesReading:
    """How far ranges of offsets of one topic are read, at most one of each partition."""

    def __init__(self, topic: Topic, wanted: Mapping[int, tuple[Offset, Offset]]) -> None:
        self.topic, self._wanted = topic, wanted
        self.positions = {partition: int(lo) for partition, (lo, _) in wanted.items()}
        self.stopped: set[int] = set()
        """The partitions that are no longer fetched."""

    def __str__(self) -> str:
        first, *others = sorted(self._wanted)
        more = f" and {len(others)} more partitions" if others else ""
        return f"{self.topic}/{first}{more}"

    @property
    def length(self) -> int:
        """The number of offsets."""
        return sum(hi - lo for lo, hi in self._wanted.values())

    @property
    def is_complete(self) -> bool:
        """Whether every range is read."""
        return all(
            self.positions[partition] >= hi for partition, (_, hi) in self._wanted.items()
        )

    @property
    def has_surplus(self) -> bool:
        """Whether records behind a range were read, and dropped."""
        return any(
            self.positions[partition] > hi for partition, (_, hi) in self._wanted.items()
        )

    def ended(self) -> list[int]:
        """The partitions that are read, and still fetched."""
        return [
            partition
            for partition, (_, hi) in self._wanted.items()
            if self.positions[partition] >= hi and partition not in self.stopped
        ]

    def place(self, partition: int) -> TopicPartition:
        """The position of a partition."""
        return TopicPartition(self.topic, partition, self.positions[partition])

    def take(self, messages: Sequence[Message]) -> Iterator[tuple[int, Sequence[Message]]]:
        """Return the records that are in the ranges, by partition. Errors: as `check`."""
        for partition, own in _by_partition(messages):
            if partition not in self.positions:  # an event of the client itself
                _records(own, self.topic, *next(iter(self.positions.items())))
                continue
            records = _records(own, self.topic, partition, self.positions[partition])
            position = max(self.positions[partition], behind(own[-1]))
            _, hi = self._wanted[partition]
            if position > hi:
                records = [record for record in records if (record.offset() or 0) < hi]
            self.positions[partition] = position
            yield partition, records


def rounds(
    topic: Topic, ranges: Sequence[tuple[int, Offset, Offset]]
) -> Iterator[Sequence[int]]:
    """Divide ranges, by their numbers, so that no partition is there twice; empty ones go."""
    numbers: dict[int, list[int]] = {}
    earlier: Counter[int] = Counter()
    for number, (partition, lo, hi) in enumerate(ranges):
        if hi < lo:
            raise InvalidUsage(f"fetch of {topic}/{partition}: [{lo}, {hi})")
        if lo < hi:
            numbers.setdefault(earlier[partition], []).append(number)
            earlier[partition] += 1
    yield from numbers.values()


def _by_partition(messages: Sequence[Message]) -> Iterator[tuple[int, Sequence[Message]]]:
    """Divide messages by their partition; of each in the order in which they came."""
    numbers = [-1 if number is None else number for number in map(Message.partition, messages)]
    partitions = np.array(numbers, np.int64)
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), messages
        return
    order = np.argsort(partitions, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(partitions[order])) + 1):
        chosen = itemgetter(*same.tolist())(messages)
        yield int(partitions[same[0]]), [chosen] if len(same) == 1 else chosen


def _records(
    messages: Sequence[Message], topic: Topic, partition: int, position: int
) -> Sequence[Message]:
    """The records among the messages. Errors: Truncated, Determinate for an error message."""
    errors = list(map(Message.error, messages))
    if not any(errors):
        return messages
    failed = [
        message for message, error in zip(messages, errors, strict=True) if error is not None
    ]
    for message in failed:
        check(message, topic, partition, position)
    return [message for message in messages if message.error() is None]


def behind(message: Message) -> int:
    """The position after a record, or the end of the partition if the event reports that.

    Markers and aborted records are skipped silently: only the end event shows it.
    """
    offset, error = message.offset() or 0, message.error()
    if error is None:
        return offset + 1
    return offset if error.code() == END_OF_PARTITION else 0


def check(message: Message, topic: Topic, partition: int, position: int) -> None:
    """Ignore events that do not end a read. Errors: Truncated, Determinate for all others."""
    error = message.error()
    assert error is not None
    if error.code() in OUT_OF_RANGE:
        raise Truncated(topic, position, f"partition {partition}: {error.str()}")
    # transient errors are retried; a damaged batch would be skipped silently
    if error.code() not in UNANSWERED | {END_OF_PARTITION}:
        raise read_fault(f"fetch {topic}/{partition}", error)
