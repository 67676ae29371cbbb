"""Encodes rows of a binding for the protocol: packed keys, packed values, JSON documents.

DuckDB makes the documents and the text of values, a block of rows at a time.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.connector import Refused
from connectors.protocol import messages
from connectors.protocol.json_pointers import read
from connectors.protocol.messages import Tuples
from connectors.runtime.fields import META, TIME, Field, fields_of, with_changes
from connectors.runtime.transactions import BoundCollection, Part
from schemas import flow_tuple
from schemas.blobs import Blobs
from schemas.flow_columns import Elements
from schemas.flow_pb2 import FieldSelection
from schemas.flow_tuple import MalformedTuple
from streams.storage.sinks.sink import Flags
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import Kernel

BLOCK = 8192
"""Rows of a Store."""
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)')
"""A text of JSON, or a number that is not finite."""
TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
OPENING, CLOSING = (np.frombuffer(marks, np.uint8) for marks in (b"[{", b"]}"))
SHOWN = 40
"""Characters of a number that is refused."""
KEPT = frozenset("[{-0123456789")
"""How JSON begins that an element may not hold."""
LONG = re.compile(rb"[0-9.]{17}")
"""A number that may have been left as it was."""
DEEPEST = 500
"""Levels of a document: who reads JSON recurses, as Python and databases do."""
MARK = "json_object('op', op)"
NEW, CHANGED, GONE = "c", "u", "d"
"""The operation of a document, for `_meta/op`."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows."""

    keys: Tuples
    values: Tuples
    documents: Blobs


class Encoder:
    """Encodes the rows of one binding, with the fields that were selected. One thread.

    With `marks` each document has its operation, for a connector that cannot delete.
    """

    def __init__(
        self,
        bound: BoundCollection,
        selection: FieldSelection,
        kernel: Kernel,
        *,
        marks: bool = False,
    ) -> None:
        shown = with_changes(bound.description) if bound.delta else bound.description
        fields = fields_of(shown)
        self._names = (*bound.keys, *((TIME,) if bound.delta else ()))
        """What identifies a change."""
        self._keys = [fields[name] for name in selection.keys]
        self._values = [fields[name] for name in selection.values]
        self._types = shown.types
        self._marks, self._kernel = marks, kernel
        self._is_nested = any(field.form.nested for field in fields.values())
        listed = [
            f"{field.value} AS e{place}"
            for place, field in enumerate([*self._keys, *self._values])
        ]
        every = list(fields.values())
        document = (exact_document if self._is_nested else document_of)(every, marks=marks)
        valid = " AND ".join(
            f"(c{field.place} IS NULL OR json_valid(c{field.place}))"
            for field in every
            if field.form.is_text
        )
        self._sql = (
            f"SELECT {', '.join(listed)}, {valid or 'TRUE'} AS valid, {document} AS document"
            " FROM changed"
        )
        self._texts = [field.name for field in every if field.form.is_text]
        """Columns of JSON: clients write them as they like."""
        identified = [fields[name] for name in self._names]
        self._texts_sql = (
            f"SELECT {exact_document(identified, marks=False)} AS key,"
            f" {exact_document(every, marks=marks)} AS document FROM changed"
        )

    def stores(self, index: int, part: Part) -> Iterator[messages.Store]:
        """The messages that store a part, in its order."""
        ops = operations(part.exists, part.deletes)
        for start in range(0, part.rows.num_rows, BLOCK):
            block = self.encode(part.rows.slice(start, BLOCK), ops[start : start + BLOCK])
            goes = part.deletes[start : start + BLOCK]
            yield messages.Store(
                binding=index,
                keys=block.keys,
                values=block.values,
                documents=block.documents,
                exists=part.exists[start : start + BLOCK].tolist(),
                deletes=goes.tolist() if goes.any() and not self._marks else (),
            )

    def encode(self, rows: pa.RecordBatch, ops: Sequence[str] = ()) -> Block:
        """Rows c0 .. cn, time, diff, of which delta updates show the last two.

        Errors: Refused for a value that has no form in the protocol, by its column's name.
        """
        arrays = self._query(self._sql, rows, ops)
        split, size = len(self._keys), rows.num_rows
        keys = map(partial(named, elements), self._keys, arrays)
        values = map(partial(named, exact_elements), self._values, arrays[split:])
        documents, valid = arrays[-1], arrays[-2]
        if self._texts and not pc.all(valid, min_count=0).as_py():
            raise Refused(f"expected JSON in {', '.join(self._texts)}, actual other text")
        if self._is_nested:
            documents = spelled(documents)
            check_json(documents)
        return Block(
            Tuples.of_columns(list(keys), size),
            Tuples.of_columns(list(values), size),
            Blobs(documents.cast(pa.binary())),
        )

    def texts(self, row: pa.RecordBatch, operation: str) -> tuple[bytes, bytes]:
        """The JSON of a row's key and of its document, also of a document that is refused.

        A text that is not JSON becomes a JSON string.
        """
        key, document = (
            written(spelled(texts)[0].as_py())
            for texts in self._query(self._texts_sql, row, [operation])
        )
        return key, document

    def _query(self, sql: str, rows: pa.RecordBatch, ops: Sequence[str]) -> list[pa.Array]:
        width = len(self._types)
        table = pa.Table.from_arrays(
            rows.columns[:width], names=[f"c{place}" for place in range(width)]
        )
        types = list(self._types)
        if self._marks:
            table = table.append_column("op", pa.array(list(ops), pa.utf8()))
            types.append("VARCHAR")
        answer = self._kernel.query_as(sql, {"changed": (table, types)})
        return [one_array(column) for column in answer.columns]


