"""SELECTs with an equality on the key of an index, whose rows replicas have in memory.

An index is used for a collection if each row that counts equals a constant, or one of several,
in each column of the key. Of a SELECT that shows columns of one collection, and only compares
columns with constants, a replica computes the answer: the peek has the plan that a worker made.
Of any other SELECT a replica looks up the rows, and a worker evaluates it over them, as over a
snapshot of the shard. Either way the answer is that of the coordinator's own evaluation.

Whatever keeps a replica from answering (there is none, the index is being loaded, the rows are
large, the collection is in error), the shard is read, so a SELECT has the same errors. But a
malformed answer is an error of its SELECT.

A replica evaluates no other expressions of users: they might take its memory.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from math import prod

import pyarrow as pa

from streams.adapter.catalog import Catalog, Item
from streams.adapter.instances import Instances
from streams.adapter.read_errors import refuse_nonsense
from streams.adapter.results import Progress, Result, Rows
from streams.adapter.row_encoding import rows
from streams.adapter.workers.requests import Import, Planned
from streams.compute.arrow_rows import answered_rows
from streams.compute.peeks import KeyLookup, Peek, PeekOutcome, PeekRows, PeekTarget
from streams.errors import Determinate, SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.physical import Dataflow, SortKey, Source
from streams.plan.physical import Import as PlannedImport
from streams.progress import frontier
from streams.storage.client.shards import fresh_uuid
from streams.trace.kernel.kernel import Kernel, arrow_schema, data_schema

MOST_BYTES = 1 << 20
"""Bytes of an answer from an index."""

MOST_KEYS = 1000
"""Number of keys that one peek looks up."""

BEAT_S = 1.0
MOST_BEATS = 5
"""Number of beats after which the coordinator evaluates a SELECT itself."""

KEY_TYPES = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR"})
"""Types whose constants a plan tells (`plan.analyses.column_bounds`)."""


@dataclass(frozen=True, slots=True)
class IndexedImport:
    """A collection that a SELECT reads by an index."""

    index: CollectionId
    cluster: str
    collection: Item
    lookup: KeyLookup


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The rows of an answer, encoded, and their number."""

    count: int
    rows: tuple[Rows, ...]


@dataclass(slots=True)
class IndexReads:
    """Asks replicas by indexes. Thread-safe."""

    catalog: Callable[[], Catalog]
    instances: Instances
    _kernel: Kernel = field(default_factory=Kernel)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, planned: Planned) -> IndexedImport | None:
        """Return the index that can answer a whole SELECT now, if there is one."""
        if planned.peek is None or len(planned.imports) != 1:
            return None
        return self._indexed(planned.imports[0])

    def answer(
        self, planned: Planned, by: IndexedImport, time: Timestamp
    ) -> Generator[Result, None, IndexedRows | None]:
        """Return the answer at a time; None if no replica gives one in some seconds.

        The caller holds since at the time. Errors: InvalidStatement if it is malformed.
        """
        assert planned.peek is not None, "it was found"
        order = tuple(SortKey(*key) for key in planned.peek.order)
        project = tuple(range(len(planned.shown)))
        answered = yield from self._asked(
            by, _peek(by, time, planned.peek.plan, project, order)
        )
        return None if answered is None else self._encoded(planned, by.collection, answered)

    def snapshots(
        self, imports: Sequence[Import], time: Timestamp
    ) -> Generator[Result, None, dict[int, pa.Table]]:
        """Return what replicas have of imports at a time, by their positions.

        An import is left out that no index can look up, or no replica answers. The caller holds
        since at the time. Shape: the import's columns as c0 .. cn, NULL where they do not
        matter, time, diff. Errors: InvalidStatement if an answer is malformed.
        """
        tables = {}
        for position, imported in enumerate(imports):
            by = self._indexed(imported)
            if by is None:
                continue
            columns = tuple(sorted(imported.columns)) or by.lookup.columns
            answered = yield from self._asked(
                by, _peek(by, time, everything(by.collection), columns)
            )
            if answered is None:
                break  # nor would they answer the next
            tables[position] = _updates(by.collection, columns, answered, time)
        return tables

    def _indexed(self, imported: Import) -> IndexedImport | None:
        """Return the index that can look up an import now, if there is one."""
        catalog, observed = self.catalog(), self.instances.observed
        read = catalog.items.get(CollectionId(imported.collection))
        if read is None:
            return None
        indexes = [item for item in catalog.dependants(read.id) if item.kind == "index"]
        for item in indexes:
            if not observed.of(item).replicas:
                continue
            status = observed.report(item).status
            lookup = _lookup(item, imported)
            if lookup is not None and status is not None and status.state == "running":
                return IndexedImport(item.id, item.cluster, read, lookup)
        return None

    def _asked(self, by: IndexedImport, peek: Peek) -> Generator[Result, None, PeekRows | None]:
        try:
            controller = self.instances.of(by.cluster)
        except Determinate:
            return None
        try:
            outcome = yield from _waited(controller.peek(peek))
        except SlackwaterError:
            return None
        finally:
            with suppress(SlackwaterError):
                controller.cancel_peek(peek.uuid)
        return outcome if isinstance(outcome, PeekRows) else None

    def _encoded(self, planned: Planned, of: Item, answered: PeekRows) -> IndexedRows:
        types = [kind for _, kind in planned.shown]
        table = _table(of, answered, types)
        with self._lock:
            encoded = tuple(rows(table, types, self._kernel))
            return IndexedRows(answered.count, encoded)


