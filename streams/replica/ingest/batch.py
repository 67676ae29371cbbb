"""Reads many JSON objects at once with pyarrow, and proves that the result is exact.

Invariant: `read` returns a table whose row i is message i, converted as `fields` says, or None.
Messages of one layout are read by `template`. Others are joined by newlines and read as one
block. Then it is proved that every message became exactly one row:

    every message starts with `{` and ends with `}`     checked (`objects`)
    a line end between two messages is in no string     raw line ends in strings are refused
    nor inside a document elsewhere                     there `}` is never followed by `{`
 => every message is a sequence of whole documents, of at least one
    as many rows as messages                            checked
 => every message is one document

Input that the reader accepts although it is not JSON (NaN, Infinity, bytes that are not UTF-8),
or although we are stricter (strings read as decimals, numbers that overflow), is checked
separately: by `objects` before, by `doubtful` after.

Where producers quote their numbers (`"price":"89.73"`), the reader fails; it then gets the
texts with spaces in place of those quotes. In JSON only a member's name is followed by a colon,
and it stands behind `{`, `,` or space: so what `_quoted` finds is the value of a member of that
name, at some depth. A text that was no JSON remains none, for the number is a token either way.

The reader crashes on input that is only `null`, and drops a byte order mark: neither starts
with `{`, so neither reaches it.
"""

import json
import re
from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from streams.replica.ingest import template
from streams.replica.ingest.fields import Field
from streams.replica.ingest.scan import NUMBER
from streams.trace.kernel.kernel import Kernel

Flags = npt.NDArray[np.bool_]

MESSAGE = pa.schema([("m", pa.string())])
NO_FIELDS = pa.schema([("", pa.bool_())])  # a schema without fields would lose the row count
SPACE = " \t\n\r"
ODD_LITERAL = r"[:,\[\s]-?(?:NaN|Inf|Infinity)\s*[,\]}]"


