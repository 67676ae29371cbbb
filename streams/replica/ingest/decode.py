"""Decodes JSON texts into typed columns, a whole batch at a time.

A message is one JSON object, read by RFC 8259; its declared columns are found by name and
converted strictly (`fields`). Members that are not declared are ignored, whatever they hold, as
long as the text as a whole is JSON in UTF-8. A message that cannot be decoded has a *reason* in
place of values.

Invariant: the result for a message is a function of that message and the declared columns
alone, never of its neighbours in the batch. Messages that `batch` cannot read with certainty
are read by `decode_one`. They are found by setting aside the suspicious ones after a first
failure, then by dividing: a batch that fails is read again in eighths, down to a few messages.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streams.plan.physical import Column
from streams.replica.ingest import timestamps
from streams.replica.ingest.batch import BatchReader, Flags, objects, trim
from streams.replica.ingest.decode_one import UndecodableValue, read
from streams.replica.ingest.fields import Field, Value
from streams.replica.ingest.layout import layout
from streams.replica.ingest.nested import Opening, Read, Split, has_decimal
from streams.replica.ingest.scan import NUMBER
from streams.trace.kernel.arrow import empty_table
from streams.trace.kernel.kernel import Kernel, data_schema

Places = npt.NDArray[np.int64]

PIECE_BYTES = 8 << 20  # bytes that are parsed together; more is not faster
FEW = 32  # below this many messages reading them one by one is cheaper than another attempt
BRANCHES = 8
SCALAR = (
    r'^[ \t\n\r]*(?:"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
    rf"|{NUMBER}|true|false|null)[ \t\n\r]*$"
)


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """One row for each message: its columns c0 .. cn, or the reason why it cannot be decoded.

    Where `reasons` (VARCHAR) is not NULL the columns are undefined.
    """

    columns: pa.Table
    reasons: pa.Array


class Decoder:
    """Decodes messages into the given columns; keeps its statements prepared."""

    def __init__(
        self,
        columns: Sequence[Column],
        kernel: Kernel,
        paths: Mapping[str, Sequence[str]] | None = None,
        opening: Opening = lambda name: f'column "{name}',
    ) -> None:
        """Prepare. `paths` are the members' names on the way to a column's value."""
        self._split = Split(kernel, exact=any(has_decimal(column.type) for column in columns))
        slots = layout(columns, paths or {}, opening, partial(_within, kernel), self._split)
        self._fields = tuple(slot.field for slot in slots)
        self._readers = {i: slot.reader for i, slot in enumerate(slots) if slot.reader}
        self._places = np.argsort([place for slot in slots for place in slot.places])
        self._kernel = kernel
        self._batches = BatchReader(self._fields, kernel)
        self._parsed = pa.schema(
            [
                (f"c{index}", field.parsed or pa.null())
                for index, field in enumerate(self._fields)
            ]
        )
        self._engine = data_schema([column.type for column in columns])
        self._converted = pa.schema(
            (
                f"c{i}",
                pa.string() if i in self._readers else self._engine.field(s.places[0]).type,
            )
            for i, s in enumerate(slots)
        )

    def decode(self, texts: pa.Array | pa.ChunkedArray) -> DecodedMessages:
        """Return the columns of each message, and the reasons of those that cannot be decoded.

        Shape: `texts` is binary; NULL means that a message lacks this part.
        """
        chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
        pieces = [self._decode(piece) for piece in _pieces(chunks)]
        columns = pa.concat_tables([empty_table(self._engine), *(p.columns for p in pieces)])
        reasons = pa.concat_arrays([pa.array([], pa.string()), *(p.reasons for p in pieces)])
        return DecodedMessages(columns, reasons)

    def _decode(self, texts: pa.Array) -> DecodedMessages:
        places, tables = self._read_batches(texts)
        odd = _others(places, len(texts))
        table, refused = self._read_odd(texts.take(pa.array(odd)))
        parsed = _in_order([*places, odd], [*tables, table])
        return self._convert(texts, parsed, _spread(refused, odd, len(texts)))

    def _read_batches(self, texts: pa.Array) -> tuple[list[Places], list[pa.Table]]:
        """Return what can be read in batches: the positions of the messages, and their rows."""
        present = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
        some = trim(_at(texts, present))
        framed = objects(some)
        pending = [(present[framed], some if framed.all() else some.filter(pa.array(framed)))]
        places: list[Places] = []
        tables: list[pa.Table] = []
        while pending:
            where, some = pending.pop()
            table = self._batches.read(some) if len(where) else None
            if table is not None:
                sure = ~self._batches.doubtful(some, table)
                places.append(where[sure])
                tables.append(self._shaped(table if sure.all() else table.filter(sure)))
            elif len(where) > FEW:
                pending += self._divide(where, some, first=len(where) == int(framed.sum()))
        return places, tables

    def _divide(
        self, where: Places, some: pa.Array, *, first: bool
    ) -> list[tuple[Places, pa.Array]]:
        """Return smaller batches to try in place of one that failed."""
        if first:
            mask = ~self._batches.suspicious(some)
            if not mask.all():
                return [(where[mask], some.filter(pa.array(mask)))]
        return [
            (where[cut[0] : cut[-1] + 1], some.slice(cut[0], len(cut)))
            for cut in np.array_split(np.arange(len(where)), BRANCHES)
        ]

    def _shaped(self, table: pa.Table) -> pa.Table:
        """The rows of a batch with a column for each field; -0.0 becomes 0.0 (rule 23)."""
        columns = []
        for field in self._fields:
            if field.parsed is None:
                columns.append(pa.nulls(table.num_rows))
            elif field.parsed == pa.float64():
                columns.append(pc.add(table.column(field.name), 0.0))
            else:
                columns.append(table.column(field.name))
        return pa.table(columns, schema=self._parsed)

    def _read_odd(self, texts: pa.Array) -> tuple[pa.Table, list[str | None]]:
        """Return what is read one by one, with a reason or None for each."""
        rows: list[Sequence[Value | None]] = []
        reasons: list[str | None] = []
        for raw in texts.to_pylist():
            try:
                rows.append(read(raw, self._fields))
                reasons.append(None)
            except UndecodableValue as refused:
                rows.append((None,) * len(self._fields))
                reasons.append(str(refused))
        columns = [
            pa.array([row[index] for row in rows], field.type)
            for index, field in enumerate(self._parsed)
        ]
        return pa.table(columns, schema=self._parsed), reasons

    def _convert(self, texts: pa.Array, parsed: pa.Table, reasons: pa.Array) -> DecodedMessages:
        """Convert parsed columns to the engine's; failed values add to the reasons."""
        parsed, fields = self._of_one_layout(parsed)
        if all(field.sql is None for field in fields):
            return DecodedMessages(parsed.cast(self._converted), reasons)
        used = parsed
        if any(field.parsed is None for field in fields):
            sound = pc.if_else(pc.is_null(reasons), texts, pa.scalar(None, pa.binary()))
            used = parsed.append_column("m", sound.view(pa.string()))
        columns = ", ".join(
            f"{field.render(field.sql or '{x}', f'c{index}', 'm')} AS c{index}"
            for index, field in enumerate(fields)
        )
        shape = pa.schema([pa.field(field.name, _known(field.type)) for field in used.schema])
        statement = self._kernel.prepare(f"SELECT {columns} FROM {{t}}", t=shape)
        converted = statement.run(used.cast(shape)).cast(self._converted)
        for field, before, after in zip(fields, parsed.columns, converted.columns, strict=True):
            reasons = _lost(field, before, after, reasons)
        return (
            self._take_apart(used, converted, reasons)
            if self._readers
            else DecodedMessages(converted, reasons)
        )

    def _take_apart(
        self, used: pa.Table, converted: pa.Table, reasons: pa.Array
    ) -> DecodedMessages:
        """Return the columns, those read from texts in their places."""
        columns: list[pa.Array] = []
        for index, field in enumerate(self._fields):
            values = whole(converted.column(index))
            if index not in self._readers:
                columns.append(values)
                continue
            texts = self._split.member(whole(used["m"]), values, field.name)
            arrays, refused = self._readers[index].read(texts)
            columns += arrays
            reasons = pc.coalesce(
                reasons, pc.binary_join_element_wise(field.opening, refused, "")
            )
        ordered = [columns[place] for place in self._places]
        return DecodedMessages(pa.table(ordered, schema=self._engine), reasons)

    def read(self, texts: pa.Array) -> Read:
        """Return the columns, each in one piece, and the reasons. As `decode`, of one array."""
        decoded = self.decode(texts)
        return [whole(column) for column in decoded.columns.columns], decoded.reasons

    def _of_one_layout(self, parsed: pa.Table) -> tuple[pa.Table, Sequence[Field]]:
        """Return the columns with timestamps parsed without DuckDB, where that is possible."""
        fields = list(self._fields)
        for index, field in enumerate(self._fields):
            if field.type == "TIMESTAMP":
                read = timestamps.timestamps(parsed.column(index).combine_chunks())
                if read is not None:
                    fields[index] = replace(field, sql=None)
                    parsed = parsed.set_column(index, parsed.field(index).name, read)
        return parsed, fields