def document_of(fields: Sequence[Field], *, marks: bool) -> str:
    """SQL for a document."""
    members = [f"{text_of(field.name)}, {field.member}" for field in fields]
    if marks:
        members.append(f"{text_of(META)}, {MARK}")
    return f"json_object({', '.join(members)})::VARCHAR"


def exact_document(fields: Sequence[Field], *, marks: bool) -> str:
    """SQL for the document, concatenated from texts: to_json rounds numbers of nested JSON."""
    members = {field.name: f"coalesce({field.json}, 'null')" for field in fields}
    if marks:
        members[META] = f"{MARK}::VARCHAR"
    named = [
        f"{text_of(json.dumps(name, ensure_ascii=False) + ':')} || {member}"
        for name, member in members.items()
    ]
    separator = " || ',' || "
    return f"'{{' || {separator.join(named)} || '}}'"


def operations(exists: Flags, deletes: Flags) -> list[str]:
    """The operation of each row."""
    chosen: list[str] = np.where(deletes, GONE, np.where(exists, CHANGED, NEW)).tolist()
    return chosen


def named(
    convert: Callable[[Field, pa.Array], Elements], field: Field, column: pa.Array
) -> Elements:
    """A column's elements. Errors: Refused, which names the column."""
    try:
        return convert(field, column)
    except (ValueError, RecursionError, MalformedTuple) as error:
        raise Refused(f"column {field.name}: {error}") from error


def elements(field: Field, column: pa.Array) -> Elements:
    """The values of a column as elements of tuples, as those of a document are too."""
    if not field.form.nested:
        return Elements.of_array(one_nan(column))
    return Elements.of(list(map(parsed, spelled(column).to_pylist())))


def one_nan(column: pa.Array) -> pa.Array:
    """A NaN has a sign and other bits, which no document says."""
    if not pa.types.is_floating(column.type) or not pc.any(pc.is_nan(column)).as_py():
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(math.nan), column)


def exact_elements(field: Field, column: pa.Array) -> Elements:
    """The same, where no document has to give them again: all digits of numbers stay."""
    if not field.form.nested:
        return Elements.of_array(column)
    return Elements.of(list(map(exact, spelled(column).to_pylist())))


def parsed(text: str | None) -> flow_tuple.Element:
    """The element of a JSON value. Errors: ValueError, RecursionError, MalformedTuple."""
    value = None if text is None else read(text.encode())
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    if text is not None and (is_infinite or isinstance(value, Decimal)):
        raise ValueError(
            f"expected a number in the range of a double, actual {text[:SHOWN]},"
            f" of {len(text)} characters"
        )
    return flow_tuple.element(value)


def exact(text: str | None) -> flow_tuple.Element:
    """The element of a JSON value; an object, a list or a long number is its text."""
    if text is None or text.lstrip()[:1] not in KEPT or is_short(text):
        return parsed(text)
    return text.strip().encode()


def is_short(text: str) -> bool:
    """Whether an element holds all digits of a number; not of an object or a list."""
    if text.lstrip()[:1] in {"[", "{"}:
        return False
    value = read(text.encode())
    if not isinstance(value, float):
        return isinstance(value, int) and flow_tuple.LEAST <= value <= flow_tuple.MOST
    try:
        return math.isfinite(value) and Decimal(text.strip()) == Decimal(repr(value))
    except InvalidOperation:  # of an exponent that no decimal has
        return False


def spelled(texts: pa.Array) -> pa.Array:
    """JSON in which numbers that are not finite are text; DuckDB writes NaN as it is."""
    if not pc.any(pc.match_substring_regex(texts, "NaN|Infinity")).as_py():
        return texts
    quoted = [text and TOKEN.sub(in_quotes, text) for text in texts.to_pylist()]
    return pa.array(quoted, pa.utf8())


def written(text: str) -> bytes:
    """The bytes of a JSON text unchanged; any other text as a JSON string."""
    try:
        read(text.encode())
    except RecursionError:  # it is deep, and DuckDB has read it
        pass
    except ValueError:
        return json.dumps(text).encode()
    return text.encode()


def check_json(documents: pa.Array) -> None:
    """Errors: Refused if one is nested too deeply, or is not JSON.

    DuckDB's to_json writes only JSON; a text that is passed through may be anything.
    """
    blobs = Blobs(documents.cast(pa.binary()))
    for document in blobs:
        if document.count(b"[") + document.count(b"{") > DEEPEST and depth(document) > DEEPEST:
            raise Refused(f"expected a document of at most {DEEPEST} levels, actual more")
        if LONG.search(document):
            try:
                read(document)
            except ValueError as error:
                raise Refused(f"expected a document of JSON: {error}") from error


def depth(document: bytes) -> int:
    """How many objects and lists of JSON are within each other at most."""
    marks = np.frombuffer(TEXT.sub(b"", document), np.uint8)
    opened = np.isin(marks, OPENING).astype(np.int64)
    return int((opened - np.isin(marks, CLOSING)).cumsum().max(initial=0))


def in_quotes(token: re.Match[str]) -> str:
    """A text as it is, a number that is not finite as text."""
    text = token.group()
    return text if text.startswith('"') else f'"{text}"'


def text_of(name: str) -> str:
    """A name as text in SQL."""
    return "'" + name.replace("'", "''") + "'"
