"""SUBSCRIBE: the contents of a collection at its as_of and then every change, in intervals.

Each interval is followed by a progress. Replicas read or the coordinator does, and the latter
goes on from where replicas cannot (`streams.adapter.subscribe_replicas`). While a subscribe
runs, what it has not delivered is held against compaction.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from streams.adapter.catalog import Item
from streams.adapter.collection_reads import CollectionReads
from streams.adapter.read_errors import refuse_errors
from streams.adapter.read_holds import Guard, Guards
from streams.adapter.read_times import When
from streams.adapter.results import Columns, Complete, Progress, Result
from streams.adapter.row_encoding import CHANGE, change_rows
from streams.adapter.running_subscribes import Running, RunningSubscribes
from streams.adapter.subscribe_replicas import Deliver, delivered
from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.sql.subscribe import Subscribe
from streams.progress import EMPTY, END, frontier
from streams.storage.read.soundness import first_error
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, contents_at, flatten


class Subscribes:
    """Executes SUBSCRIBE statements, and knows which run. Thread-safe."""

    def __init__(self, collections: CollectionReads, guards: Guards) -> None:
        self._collections, self._guards = collections, guards
        self.running = RunningSubscribes()

    def subscribe(
        self, item: Item, when: When, wanted: Subscribe, deliver: Deliver | None = None
    ) -> Iterator[Result]:
        """Yield the contents of an object and then its changes; ends when it is sealed.

        It fails if the object is dropped, because more would have followed. It fails at the
        first time at which the object is in error, after all changes before that time, however
        the changes are cut into intervals and whether or not the error disappears. Replicas
        read if it is told how they `deliver`, and from where they cannot it reads by itself.

        Errors: InvalidStatement.
        """
        with self._guards.reading([item.id], Timestamp(0)) as guard:
            time = yield from self._collections.readable([item], when, guard)
            if wanted.until is not None and wanted.until <= time:
                raise InvalidStatement(f"expected UP TO a time beyond {time}, when it begins")
            yield Columns((*CHANGE, *item.columns))
            if deliver is not None and not wanted.snapshot:
                # Nobody else looks whether changes are of anything.
                refuse_errors(item.name, self._collections.snapshot(item, time)[1], time)
            with self.running.running(item.id, wanted, time) as running:
                reading = _Reading(self._collections, item, wanted, time, guard, running)
                results = reading.from_(time)
                if deliver is not None:
                    results = delivered(deliver(time, guard), reading.from_)
                for result in results:
                    if isinstance(result, Progress):
                        running.note(result.frontier)
                        self._collections.note_progress(item, result.frontier, when)
                    yield result


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the coordinator itself reads for a subscribe that begins at `as_of`."""

    collections: CollectionReads
    item: Item
    wanted: Subscribe
    as_of: Timestamp
    guard: Guard
    running: Running

    def from_(self, lower: Timestamp) -> Iterator[Result]:
        """Yield what the subscribe delivers from lower on, which is not before its as_of."""
        kernel = Kernel()
        self.running.read_by_coordinator()
        if lower == self.as_of:
            yield from self._contents(kernel)
            lower = Timestamp(lower + 1)
            yield Progress(frontier(lower))
        yield from self._changes(lower, kernel)
        yield Complete("SUBSCRIBE")

    def _contents(self, kernel: Kernel) -> Iterator[Result]:
        item = self.item
        updates, errors = self.collections.snapshot(item, self.as_of)
        refuse_errors(item.name, errors, self.as_of)
        if self.wanted.snapshot:
            schema = arrow_schema([column.type for column in item.columns])
            held = contents_at(flatten([updates], schema), self.as_of, kernel)
            yield from change_rows(item.columns, held, kernel)

    def _changes(self, lower: Timestamp, kernel: Kernel) -> Iterator[Result]:
        item, until = self.item, END if self.wanted.until is None else self.wanted.until
        schema = arrow_schema([column.type for column in item.columns])
        while lower < until:
            yield from self.collections.wait([item], lower, is_endless=True)
            news = self.collections.changes(item, lower, until)
            updates, wrong = news.updates, first_error(news.errors)
            if wrong is not None:
                updates = updates.filter(pc.less(updates.column("time"), wrong))
            summed = consolidate(flatten([updates], schema), kernel)
            yield from change_rows(item.columns, summed, kernel)
            yield Progress(news.reached if wrong is None else frontier(wrong))
            if wrong is not None:
                refuse_errors(item.name, news.errors, wrong)
            if news.reached.is_empty:
                return
            lower = news.upper
            self.guard.downgrade(Timestamp(lower - 1))
        yield Progress(EMPTY)
