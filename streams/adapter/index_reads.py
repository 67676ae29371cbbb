"""SELECTs with an equality on the key of an index, which replicas answer from memory.

A SELECT qualifies if it shows columns of one collection, compares columns with constants, and
each column of an index's key by `=`. Its answer is that of the coordinator's own evaluation,
since the peek has the plan that a worker made. Whatever keeps a replica from answering (there
is none, the index is being loaded, the answer is large, the collection is in error), the SELECT
is evaluated as any other, and so has the same errors.

A user's other expressions are not evaluated by a replica: they might take its memory.
"""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from streams.adapter.catalog import Catalog, Item
from streams.adapter.results import Progress, Result, Rows
from streams.adapter.row_encoding import rows
from streams.adapter.workers.requests import Planned
from streams.compute.controller import Controller
from streams.compute.peeks import KeyLookup, Peek, PeekOutcome, PeekRows, PeekTarget
from streams.errors import SlackwaterError
from streams.ids import CollectionId, Timestamp
from streams.plan.physical import SortKey
from streams.progress import frontier
from streams.storage.client.shards import fresh_uuid
from streams.trace.kernel.kernel import Kernel, data_schema

MOST_BYTES = 1 << 20
"""Bytes of an answer from an index."""

BEAT_S = 1.0
MOST_BEATS = 5
"""Number of beats after which the coordinator evaluates a SELECT itself."""

KEY_TYPES = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR"})
"""Types whose constants a plan tells (`plan.analyses.column_bounds`)."""


@dataclass(frozen=True, slots=True)
class IndexedRead:
    """A SELECT that an index can answer."""

    index: CollectionId
    collection: Item
    lookup: KeyLookup
    planned: Planned


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The rows of an answer, encoded, and their number."""

    count: int
    rows: tuple[Rows, ...]


@dataclass(slots=True)
class IndexReads:
    """Asks replicas by indexes. Thread-safe."""

    catalog: Callable[[], Catalog]
    controller: Controller
    _kernel: Kernel = field(default_factory=Kernel)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, planned: Planned) -> IndexedRead | None:
        """Return the SELECT with an index that can answer it now, if there is one."""
        catalog, observed = self.catalog(), self.controller.observed
        if planned.peek is None or len(planned.imports) != 1 or not observed.replicas:
            return None
        read = catalog.items.get(CollectionId(planned.imports[0].collection))
        if read is None:
            return None
        indexes = [item for item in catalog.dependants(read.id) if item.kind == "index"]
        for item in indexes:
            status = observed.report(item.id).status
            lookup = _lookup(item, planned)
            if lookup is not None and status is not None and status.state == "running":
                return IndexedRead(item.id, read, lookup, planned)
        return None

    def answer(
        self, read: IndexedRead, time: Timestamp
    ) -> Generator[Result, None, IndexedRows | None]:
        """Return the answer at a time; None if no replica gives one in some seconds.

        The caller holds since at the time.
        """
        peek = _peek(read, time)
        try:
            result = self.controller.peek(peek)
            outcome = yield from _waited(result)
        except SlackwaterError:
            return None
        finally:
            with suppress(SlackwaterError):
                self.controller.cancel_peek(peek.uuid)
        return self._encoded(read, outcome) if isinstance(outcome, PeekRows) else None

    def _encoded(self, read: IndexedRead, answer: PeekRows) -> IndexedRows:
        with pa.ipc.open_stream(pa.py_buffer(answer.rows)) as stream:
            table = stream.read_all()
        types = [kind for _, kind in read.planned.shown]
        with self._lock:
            return IndexedRows(answer.count, tuple(rows(table, types, self._kernel)))


def _waited(result: "Future[PeekOutcome]") -> Generator[Result, None, PeekOutcome | None]:
    for _ in range(MOST_BEATS):
        try:
            return result.result(BEAT_S)
        except TimeoutError:
            yield Progress(frontier(0))
    return None


def _peek(read: IndexedRead, time: Timestamp) -> Peek:
    planned, collection = read.planned, read.collection
    assert planned.peek is not None, "an indexed read can be a peek"
    return Peek(
        uuid=fresh_uuid(),
        target=PeekTarget(collection.id, collection.group, read.index),
        time=time,
        plan=planned.peek.plan,
        project=tuple(range(len(planned.shown))),
        most_bytes=MOST_BYTES,
        lookup=read.lookup,
        order=tuple(SortKey(*key) for key in planned.peek.order),
    )


def _lookup(index: Item, planned: Planned) -> KeyLookup | None:
    """Return the key that a SELECT asks for; None unless it compares all columns of it."""
    names = [column.name for column in index.columns]
    places = tuple(names.index(key) for key in index.keys)
    types = [index.columns[place].type for place in places]
    equal = {
        comparison.column: comparison.value
        for comparison in planned.imports[0].where
        if comparison.operator == "="
    }
    if not equal.keys() >= set(places) or not KEY_TYPES.issuperset(types):
        return None
    try:
        arrays = [
            pa.array([equal[place]], field.type)
            for place, field in zip(places, data_schema(types), strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None  # a constant beyond the type: no row is equal
    sink = pa.BufferOutputStream()
    keys = pa.RecordBatch.from_arrays(arrays, [f"k{place}" for place in range(len(places))])
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_batch(keys)
    return KeyLookup(places, bytes(sink.getvalue()))
