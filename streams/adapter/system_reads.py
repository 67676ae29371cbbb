"""Reads of system relations in a SELECT: snapshots of what the coordinator knows now."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streams.adapter import system_relations
from streams.adapter.catalog import Item
from streams.adapter.system_columns import COLUMNS, IDS
from streams.adapter.system_relations import Row, SystemState
from streams.adapter.workers.requests import Import, Planned
from streams.errors import InvalidStatement
from streams.ids import CollectionId, Timestamp
from streams.trace.kernel.kernel import arrow_schema


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A system relation that a SELECT reads; `name` is without the schema."""

    id: CollectionId
    name: str


Readable = Item | SystemTable
"""What a SELECT reads."""

TABLES: Mapping[CollectionId, SystemTable] = {
    id_: SystemTable(id_, name) for id_, name in IDS.items()
}


def imported(planned: Planned, items: Sequence[Item]) -> list[tuple[Readable, Import]]:
    """Return the imports of a plan with their objects."""
    by_id: dict[CollectionId, Readable] = {**TABLES, **{item.id: item for item in items}}
    return [(by_id[CollectionId(read.collection)], read) for read in planned.imports]


@dataclass(frozen=True, slots=True)
class SystemReads:
    """Snapshots of system relations; `state` says what the coordinator knows now."""

    state: Callable[[], SystemState]
    now_ms: Callable[[], int]

    def snapshots(
        self, tables: Sequence[SystemTable], time: Timestamp
    ) -> Mapping[CollectionId, pa.Table]:
        """Return the contents of relations, all of one moment, as updates at a time."""
        if not tables:
            return {}
        state = self.state()
        return {
            table.id: _table(table.name, system_relations.rows(table.name, state), time)
            for table in tables
        }


def refuse_as_of(tables: Sequence[SystemTable], as_of: Timestamp | None) -> None:
    """Errors: InvalidStatement for a system relation that is read AS OF a time."""
    if tables and as_of is not None:
        raise InvalidStatement(
            f"{tables[0].id} cannot be read AS OF {as_of}",
            "a system relation has the current state, without history",
            "leave out AS OF",
        )


def _table(name: str, rows: Sequence[Row], time: Timestamp) -> pa.Table:
    schema = arrow_schema([column.type for column in COLUMNS[name]])
    updates = [(*row, int(time), 1) for row in rows]
    columns = list(zip(*updates, strict=True)) if updates else [()] * len(schema)
    arrays = [pa.array(cells, of.type) for cells, of in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
