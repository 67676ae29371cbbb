"""Envelopes: turn messages of a topic into updates of the import (`plan.import_columns`).

NONE: the value of a message is a row, which never changes. A message that cannot be decoded,
one without a value among them, is an error in its place.

UPSERT: the message is the new row of its key.

- The key holds the key columns, in the format that is declared (`keys`). A key column must be
  there and not be null. Key columns in the value are not looked at: the key decides.
- The value holds the other columns. No value (a tombstone) deletes the key's row. The JSON
  text `null` is not a tombstone but a value that cannot be decoded.
- A value that cannot be decoded puts the key into error, until the key is written or deleted.
  A key that cannot be decoded is a permanent error, as in NONE: no message can name it again.
- `position` = offset * 2^15 + partition, so that of a key's messages at one time the one with
  the highest (offset, partition) wins.

With a watermark a key has the message of the highest (event time, offset, partition) among
those that have happened. A deletion needs an event time, too (`event_times`). Nothing puts a
key into error, for an error has no event time.

This is so for the sources that keep such messages as errors; for others `refusals` says what
becomes of them, and the key stays as it was.

The error of an UPSERT value reads

    cannot decode message: topic T, partition P, offset O, key K: reason

with K the key as JSON without space around it (`Keys.shown`). It names one message, so no two
errors are equal; and because it contains the key, keyed state can be rebuilt from the shard
(`replay`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.description import IngestionDescription
from streams.compute.event_time import Seen
from streams.ids import Timestamp
from streams.plan.physical import Column
from streams.replica.ingest.decode import Decoder, whole
from streams.replica.ingest.event_times import (
    FRESH,
    NOTHING,
    EventTimes,
    ReadMode,
    greatest,
    milliseconds,
    reader_of,
    reasons_of_late,
    refusal_of_deletions,
    together,
)
from streams.replica.ingest.keys import NO_TEXT, Keys
from streams.replica.ingest.metadata import Metadata
from streams.replica.ingest.plan import DELETION, ERROR, VALUE, import_columns, key_positions
from streams.replica.ingest.refusals import (
    ERRORS,
    LETTERS,
    Refusals,
    RefusedMessages,
    counts,
    updates_at,
)
from streams.replica.ingest.scan import leading
from streams.trace.columns import int64, one_array
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate_if_needed, flatten

MAX_PARTITIONS = 1 << 15
KEYED_ERROR = re.compile(
    r"cannot decode message: topic [\w.-]+, partition \d+, offset \d+, key (?=\S)", re.ASCII
)

Loaded = tuple[pa.Table, pa.Table]
"""Updates c0 .. cn, time, diff of the import; and errors: error, time, diff."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Updates and errors as in `Loaded`; dead letters as in `refusals.RefusedMessages`.

    `seen` is what the source reports of the messages.
    """

    updates: pa.Table
    errors: pa.Table
    letters: pa.Table
    seen: Seen = NOTHING


class Envelope:
    """The envelope of one source; keeps its decoders."""

    def __init__(
        self, source: IngestionDescription, columns: Sequence[Column], kernel: Kernel
    ) -> None:
        positions = key_positions(source, columns)
        declared = len(columns) - len(source.included)
        included = range(declared, len(columns))
        rest = [index for index in range(declared) if index not in positions]
        self._kernel, self._refusals = kernel, Refusals(source)
        key_columns = [columns[position] for position in positions]
        self._keys = Keys(key_columns, source.key_format, kernel) if positions else None
        paths = {located.column: located.path for located in source.located}
        self._decoder = Decoder([columns[index] for index in rest], kernel, paths)
        self._metadata = Metadata(source)
        self._event_times, self._watermark = reader_of(source, columns), source.watermark
        self._deletion = refusal_of_deletions(source)
        self._has_limit = source.error_limit is not None
        self._places = np.argsort([*positions, *rest, *included]).tolist()
        self._declared = arrow_schema([column.type for column in columns])
        self._schema = arrow_schema([c.type for c in import_columns(source, columns)])

    def updates(
        self,
        messages: pa.Table,
        time: Timestamp,
        manner: ReadMode = FRESH,
    ) -> IngestResult:
        """Return the updates of the messages at `time`.

        With a watermark the updates carry their event time, and what they are is a matter of
        `manner`.

        Shape: `messages` has key, value (binary, NULL when absent), partition (int32), offset
        (int64), and the columns of `metadata.fetched`. Errors: Undecodable if the source stops
        at a message that cannot be decoded.
        """
        if self._event_times is not None:
            rows, reasons = self._by_event_time(self._event_times, messages)
            return self._judged(messages, rows, reasons, time, manner)
        if self._keys is not None:
            return self._upserts(self._keys, messages, time)
        rows, reasons = self._values(messages)
        refused = self._refusals.refused(messages, reasons, time)
        updates = updates_at(_filter(rows, reasons.is_null()).columns, time, self._schema)
        seen = self._seen(messages, [refused])
        return IngestResult(updates, refused.errors, refused.letters, seen)

    def _by_event_time(
        self, reader: EventTimes, messages: pa.Table
    ) -> tuple[pa.Table, pa.Array]:
        """Return the import's columns, the event time last, and the reasons of bad messages."""
        values, reasons = self._values(messages)
        if self._keys is None:
            columns = values.columns
            times, more = reader.read(columns[reader.place], messages)
        else:
            keys = self._keys.decode(whole(messages["key"]))
            absent = whole(messages["value"]).is_null()
            reasons = pc.if_else(absent, self._deletion, reasons)
            of_keys = pc.binary_join_element_wise("key: ", keys.reasons, "")
            reasons = pc.coalesce(of_keys, reasons)
            moments = self._row(keys.columns, values)[reader.place]  # of deletions too
            times, more = reader.read(moments, messages)
            kinds = pc.if_else(absent, DELETION, VALUE)
            none = pa.nulls(len(kinds), pa.string())
            columns = self._bookkept(messages, keys.columns, values, kinds, none)
        rows = pa.table([*columns, times], self._schema.names[:-2])
        return rows, pc.coalesce(reasons, more)

    def _judged(
        self,
        messages: pa.Table,
        rows: pa.Table,
        reasons: pa.Array,
        time: Timestamp,
        manner: ReadMode,
    ) -> IngestResult:
        """Return the updates of rows whose last column is their event time."""
        assert self._watermark is not None
        times = one_array(rows.columns[-1])
        sound = reasons.is_null().to_numpy(zero_copy_only=False)
        late = sound & (int64(times) < time)
        stays = sound if self._watermark.late_rows == "place" else sound & ~late
        errors, letters = ERRORS.empty_table(), LETTERS.empty_table()
        skipped: Mapping[int, int] = {}
        partitions = messages["partition"].to_numpy().astype(np.int64)
        is_open = manner.is_open(partitions, messages["offset"].to_numpy())
        if manner.reading == "again":
            stays = sound & ~late
        else:
            why = pc.if_else(pa.array(is_open), reasons, NO_TEXT)
            bad = self._refusals.refused(messages, why, time, letters_at=manner.letters_at)
            errors, letters, skipped = bad.errors, bad.letters, bad.skipped
            if self._watermark.late_rows != "place":
                why = reasons_of_late(times, late & is_open, time)
                of_late = self._refusals.refused(
                    messages, why, time, self._watermark.late_rows, manner.letters_at
                )
                letters = pa.concat_tables([letters, of_late.letters])
        if manner.reading == "owed":
            return IngestResult(self._schema.empty_table(), errors, letters)
        seen = Seen(
            greatest(partitions[sound], int64(times)[sound]),
            tuple(np.unique(partitions[~stays & is_open]).tolist()),
            counts(partitions[late]) if manner.reading == "fresh" else {},
            skipped if manner.reading == "fresh" else {},
            counts(partitions[~sound]) if manner.reading == "fresh" else {},
            self._counted(messages) if manner.reading == "fresh" else {},
        )
        updates = updates_at(_filter(rows, pa.array(stays)).columns, time, self._schema)
        return IngestResult(updates, errors, letters, seen)

    def _values(self, messages: pa.Table) -> tuple[pa.Table, pa.Array]:
        """Return the columns of values and metadata, and the reasons of bad messages."""
        decoded = self._decoder.decode(messages["value"])
        columns, reasons = self._metadata.read(messages)
        rows = decoded.columns
        for number, column in enumerate(columns):
            rows = rows.append_column(f"m{number}", column)
        return rows, pc.coalesce(decoded.reasons, reasons)

    def _upserts(self, reader: Keys, messages: pa.Table, time: Timestamp) -> IngestResult:
        keys = reader.decode(whole(messages["key"]))
        has_sound_key = keys.reasons.is_null()
        reasons = pc.binary_join_element_wise("key: ", keys.reasons, "")
        of_keys = self._refusals.refused(messages, reasons, time)
        every = messages
        messages, columns = (
            _filter(messages, has_sound_key),
            _filter(keys.columns, has_sound_key),
        )
        values, reasons = self._values(messages)
        reasons = pc.if_else(whole(messages["value"]).is_null(), NO_TEXT, reasons)
        if self._refusals.on_error == "inline":
            updates = self._keyed(reader, messages, columns, values, reasons, time)
            bad = counts(messages["partition"].filter(reasons.is_valid()).to_numpy())
            seen = together([self._seen(every, [of_keys]), Seen(bad=bad)])
            return IngestResult(updates, of_keys.errors, of_keys.letters, seen)
        of_values = self._refusals.refused(messages, reasons, time)
        sound = reasons.is_null()
        messages, columns, values = (
            _filter(table, sound) for table in (messages, columns, values)
        )
        reasons = pa.nulls(messages.num_rows, pa.string())
        updates = self._keyed(reader, messages, columns, values, reasons, time)
        letters = pa.concat_tables([of_keys.letters, of_values.letters])
        seen = self._seen(every, [of_keys, of_values])
        return IngestResult(updates, of_keys.errors, letters, seen)

    def _seen(self, messages: pa.Table, refused: Sequence[RefusedMessages]) -> Seen:
        """Return what a source without a watermark reports of messages."""
        of_refused = [Seen(skipped=bad.skipped, bad=bad.counts) for bad in refused]
        return together([Seen(messages=self._counted(messages)), *of_refused])

    def _counted(self, messages: pa.Table) -> Mapping[int, int]:
        """Return the number of messages by partition, if the source has an ERROR LIMIT."""
        return counts(messages["partition"].to_numpy()) if self._has_limit else {}

    def _keyed(
        self,
        reader: Keys,
        messages: pa.Table,
        keys: pa.Table,
        values: pa.Table,
        reasons: pa.Array,
        time: Timestamp,
    ) -> pa.Table:
        """Return the updates of messages with a key; a reason is its key's error."""
        absent = whole(messages["value"]).is_null()
        texts = self._keyed_errors(reader, messages, reasons)
        kinds = pc.if_else(absent, DELETION, pc.if_else(texts.is_null(), VALUE, ERROR))
        columns = self._bookkept(messages, keys, values, kinds, texts)
        return updates_at(columns, time, self._schema)

    def _bookkept(
        self,
        messages: pa.Table,
        keys: pa.Table,
        values: pa.Table,
        kinds: pa.Array,
        errors: pa.Array,
    ) -> list[pa.Array | pa.ChunkedArray]:
        """Return the columns of a source with keys, and position, kind and error."""
        rows = self._row(keys, _only(values, pc.equal(kinds, VALUE)))
        partitions = messages["partition"].to_numpy().astype(np.int64)
        positions = messages["offset"].to_numpy() * MAX_PARTITIONS + partitions
        return [*rows, pa.array(positions), kinds.cast(pa.uint8()), errors]

    def replay(self, updates: pa.Table, errors: pa.Table) -> Loaded:
        """Return messages that reproduce the contents of a source's shard.

        State built from them equals that built from the topic. Errors of messages without a
        readable key are left out, because they have no state. Only for a source with keys:
        another has no state at all.

        The input must be complete: all updates of each of its times. If a row of a key is
        retracted and another inserted at the same time, the latter is the key's row.

        Shape: `updates` has the columns of the source, time, diff; `errors` is error, time,
        diff.
        """
        assert self._keys is not None, "a source without keys has no state to rebuild"
        updates = self._settled(updates, self._declared)
        errors = self._settled(errors, ERRORS)
        texts = errors["error"].to_pylist()
        matches = [None if text is None else KEYED_ERROR.match(text) for text in texts]
        keyed = _filter(errors, pa.array([key is not None for key in matches], pa.bool_()))
        raw = [match.string[match.end() :] for match in matches if match is not None]
        keys = self._keys.read_back(
            pa.array([leading(text).encode() for text in raw], pa.binary())
        )
        none = _only(self._decoder.decode(pa.nulls(len(raw), pa.binary())).columns, None)
        for number, column in enumerate(self._metadata.nulls(len(raw))):
            none = none.append_column(f"m{number}", column)
        rows = self._row(keys.columns, none)
        return (
            pa.concat_tables(
                [
                    self._replayed(updates.columns[:-2], updates, VALUE),
                    self._replayed(rows, keyed, ERROR, keyed["error"]),
                ]
            ),
            ERRORS.empty_table(),
        )

    def _replayed(
        self,
        rows: Sequence[pa.ChunkedArray],
        updates: pa.Table,
        kind: int,
        error: pa.ChunkedArray | None = None,
    ) -> pa.Table:
        """Return inserted rows as messages of `kind`, after retracted rows as deletions."""
        comes = pc.greater(updates["diff"], 0)
        texts = NO_TEXT if error is None else pc.if_else(comes, error, NO_TEXT)
        if error is None:
            texts = pa.nulls(updates.num_rows, pa.string())
        kinds = pc.if_else(comes, kind, DELETION).cast(pa.uint8())
        ones = pa.array(np.ones(updates.num_rows, np.int64))
        columns = [*rows, comes.cast(pa.int64()), kinds, texts]
        if self._event_times is not None:
            columns.append(milliseconds(rows[self._event_times.place]))
        columns += [updates["time"], ones]
        return pa.table(columns, schema=self._schema)

    def _settled(self, updates: pa.Table, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_batches(
            [consolidate_if_needed(flatten([updates], schema), self._kernel)]
        )

    def _row(self, keys: pa.Table, rest: pa.Table) -> list[pa.ChunkedArray]:
        """Return the source's columns in order."""
        columns = [*keys.columns, *rest.columns]
        return [columns[place] for place in self._places]

    def _keyed_errors(self, reader: Keys, messages: pa.Table, reasons: pa.Array) -> pa.Array:
        """Return the error text of each message that has a reason, and NULL for the others."""
        failed = reasons.is_valid()
        some = _filter(messages, failed)
        keys = reader.shown(whole(some["key"]))
        where = pc.binary_join_element_wise(self._refusals.places(some), keys, ", key ")
        texts = pc.binary_join_element_wise(where, reasons.filter(failed), ": ")
        return pc.replace_with_mask(reasons, failed, texts)


def _filter(table: pa.Table, mask: pa.Array) -> pa.Table:
    return table if mask.true_count == len(mask) else table.filter(mask)


def _only(table: pa.Table, mask: pa.Array | None) -> pa.Table:
    """Return the table with NULL in every column of the rows that are not kept."""
    if mask is not None and mask.true_count == len(mask):
        return table
    places = np.arange(table.num_rows)
    dropped = (
        np.ones(len(places), np.bool_) if mask is None else ~mask.to_numpy(zero_copy_only=False)
    )
    return table.take(pa.array(places, mask=dropped))