def _within(
    kernel: Kernel,
    columns: Sequence[Column],
    opening: Opening,
    paths: Mapping[str, Sequence[str]],
) -> Decoder:
    """Return the decoder of what is inside a value (`nested.Make`)."""
    return Decoder(columns, kernel, paths, opening)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    return pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])


def wrap_scalars(texts: pa.Array, name: str) -> pa.Array:
    """Wrap lone JSON scalars in objects with one member `name`; leave other texts.

    This is the second form that a key of one column may have. Shape: binary.
    """
    scalar = pc.match_substring_regex(texts, SCALAR)
    if not pc.any(scalar).as_py():
        return texts
    before = pa.scalar(f"{{{json.dumps(name)}:".encode(), pa.binary())
    wrapped = pc.binary_join_element_wise(before, texts, b"}", b"")
    return pc.if_else(scalar, wrapped, texts)


def _known(parsed: pa.DataType) -> pa.DataType:
    """Return the type in which DuckDB reads a parsed column: it has no 256-bit decimals."""
    return pa.string() if pa.types.is_decimal256(parsed) else parsed


def _lost(
    field: Field, before: pa.ChunkedArray, after: pa.ChunkedArray, reasons: pa.Array
) -> pa.Array:
    """Return the reasons, with one more for each row that a field's conversion made NULL."""
    if field.sql is None or field.parsed is None:
        return reasons
    places = np.flatnonzero(pc.and_(pc.is_valid(before), pc.is_null(after)).to_numpy())
    if not len(places):
        return reasons
    values = before.take(pa.array(places)).to_pylist()
    shown = [
        json.dumps(v, ensure_ascii=False) if isinstance(v, str) else str(v) for v in values
    ]
    return pc.coalesce(
        reasons, _spread([field.expected(text) for text in shown], places, len(reasons))
    )


