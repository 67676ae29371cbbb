"""Encodes rows of a binding for the protocol: packed keys, packed values, JSON documents.

DuckDB makes the documents and the text of values, a block of rows at a time.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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
        members = [f"{text_of(field.name)}, {field.member}" for field in fields.values()]
        if marks:
            members.append(f"{text_of(META)}, json_object('op', op)")
        elements = [*self._keys, *self._values]
        listed = [f"{element.value} AS e{place}" for place, element in enumerate(elements)]
        document = f"json_object({', '.join(members)})::VARCHAR AS document"
        self._sql = f"SELECT {', '.join([*listed, document])} FROM changed"

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
        columns = [
            elements(field, one_array(answer.column(place)))
            for place, field in enumerate([*self._keys, *self._values])
        ]
        split, size = len(self._keys), answer.num_rows
        return Block(
            Tuples.of_columns(columns[:split], size),
            Tuples.of_columns(columns[split:], size),
            Blobs(one_array(answer.column("document")).cast(pa.binary())),
        )


def operations(exists: Flags, deletes: Flags) -> list[str]:
    """The operation of each row."""
    chosen: list[str] = np.where(deletes, GONE, np.where(exists, CHANGED, NEW)).tolist()
    return chosen


def elements(field: Field, column: pa.Array) -> Elements:
    """The values of a column as elements of tuples."""
    if not field.form.nested:
        return Elements.of_array(column)
    return Elements.of(list(map(parsed, column.to_pylist())))


def parsed(text: str | None) -> flow_tuple.Element:
    """The element of a JSON value."""
    return None if text is None else flow_tuple.element(json.loads(text))


def text_of(name: str) -> str:
    """A name as text in SQL."""
    return "'" + name.replace("'", "''") + "'"
