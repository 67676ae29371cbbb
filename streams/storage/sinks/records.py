"""Turns updates into records of an output topic: keys, Avro values, headers.

A record's key is the tuple of the key columns (`schemas.keys`), its value the row as an Avro
record in single-object encoding (`schemas.rows`) or nothing, a tombstone. The header
`slackwater-time` is the time of the change, in decimal digits. All of them are encoded column
by column; only keys that are not plain (`schemas.tuple_elements`) are encoded one by one.

The schema of the values is in the topic `<namespace>.schemas` as JSON; its key is the
fingerprint that each value carries (8 bytes, as on the wire).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from schemas.keys import pack
from schemas.rows import AS_IT_IS, RowSchema, row_schema
from schemas.tuple_elements import is_plain
from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, Timestamp, Topic
from streams.storage.description import Description
from streams.storage.read.soundness import said_of
from streams.storage.sinks.keyed_updates import KeyedUpdates
from streams.storage.sinks.record_columns import KeyColumn, RecordColumns
from streams.storage.sinks.sink import (
    ErrorUpdates,
    Hashes,
    ImpossibleRetraction,
    SinkChanges,
    Stall,
    assign_sound_times,
    changes,
)
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import advance, contents_at, flatten, hash_columns


@dataclass(frozen=True, slots=True)
class IntervalRecords:
    """The records of an interval, in order, and the state after it.

    `upper` is where the next interval begins: the interval's own upper or, if the sink is
    stalled, the first time that is not sound.
    """

    records: RecordColumns
    live: Hashes
    upper: Timestamp
    stall: str


class RecordEncoder:
    """Encodes the records of one sink. One thread."""

    def __init__(
        self, topic: Topic, columns: Description, keys: Sequence[str], kernel: Kernel
    ) -> None:
        self._topic, self._columns, self._kernel = topic, columns, kernel
        self._keys = [columns.names.index(key) for key in keys]
        self.rows: RowSchema = row_schema(topic, columns.columns)
        self._schema = arrow_schema(columns.types)

    def live(self, updates: pa.Table, time: Timestamp) -> Hashes:
        """The keys that have a row at `time`, a sound time, given the updates up to it."""
        rows = contents_at(flatten([updates], self._schema), time, self._kernel)
        return np.unique(hash_columns(rows, self._keys, self._kernel))

    def decide(
        self,
        live: Hashes,
        updates: pa.Table,
        errors: pa.Table,
        upper: Timestamp,
        since: Timestamp = MINIMUM_TIME,
    ) -> IntervalRecords:
        """Return the records of an interval that ends before `upper`.

        Shape: `updates` (c0 .. cn, time, diff) and `errors` (error, time, diff) of the
        interval, where times below `since` count as it; `live` are the keys before it. Errors:
        InvalidUsage if the collection removes rows that it does not have.
        """
        raw = advance(flatten([updates], self._schema), since)
        every = KeyedUpdates.of(raw, self._keys, self._kernel)
        mistakes = ErrorUpdates(
            hash_columns(errors, [0], self._kernel),
            np.maximum(errors.column("time").to_numpy(), since),
            errors.column("diff").to_numpy(),
        )
        settled = assign_sound_times(live, every.hashes, every.times, every.diffs, mistakes)
        ready = every.at(settled.times).consolidated(self._kernel)
        decided = changes(live, ready.hashes, ready.times, ready.diffs)
        if isinstance(decided, ImpossibleRetraction):
            key = self._key_text(ready, decided.row)
            raise InvalidUsage(f"the row with key {key} is removed but does not exist")
        records = self._records(ready, decided)
        if settled.stall is None:
            return IntervalRecords(records, decided.live, upper, "")
        stall = self._reason(settled.stall, every, errors, upper)
        return IntervalRecords(records, decided.live, settled.stall.time, stall)

    def _records(self, ready: KeyedUpdates, decided: SinkChanges) -> RecordColumns:
        rows = ready.rows.take(pa.array(ready.positions[decided.rows]))
        return RecordColumns(
            self._topic,
            self.rows,
            [self._key(rows, position) for position in self._keys],
            self._values(rows),
            decided.tombstones,
            ready.times[decided.rows],
        )

    def _values(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """What `encode_rows` takes; the columns that are not as they are in one query."""
        converted = [
            index for index, form in enumerate(self.rows.forms) if form.sql != AS_IT_IS
        ]
        values = list(rows.columns[:-2])
        if converted and rows.num_rows:
            selected = self._select_as(rows, [self.rows.selects[index] for index in converted])
            for index, column in zip(converted, selected, strict=True):
                values[index] = one_array(column)
        return values

    def _key(self, rows: pa.RecordBatch, position: int) -> KeyColumn:
        column = pa.chunked_array([rows.column(position)])
        if self.rows.forms[position].key_sql != AS_IT_IS and rows.num_rows:
            (column,) = self._select(rows, [self.rows.key_selects[position]])
        array = one_array(column)
        if is_plain(array):
            return KeyColumn(array)
        listed = self._listed(rows, position, column)
        packed = [pack([value]) for value in listed]
        return KeyColumn(pa.array(packed, pa.binary()), is_encoded=True)

    def _listed(
        self, rows: pa.RecordBatch, position: int, column: pa.ChunkedArray
    ) -> list[object]:
        """Values of a key column; those that Python's dates cannot hold as DuckDB's text."""
        try:
            column.validate(full=True)  # else Python gives 00:00:00 for the time 24:00:00
            return list(column.to_pylist())
        except (OverflowError, ValueError):  # or a year that is not 1 to 9999, an infinity
            (texts,) = self._select(rows, [f"c{position}::VARCHAR"])
            # taken, for a slice of lists is validated with the values of all
            values = (column.take(pa.array([row])) for row in range(len(column)))
            return list(map(_value_or_text, values, texts))

    def _select(self, rows: pa.RecordBatch, selects: Sequence[str]) -> list[pa.ChunkedArray]:
        """Evaluate expressions over the columns in their Arrow types."""
        answer = self._kernel.query(_selected(selects), changed=_data(rows))
        return list(answer.columns)

    def _select_as(self, rows: pa.RecordBatch, selects: Sequence[str]) -> list[pa.ChunkedArray]:
        """Evaluate expressions over values of the columns' own types."""
        tables = {"changed": (_data(rows), self._columns.types)}
        return list(self._kernel.query_as(_selected(selects), tables).columns)

    def _reason(
        self, stall: Stall, every: KeyedUpdates, errors: pa.Table, upper: Timestamp
    ) -> str:
        if stall.row is None:
            return said_of(errors, stall.time, Timestamp(upper - 1))
        key = self._key_text(every, stall.row)
        return f"key {key} is not unique: {stall.count} rows have it at {stall.time}"

    def _key_text(self, updates: KeyedUpdates, place: int) -> str:
        single = updates.rows.slice(int(updates.positions[place]), 1)
        columns = self._select_as(single, [f"c{key}::VARCHAR" for key in self._keys])
        names = [self._columns.names[key] for key in self._keys]
        pairs = zip(names, columns, strict=True)
        return "(" + ", ".join(f"{name} = {column[0].as_py()}" for name, column in pairs) + ")"


def _data(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows.select(range(rows.num_columns - 2))])


def _value_or_text(value: pa.ChunkedArray, text: pa.Scalar) -> object:
    """The value of an array of one, or its text."""
    try:
        value.validate(full=True)
        return value[0].as_py()
    except (OverflowError, ValueError):
        return text.as_py()


def _selected(selects: Sequence[str]) -> str:
    listed = ", ".join(f"{select} AS v{index}" for index, select in enumerate(selects))
    return f"SELECT {listed} FROM changed"
