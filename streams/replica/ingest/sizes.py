"""Mean sizes of the messages of raw topics, from samples.

A micro-batch takes a number of messages, which Kafka counts by offsets, and its memory follows
their bytes, which Kafka does not report. So a few messages are sampled periodically: at places
that lie evenly over what came since the last sample, which is all of the topic at first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.reclocking import Ends
from streams.errors import SlackwaterError
from streams.ids import Offset, Topic
from streams.replica.ingest.ranges import Slice, length, slices

FIRST = 64
"""Messages from which on the size of a topic's messages is worth to be known."""
EVERY = 10_000
"""Messages between two samples of a topic, at least,"""
EVERY_S = 10.0
"""and the time between them."""
_PLACES = 8
_AT_ONCE = 4


class Fetcher(Protocol):
    """Reads raw topics (`streams.kafka.client.raw`)."""

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        """Return the first records of a range of offsets. Errors: Determinate, Truncated."""

    def rest(self) -> None:
        """Fetch nothing until the next call."""


@dataclass(frozen=True, slots=True)
class MeanSize:
    """The mean size of a topic's messages; 0 if it is unknown. Units: bytes."""

    mean: int = 0
    highs: Mapping[int, int] = field(default_factory=dict)
    """The ends of the partitions when they were sampled."""
    at_s: float = float("-inf")

    def fresh(self, ends: Mapping[int, Ends]) -> tuple[Slice, ...]:
        """The records that arrived since the sample."""
        lows = {p: max(end.low, self.highs.get(p, end.low)) for p, end in ends.items()}
        return slices({p: (lows[p], end.high) for p, end in ends.items()})

    def is_due(self, ends: Mapping[int, Ends], now_s: float) -> bool:
        """Whether enough has come for another sample."""
        least = EVERY if self.mean else FIRST
        return now_s >= self.at_s + EVERY_S and length(self.fresh(ends)) >= least


def sampled(
    reader: Fetcher, topic: Topic, before: MeanSize, ends: Mapping[int, Ends], now_s: float
) -> MeanSize:
    """Sample what came since; a mean that falls is believed by half.

    What cannot be read is left to those who read all of it.
    """
    records, size = 0, 0
    for slice_, offset in places(before.fresh(ends)):
        try:
            messages = reader.fetch(topic, slice_.partition, offset, slice_.hi, _AT_ONCE)
        except SlackwaterError:
            continue
        finally:
            reader.rest()
        records += messages.num_rows
        size += sum(_bytes(messages.column(name)) for name in ("key", "value"))
    highs = {partition: end.high for partition, end in ends.items()}
    if not records:
        return MeanSize(before.mean, highs, now_s)
    mean = max(1, size // records)
    return MeanSize(max(mean, (before.mean + mean) // 2), highs, now_s)


def places(parts: tuple[Slice, ...]) -> list[tuple[Slice, Offset]]:
    """Some offsets that lie evenly over the slices, laid end to end."""
    total, ends = length(parts), list(accumulate(part.length for part in parts))
    count, chosen = min(total, _PLACES), []
    for place in (total * number // count for number in range(count)):
        index = next(i for i, end in enumerate(ends) if place < end)
        slice_ = parts[index]
        chosen.append((slice_, Offset(slice_.hi - (ends[index] - place))))
    return chosen


def _bytes(column: pa.ChunkedArray) -> int:
    """The bytes of the values of a column."""
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