class BatchReader:
    """Reads whole batches of messages; keeps its statements prepared."""

    def __init__(self, fields: Sequence[Field], kernel: Kernel) -> None:
        self._fields, self._kernel = fields, kernel
        self._parsed = [field for field in fields if field.parsed is not None]
        declared = pa.schema([(field.name, field.parsed) for field in self._parsed])
        self._declared = declared if len(declared) else NO_FIELDS
        self._probes = [f.render(f.probe, "NULL", "m") for f in fields if f.probe]
        self._screens = [f.render(f.screen, "NULL", "m") for f in fields if f.screen]
        self._quoted = _quoted_numbers(fields)

    def read(self, texts: pa.Array) -> pa.Table | None:
        """Return one row for each text, or None if that is not certain.

        Shape: `texts` is binary, without NULLs, all of them `objects`. The table has a column
        for each field that has a parsed type, in order.
        """
        if len(texts) >= template.ENOUGH and self._parsed:
            columns = template.read(texts, self._parsed)
            if columns is not None:
                return columns
        table = self._parse(texts)
        if table is None and self._quoted is not None:
            bare = pc.replace_substring_regex(texts.view(pa.string()), self._quoted, r"\1 \2 ")
            table = self._parse(bare.view(pa.binary()))
        return table

    def _parse(self, texts: pa.Array) -> pa.Table | None:
        joined = pc.binary_join(_one_list(texts), b"\n")[0].as_buffer()
        options = pj.ParseOptions(
            explicit_schema=self._declared, unexpected_field_behavior="ignore"
        )
        whole = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        try:
            table = pj.read_json(pa.BufferReader(joined), whole, options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(texts):
            return None
        return table.select(self._declared.names)

    def doubtful(self, texts: pa.Array, table: pa.Table) -> Flags:
        """Flag the rows of `read` with values for which the reader is too lenient."""
        doubtful = np.zeros(len(texts), np.bool_)
        for field in self._fields:
            if field.parsed == pa.float64():
                values = table.column(field.name).to_numpy()
                if field.type == "FLOAT":
                    with np.errstate(over="ignore"):
                        values = values.astype(np.float32)
                doubtful |= np.isinf(values)
            elif field.parsed is not None and pa.types.is_decimal128(field.parsed):
                doubtful |= _too_wide(table.column(field.name))
        if self._probes:
            doubtful |= self._ask(texts, self._probes)
        return doubtful

    def suspicious(self, texts: pa.Array) -> Flags:
        """Flag the texts that probably made a read fail: a guess that saves time."""
        return self._ask(texts, self._screens)

    def _ask(self, texts: pa.Array, conditions: Sequence[str]) -> Flags:
        """Flag the texts `m` that are not JSON, or of which a condition holds.

        The conditions read JSON and fail on anything else. DuckDB may compute them for rows for
        which a CASE around them does not (it makes a join of IN), so they are given no other.
        """
        holds = " OR ".join(["m IS NULL", *(f"coalesce({c}, false)" for c in conditions)])
        of_json = "SELECT CASE WHEN json_valid(m) THEN m END AS m FROM {t}"
        statement = self._kernel.prepare(f"SELECT {holds} AS found FROM ({of_json})", t=MESSAGE)
        answer = statement.run(pa.table([texts.view(pa.string())], schema=MESSAGE))
        flags: Flags = answer["found"].to_numpy()
        return flags


def _quoted_numbers(fields: Sequence[Field]) -> str | None:
    """A regex for quoted numbers that the reader would refuse; None without such fields."""
    names = [
        re.escape(json.dumps(field.name, ensure_ascii=False))
        for field in fields
        if field.parsed is not None
        and (pa.types.is_integer(field.parsed) or pa.types.is_floating(field.parsed))
    ]
    if not names:
        return None
    return rf'([{{,{SPACE}](?:{"|".join(names)})[{SPACE}]*:[{SPACE}]*)"({NUMBER})"'


def _too_wide(values: pa.ChunkedArray) -> Flags:
    """Flag decimals beyond their type: the reader counts digits before it aligns the scale."""
    kind = values.type
    digits = Decimal(10**kind.precision - 1).scaleb(-kind.scale, Context(prec=kind.precision))
    beyond = pc.greater(pc.abs(values), pa.scalar(digits, kind))
    flags: Flags = pc.fill_null(beyond, fill_value=False).to_numpy()
    return flags


def objects(texts: pa.Array) -> Flags:
    """Flag texts that are UTF-8, start with `{`, end with `}` and have no non-JSON literal.

    Shape: `texts` is binary without NULLs.
    """
    are_objects = _framed(texts) & ~not_unicode(texts)
    data = _data(texts)
    if _has(data, b"NaN") or _has(data, b"Inf"):
        odd = pc.match_substring_regex(texts, ODD_LITERAL)
        are_objects &= ~odd.to_numpy(zero_copy_only=False)
    return are_objects


def trim(texts: pa.Array) -> pa.Array:
    """Strip insignificant space around the texts."""
    if _framed(texts).all():
        return texts
    trimmed = pc.ascii_trim(texts.view(pa.string()), characters=SPACE)
    return trimmed.view(pa.binary())


def _framed(texts: pa.Array) -> Flags:
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
    first, last = offsets[:-1], offsets[1:] - 1
    are_framed: Flags = first < last
    if not len(texts) or not are_framed.any():
        return are_framed
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    top = len(data) - 1
    are_framed &= data[np.minimum(first, top)] == ord("{")
    are_framed &= data[np.minimum(last, top)] == ord("}")
    return are_framed


def _data(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all texts, end to end."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    start, stop = int(offsets[texts.offset]), int(offsets[texts.offset + len(texts)])
    buffer = texts.buffers()[2]
    return np.frombuffer(b"" if buffer is None else buffer, np.uint8)[start:stop]


def _has(data: npt.NDArray[np.uint8], literal: bytes) -> bool:
    """Whether three bytes occur; a quarter of the cost of `in`, because the first is rare."""
    first, second, third = literal
    places = np.flatnonzero(data[:-2] == first)
    return bool(((data[places + 1] == second) & (data[places + 2] == third)).any())


def _one_list(texts: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)


def not_unicode(texts: pa.Array) -> Flags:
    """Flag the texts that are not UTF-8, by bisection."""
    invalid = np.zeros(len(texts), np.bool_)
    pending = [(0, len(texts))]
    while pending:
        start, stop = pending.pop()
        if _is_unicode(texts.slice(start, stop - start)):
            continue
        if stop - start == 1:
            invalid[start] = True
        else:
            middle = (start + stop) // 2
            pending += [(start, middle), (middle, stop)]
    return invalid


def _is_unicode(texts: pa.Array) -> bool:
    try:
        texts.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
