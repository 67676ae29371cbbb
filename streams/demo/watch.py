"""What a consumer without any server sees: collections followed from their shards alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streams.ids import CollectionId, Timestamp
from streams.storage import description
from streams.storage.client.shards import Shards
from streams.storage.read import reader as read
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import as_batch, consolidate


def loaded(
    shards: Shards, collection: CollectionId, wanted: Sequence[read.Piece]
) -> tuple[pa.Table, pa.Table]:
    """The updates and the errors of the pieces.

    Shape: the updates have all the collection's columns, also when there are none of them.
    """
    updates, errors = read.load(shards.chunks, shards.data_topic(collection), wanted)
    if not updates.num_rows:
        described = description.loads(shards.state(collection).description)
        updates = arrow_schema(described.types).empty_table()
    return updates, errors


@dataclass(slots=True)
class Followed:
    """A collection's contents just before `upper`.

    Shape: `contents` has columns `c0 .. cn`, `time`, `diff`, consolidated.
    """

    collection: CollectionId
    names: tuple[str, ...]
    upper: Timestamp
    since: Timestamp
    contents: pa.Table | None = None
    rows: int = 0
    title: str = ""


@dataclass(slots=True)
class Watch:
    """Follows collections by name; `refresh` reads what has come since the last time."""

    shards: Shards
    kernel: Kernel
    followed: dict[str, Followed] = field(default_factory=dict)

    def follow(self, collections: Mapping[str, CollectionId]) -> None:
        """Begin to follow these, each from its since on."""
        for name, collection in collections.items():
            state = self.shards.state(collection)
            names = description.loads(state.description).names
            start = state.since.time
            self.followed[name] = Followed(collection, names, start, start, title=name)

    def frontiers(self, name: str) -> Followed:
        """The collection's frontiers as they are now, its contents unread."""
        followed = self.followed[name]
        state = self.shards.state(followed.collection)
        followed.since, followed.upper = state.since.time, state.upper.time
        return followed

    def refresh(self, name: str) -> Followed:
        """The collection as it is now."""
        followed = self.followed[name]
        state = self.shards.state(followed.collection)
        if state.upper.is_empty or state.upper.time <= followed.upper:
            return followed
        upper = state.upper.time
        if followed.contents is None:
            wanted = read.snapshot_pieces(state, Timestamp(upper - 1))
            updates, _ = loaded(self.shards, followed.collection, wanted)
        else:
            updates = read.changes(self.shards, state, followed.upper, may_hold=False).updates
        followed.rows += updates.num_rows
        followed.contents = self._merged(followed.contents, updates, upper)
        followed.upper = upper
        return followed

    def _merged(self, old: pa.Table | None, new: pa.Table, upper: Timestamp) -> pa.Table:
        tables = [table for table in (old, new) if table is not None and table.num_rows]
        if not tables:
            return new if old is None else old
        together = pa.concat_tables(tables)
        last = pa.repeat(pa.scalar(upper - 1, pa.int64()), together.num_rows)
        position = together.schema.get_field_index("time")
        advanced = as_batch(together.set_column(position, "time", last))
        return pa.Table.from_batches([consolidate(advanced, self.kernel)])
