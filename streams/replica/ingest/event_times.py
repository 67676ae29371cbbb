"""Event times of the rows of a source with a watermark, and what is late.

A row's event time is the value of its column, in milliseconds, rounded down. A message whose
value is NULL, beyond the year 9999, or more than the declared time beyond the timestamp of its
record, cannot be decoded: it does not touch the watermark (rule 29). The record's timestamp is
the measure, not a clock, so that a message that is read again is judged as before.

A row is late if its event time is below the time of the load, which is the shard's upper. What
becomes of it is declared; a row that stays happens at the time of the load.

A message without a value (ENVELOPE UPSERT) has the event time of its key, or of its record, if
the column is from there; one that has its event time in the value is refused.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.description import IngestionDescription
from streams.compute.event_time import Seen
from streams.ids import Timestamp
from streams.plan.metadata import Watermark
from streams.plan.physical import Column
from streams.trace.columns import Flags, Ints, int64, one_array

Reading = Literal["fresh", "again", "owed"]
"""Why messages of a source with a watermark are read (`streams.compute.event_time`).

- `fresh`: for the first time.
- `again`: for the rows that are pending, at or beyond the time of the load.
- `owed`: for what was refused when they were read before.
"""


@dataclass(frozen=True, slots=True)
class ReadMode:
    """Why messages are read, and which of the refused ones are dead letters already.

    Those are before the offsets of `settled`, pairs of a partition and an offset. `letters_at`
    is the time of dead letters; None: that of the load.
    """

    reading: Reading = "fresh"
    settled: tuple[tuple[int, int], ...] = ()
    letters_at: Timestamp | None = None

    def is_open(self, partitions: Ints, offsets: Ints) -> Flags:
        """Return for each message whether it is not settled yet."""
        before = dict(self.settled)
        numbers, places = np.unique(partitions, return_inverse=True)
        firsts = np.array([before.get(number, 0) for number in numbers.tolist()], np.int64)
        return offsets >= firsts[places]


FRESH = ReadMode()

_PER_MS = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}

NOTHING = Seen()


def together(seen: Sequence[Seen]) -> Seen:
    """Return what several tasks saw."""
    greatest: dict[int, int] = {}
    late, skipped, bad, messages = (Counter[int]() for _ in range(4))
    for one in seen:
        for partition, time in one.greatest.items():
            greatest[partition] = max(time, greatest.get(partition, time))
        late.update(one.late)
        skipped.update(one.skipped)
        bad.update(one.bad)
        messages.update(one.messages)
    refused = sorted({partition for one in seen for partition in one.refused})
    counts = map(dict, (late, skipped, bad, messages))
    return Seen(greatest, tuple(refused), *counts)


class EventTimes:
    """Reads the event times of one source."""

    def __init__(self, declared: Watermark, place: int) -> None:
        self._declared, self.place = declared, place

    def read(self, moments: pa.ChunkedArray, messages: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return the event time of each row in milliseconds, and why a message is refused.

        Shape: `moments` is the column at `place`; `messages` has `timestamp`, milliseconds.
        Where a reason is given the event time means nothing.
        """
        values, times = one_array(moments), milliseconds(moments)
        records = one_array(messages["timestamp"])
        column = self._declared.column
        null = f'column "{column}" is the event time and is NULL'
        missing = pc.if_else(values.is_null(), null, _NO)
        unknown = pc.if_else(
            records.is_null(), "the record has no timestamp to check its event time", _NO
        )
        latest = np.minimum(int64(records.fill_null(0)), _LAST) + self._declared.ahead_ms
        beyond = pa.array(int64(times) > latest)
        ahead = pc.binary_join_element_wise(
            f'column "{column}": event time ',
            times.filter(beyond).cast(pa.string()),
            f" ms is more than {self._declared.ahead_ms} ms after the record's timestamp, ",
            records.filter(beyond).cast(pa.string()),
            " ms",
            "",
        )
        never = pa.array(int64(times) > LAST_MS)
        endless = pc.binary_join_element_wise(
            f'column "{column}": event time ',
            times.filter(never).cast(pa.string()),
            " ms is beyond the year 9999",
            "",
        )
        beyond_all = _only(never, endless)
        return times, pc.coalesce(missing, unknown, beyond_all, _only(beyond, ahead))


LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the last one that Spark's reports can say."""

_NO = pa.scalar(None, pa.string())
_LAST = 1 << 61


def reader_of(source: IngestionDescription, columns: Sequence[Column]) -> EventTimes | None:
    """Return the reader of a source's event times; None for one without a watermark."""
    declared = source.watermark
    if declared is None:
        return None
    names = [column.name for column in columns]
    return EventTimes(declared, names.index(declared.column))


def refusal_of_deletions(source: IngestionDescription) -> pa.Scalar:
    """Return why a message without a value is refused; NULL if it has an event time."""
    declared = source.watermark
    beside = {*source.keys, *(included.column for included in source.included)}
    if declared is None or declared.column in beside:
        return _NO
    return pa.scalar(
        f'no value, so no column "{declared.column}", the event time: a message that deletes'
        " its key needs the event time in the key, or from INCLUDE TIMESTAMP"
    )


def milliseconds(moments: pa.ChunkedArray) -> pa.Array:
    """Return timestamps as milliseconds since 1970, rounded down; NULL as 0."""
    values = one_array(moments)
    per_ms = _PER_MS[values.type.unit]
    raw = int64(values.fill_null(0).cast(pa.int64()))
    return pa.array(raw // per_ms if per_ms else raw * 1_000)


def greatest(partitions: Ints, times: Ints) -> dict[int, int]:
    """Return the greatest of the times of each partition."""
    numbers, places = np.unique(partitions, return_inverse=True)
    latest = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(latest, places, times)
    return dict(zip(numbers.tolist(), latest.tolist(), strict=True))


def reasons_of_late(times: pa.Array, late: Flags, lower: Timestamp) -> pa.Array:
    """Return for each late row why it is refused."""
    flags = pa.array(late)
    texts = pc.binary_join_element_wise(
        "late: event time ",
        times.filter(flags).cast(pa.string()),
        f" ms is before upper {lower} ms",
        "",
    )
    return _only(flags, texts)


def _only(flags: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the texts in the places of the rows that are flagged, NULL in the others."""
    return pc.replace_with_mask(pa.nulls(len(flags), pa.string()), flags, texts)
