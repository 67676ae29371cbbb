"""The records of an interval as columns, whose bytes are made for one transaction at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa

from schemas.pieces import joined
from schemas.rows import RowSchema, encode_rows
from schemas.tuple_elements import encoded
from streams.ids import Topic
from streams.kafka.client.transactions import HeaderList, OutRecord, OutRecords
from streams.storage.sinks.sink import Flags, Integers
from streams.trace.columns import new_runs

TIME_HEADER = "slackwater-time"
MOST_BYTES = 1 << 28
"""Bytes of the columns that are encoded at once, for an array of bytes holds at most 2 GiB."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the keys: plain values, or their elements (`schemas.tuple_elements`)."""

    array: pa.Array
    is_encoded: bool = False

    def elements(self, first: int, last: int) -> pa.BinaryArray:
        """The elements of some rows."""
        some = self.array.slice(first, last - first)
        return some if self.is_encoded else encoded(some)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records, in order. Shape: of each column, of tombstones and of times one entry a record.

    `values` are what `schemas.rows.encode_rows` takes.
    """

    topic: Topic
    rows: RowSchema
    keys: Sequence[KeyColumn]
    values: Sequence[pa.Array]
    tombstones: Flags
    times: Integers

    def __len__(self) -> int:
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns, before they are encoded."""
        return self._size(0, len(self))

    def __iter__(self) -> Iterator[OutRecord]:
        """Each record by itself."""
        yield from self.between(0, len(self))

    def between(self, first: int, last: int) -> OutRecords:
        """The records [first, last)."""
        if first == last:
            return OutRecords(self.topic, [], [], [])
        if last - first > 1 and self._size(first, last) > MOST_BYTES:
            middle = (first + last) // 2
            left, right = self.between(first, middle), self.between(middle, last)
            return OutRecords(
                self.topic,
                left.keys + right.keys,
                left.values + right.values,
                left.headers + right.headers,
            )
        keys = joined(*(key.elements(first, last) for key in self.keys))
        return OutRecords(
            self.topic,
            keys.to_numpy(zero_copy_only=False).tolist(),
            self._values(first, last),
            _headers(self.times[first:last]),
        )

    def _size(self, first: int, last: int) -> int:
        arrays = [*self.values, *(key.array for key in self.keys)]
        return sum(array.slice(first, last - first).nbytes for array in arrays)

    def _values(self, first: int, last: int) -> list[bytes | None]:
        columns = [column.slice(first, last - first) for column in self.values]
        gone = self.tombstones[first:last]
        if not gone.any():
            every = encode_rows(self.rows, columns).to_numpy(zero_copy_only=False)
            return list(every)
        there = np.flatnonzero(~gone)
        some = encode_rows(self.rows, [column.take(pa.array(there)) for column in columns])
        values = np.full(len(gone), None, object)
        values[there] = some.to_numpy(zero_copy_only=False)
        return list(values)


def _headers(times: Integers) -> list[HeaderList]:
    """The headers of each record; those of records of one time are one list."""
    starts = np.flatnonzero(new_runs(times.view(np.uint64)))
    texts = pa.array(times[starts]).cast(pa.string()).cast(pa.binary()).to_pylist()
    headers = map(list, zip(zip(repeat(TIME_HEADER), texts, strict=False), strict=True))
    shared = np.fromiter(headers, object, len(texts))
    return list(np.repeat(shared, np.diff(np.append(starts, len(times)))))