def _pieces(chunks: Sequence[pa.Array]) -> Iterator[pa.Array]:
    """Yield the texts in parts of about `PIECE_BYTES` each, in order."""
    buffered: list[pa.Array] = []
    size = 0
    for part in (part for chunk in chunks for part in _cut(chunk)):
        buffered.append(part)
        size += _size(part)
        if size >= PIECE_BYTES:
            yield pa.concat_arrays(buffered)
            buffered, size = [], 0
    if buffered:
        yield pa.concat_arrays(buffered)


def _cut(texts: pa.Array) -> Iterator[pa.Array]:
    """Yield consecutive parts of one array, none much larger than `PIECE_BYTES`."""
    if not len(texts):
        return
    offsets = _offsets(texts)
    goals = offsets[0] + np.arange(1, _size(texts) // PIECE_BYTES + 1) * PIECE_BYTES
    cuts = np.unique(np.concatenate(([0], np.searchsorted(offsets, goals), [len(texts)])))
    for start, stop in pairwise(cuts.tolist()):
        yield texts.slice(start, stop - start)


def _size(texts: pa.Array) -> int:
    offsets = _offsets(texts)
    return int(offsets[-1]) - int(offsets[0])


def _offsets(texts: pa.Array) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    return offsets[texts.offset : texts.offset + len(texts) + 1]


def _at(texts: pa.Array, places: Places) -> pa.Array:
    return texts if len(places) == len(texts) else texts.take(pa.array(places))


def _others(places: Sequence[Places], count: int) -> Places:
    """Return the positions below `count` that are in none of the given ones."""
    rest: Flags = np.ones(count, np.bool_)
    for some in places:
        rest[some] = False
    return np.flatnonzero(rest)


def _in_order(places: Sequence[Places], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables, in the order of their positions."""
    whole = pa.concat_tables(tables)
    order = np.concatenate(places)
    if (order[:-1] < order[1:]).all():
        return whole
    return whole.take(pa.array(np.argsort(order)))


def _spread(values: Sequence[str | None], places: Places, count: int) -> pa.Array:
    """Return an array of `count` with the values at their positions and NULL elsewhere."""
    if not len(places):
        return pa.nulls(count, pa.string())
    index = np.full(count, -1, np.int64)
    index[places] = np.arange(len(places))
    return pa.array(values, pa.string()).take(pa.array(index, mask=index < 0))
