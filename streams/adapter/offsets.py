"""Resolves the START FROM and RESUME FROM clauses to offsets.

They are looked up once, when the statement is executed, and are in the catalog from then on: a
restart and every replica begin at the same ones.
"""

from collections.abc import Mapping
from typing import assert_never

from streams.compute.description import Start
from streams.errors import InvalidStatement
from streams.ids import Topic
from streams.kafka.topics import OffsetRange, Topics
from streams.plan.sql.offsets import AtTime, Earliest, Latest, Offsets, Place


def start(place: Place, topic: Topic, topics: Topics) -> Start:
    """Return where a new source begins. Errors: InvalidStatement, Determinate.

    From the earliest message on it takes what the topic holds when it is read first.
    """
    return Start() if isinstance(place, Earliest) else Start(0, offsets(place, topic, topics))


def offsets(place: Place, topic: Topic, topics: Topics) -> tuple[tuple[int, int], ...]:
    """Return the offset in each partition. Errors: InvalidStatement, Determinate."""
    ends = topics.ends(topic)
    lows = {partition: int(end.low) for partition, end in ends.items()}
    match place:
        case Earliest():
            begins = lows
        case Latest():
            begins = {partition: int(end.high) for partition, end in ends.items()}
        case Offsets(chosen):
            _refuse_missing(topic, dict(chosen), ends)
            begins = {**lows, **dict(chosen)}
        case AtTime(ms):
            later = topics.at_time(topic, ms)
            begins = {p: max(low, later.get(p, low)) for p, low in lows.items()}
        case _:
            assert_never(place)
    return tuple(sorted(begins.items()))


def _refuse_missing(
    topic: Topic, chosen: Mapping[int, int], ends: Mapping[int, OffsetRange]
) -> None:
    """Errors: InvalidStatement for an offset that the topic does not hold."""
    for partition, offset in chosen.items():
        range_ = ends.get(partition)
        if range_ is None:
            raise InvalidStatement(
                f"topic {topic} has no partition {partition}",
                f"its partitions are 0 to {max(ends, default=0)}",
            )
        if not range_.low <= offset <= range_.high:
            raise InvalidStatement(
                f"topic {topic}, partition {partition} does not hold offset {offset}",
                f"the first message is at offset {range_.low}, the next one will be at"
                f" {range_.high}",
            )
