"""Encodes rows of a binding for the protocol: packed keys, packed values, JSON documents.

DuckDB makes the documents and the text of values, a block of rows at a time.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.protocol import messages
from connectors.protocol.messages import Tuples
from connectors.runtime.fields import META, Field, fields_of, with_changes
from connectors.runtime.transactions import BoundCollection, Part
from schemas import flow_tuple
from schemas.blobs import Blobs
from schemas.flow_columns import Elements
from schemas.flow_pb2 import FieldSelection
from streams.storage.sinks.sink import Flags
from streams.trace.columns import one_array
from streams.trace.kernel.kernel import Kernel

BLOCK = 8192
"""Rows of a Store."""
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)')
"""A text of JSON, or a number that is not finite."""
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

    With `marks` each document says what happened, for a connector that cannot delete.
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
        self._keys = [fields[name] for name in selection.keys]
        self._values = [fields[name] for name in selection.values]
        self._types = shown.types
        self._marks, self._kernel = marks, kernel
        self._is_nested = any(field.form.nested for field in fields.values())
        listed = [
            f"{field.value} AS e{place}"
            for place, field in enumerate([*self._keys, *self._values])
        ]
        document = (exact_document if self._is_nested else document_of)(
            list(fields.values()), marks=marks
        )
        self._sql = f"SELECT {', '.join(listed)}, {document} AS document FROM changed"

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
        """Rows c0 .. cn, time, diff, of which delta updates show the last two."""
        width = len(self._types)
        table = pa.Table.from_arrays(
            rows.columns[:width], names=[f"c{place}" for place in range(width)]
        )
        types = list(self._types)
        if self._marks:
            table = table.append_column("op", pa.array(list(ops), pa.utf8()))
            types.append("VARCHAR")
        answer = self._kernel.query_as(self._sql, {"changed": (table, types)})
        arrays = [one_array(column) for column in answer.columns]
        split, size = len(self._keys), answer.num_rows
        keys = map(elements, self._keys, arrays)
        values = map(exact_elements, self._values, arrays[split:])
        documents = spelled(arrays[-1]) if self._is_nested else arrays[-1]
        return Block(
            Tuples.of_columns(list(keys), size),
            Tuples.of_columns(list(values), size),
            Blobs(documents.cast(pa.binary())),
        )


def document_of(fields: Sequence[Field], *, marks: bool) -> str:
    """SQL for a document."""
    members = [f"{text_of(field.name)}, {field.member}" for field in fields]
    if marks:
        members.append(f"{text_of(META)}, {MARK}")
    return f"json_object({', '.join(members)})::VARCHAR"


def exact_document(fields: Sequence[Field], *, marks: bool) -> str:
    """The same from texts: JSON that is put into JSON has its numbers rounded."""
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


def elements(field: Field, column: pa.Array) -> Elements:
    """The values of a column as elements of tuples, as those of a document are too."""
    if not field.form.nested:
        return Elements.of_array(column)
    return Elements.of(list(map(parsed, spelled(column).to_pylist())))


def exact_elements(field: Field, column: pa.Array) -> Elements:
    """The same, where no document has to give them again: all digits of numbers stay."""
    if not field.form.nested:
        return Elements.of_array(column)
    return Elements.of(list(map(exact, spelled(column).to_pylist())))


def parsed(text: str | None) -> flow_tuple.Element:
    """The element of a JSON value."""
    return None if text is None else flow_tuple.element(json.loads(text))


def exact(text: str | None) -> flow_tuple.Element:
    """The element of a JSON value; an object or a list is its text."""
    if text is not None and text[:1] in {"[", "{"}:
        return text.encode()
    return parsed(text)


def spelled(texts: pa.Array) -> pa.Array:
    """JSON in which numbers that are not finite are text; DuckDB writes NaN as it is."""
    if not pc.any(pc.match_substring_regex(texts, "NaN|Infinity")).as_py():
        return texts
    quoted = [text and TOKEN.sub(in_quotes, text) for text in texts.to_pylist()]
    return pa.array(quoted, pa.utf8())


def in_quotes(token: re.Match[str]) -> str:
    """A text as it is, a number that is not finite as text."""
    text = token.group()
    return text if text.startswith('"') else f'"{text}"'


def text_of(name: str) -> str:
    """A name as text in SQL."""
    return "'" + name.replace("'", "''") + "'"