def _waited(result: "Future[PeekOutcome]") -> Generator[Result, None, PeekOutcome | None]:
    for _ in range(MOST_BEATS):
        try:
            return result.result(BEAT_S)
        except TimeoutError:
            yield Progress(frontier(0))
    return None


def _peek(
    by: IndexedImport,
    time: Timestamp,
    plan: str,
    project: tuple[int, ...],
    order: tuple[SortKey, ...] = (),
) -> Peek:
    return Peek(
        uuid=fresh_uuid(),
        target=PeekTarget(by.collection.id, by.collection.group, by.index),
        time=time,
        plan=plan,
        project=project,
        most_bytes=MOST_BYTES,
        lookup=by.lookup,
        order=order,
    )


def everything(collection: Item) -> str:
    """Return the plan of all columns of a collection."""
    columns = collection.columns
    types = tuple(column.type for column in columns)
    imports = (PlannedImport(collection.id, columns),)
    return plans.dumps(Dataflow(imports, (Source(0),), (types,), (0,), columns))


def _table(of: Item, answered: PeekRows, types: Sequence[str]) -> pa.Table:
    """Return the rows of an answer. Errors: InvalidStatement."""
    with refuse_nonsense(of.name):
        batch = answered_rows(answered.rows, answered.count, types)
    return pa.Table.from_batches([batch])


def _updates(
    collection: Item, columns: tuple[int, ...], answered: PeekRows, time: Timestamp
) -> pa.Table:
    """Return the rows of an answer that has `columns`, as updates at a time.

    Errors: InvalidStatement.
    """
    types = [column.type for column in collection.columns]
    schema, count = arrow_schema(types), answered.count
    table = _table(collection, answered, [types[position] for position in columns])
    answers = dict(zip(columns, table.columns, strict=True))
    arrays = [
        answers.get(position, pa.nulls(count, schema.field(position).type))
        for position in range(len(collection.columns))
    ]
    ends = [pa.repeat(pa.scalar(value, pa.int64()), count) for value in (time, 1)]
    return pa.table([*arrays, *ends], schema=schema)


def _lookup(index: Item, imported: Import) -> KeyLookup | None:
    """Return the keys that an import asks for; None unless they have all columns."""
    names = [column.name for column in index.columns]
    places = tuple(names.index(key) for key in index.keys)
    types = [index.columns[place].type for place in places]
    fewest = sorted(imported.members, key=lambda member: len(member.values), reverse=True)
    values = {member.column: tuple(dict.fromkeys(member.values)) for member in fewest}
    if not values.keys() >= set(places) or not KEY_TYPES.issuperset(types):
        return None
    if prod(len(values[place]) for place in places) > MOST_KEYS:
        return None
    columns = zip(*product(*(values[place] for place in places)), strict=True)
    try:
        arrays = [
            pa.array(constants, field.type)
            for constants, field in zip(columns, data_schema(types), strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None  # a constant beyond the type: no row is equal
    sink = pa.BufferOutputStream()
    keys = pa.RecordBatch.from_arrays(arrays, [f"k{place}" for place in range(len(places))])
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_batch(keys)
    return KeyLookup(places, bytes(sink.getvalue()))
