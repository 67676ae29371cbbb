"""The benchmark's rows: orders of a shop, as columns, documents and Python tuples."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from connectors.protocol.spec_builder import Collection, FieldSpec
from schemas.blobs import Blobs
from schemas.flow_columns import Elements

ORDERS = Collection(
    name="bench/orders",
    keys=("region", "id"),
    columns=(
        FieldSpec(name="region"),
        FieldSpec(name="id", types=("integer",)),
        FieldSpec(name="amount", types=("number",)),
        FieldSpec(name="at", format="date-time"),
        FieldSpec(name="note", types=("string", "null"), required=False),
        FieldSpec(name="paid", types=("boolean",)),
    ),
)
REGIONS = 97
DAY_S = 86_400
EPOCH = np.datetime64("2026-01-01T00:00:00")


class Rows(NamedTuple):
    """Some orders: the fields of the key, the values in the order of their names, documents."""

    keys: list[Elements]
    values: list[Elements]
    documents: Blobs

    def __len__(self) -> int:
        return len(self.documents)

    def tuples(self) -> list[tuple[object, ...]]:
        """The same rows as a row-oriented program has them."""
        documents = [document.decode() for document in self.documents]
        columns = [column.objects() for column in (*self.keys, *self.values)]
        return list(zip(*columns, documents, strict=True))


@dataclass(frozen=True, slots=True)
class Parts:
    """Orders in parts, each made when it is asked for: memory has one at a time."""

    rows: int
    batch: int
    factor: float

    def __iter__(self) -> Iterator[Rows]:
        for first in range(0, self.rows, self.batch):
            yield orders(first, min(self.batch, self.rows - first), self.factor)


def orders(first: int, count: int, factor: float) -> Rows:
    """Orders from one on; `factor` is of their amounts, so that another one changes them."""
    ids = np.arange(first, first + count)
    regions = [f"region {region}" for region in (ids % REGIONS).tolist()]
    stamps = np.datetime_as_string(EPOCH + ids % DAY_S, timezone="UTC").tolist()
    notes = [f"note on {id_}" if id_ % 10 else None for id_ in ids.tolist()]
    fields = [
        regions,
        ids.tolist(),
        (ids * factor).tolist(),
        stamps,
        notes,
        (ids % 2 == 0).tolist(),
    ]
    names = [column.name for column in ORDERS.columns]
    table = pa.table(dict(zip(names, fields, strict=True)))
    columns = [Elements.of_array(column.combine_chunks()) for column in table.columns]
    return Rows(columns[:2], columns[2:], _documents(table))


def _documents(table: pa.Table) -> Blobs:
    line = '{{"region":"{}","id":{},"amount":{},"at":"{}","note":{},"paid":{}}}'
    columns = [column.to_pylist() for column in table.columns]
    columns[4] = ["null" if note is None else f'"{note}"' for note in columns[4]]
    columns[5] = ["true" if paid else "false" for paid in columns[5]]
    return Blobs.of([line.format(*row).encode() for row in zip(*columns, strict=True)])
