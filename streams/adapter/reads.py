"""SELECT, and what reads as it does: collections at one common time, from their shards.

A SELECT is what a view of it holds at the chosen time (`streams.adapter.select`). It waits
until its input is final (`streams.adapter.collection_reads`), and while it waits or sends,
the input is held against compaction (`streams.adapter.read_holds`).
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streams.adapter.catalog import Item
from streams.adapter.collection_reads import CollectionReads
from streams.adapter.delays import Delay
from streams.adapter.index_reads import IndexReads
from streams.adapter.provisioning import relations
from streams.adapter.pruning import Allowance, Wanted
from streams.adapter.read_errors import refuse_errors
from streams.adapter.read_holds import Guards
from streams.adapter.read_times import When
from streams.adapter.results import (
    Columns,
    Complete,
    Result,
    Rows,
    beating,
)
from streams.adapter.sessions import session_facts
from streams.adapter.subscribes import Subscribes
from streams.adapter.system_columns import named_in, telling_names
from streams.adapter.system_reads import (
    Readable,
    SystemReads,
    SystemTable,
    imported,
    refuse_as_of,
)
from streams.adapter.timelines import common
from streams.adapter.workers.pool import Workers
from streams.adapter.workers.process import Unstarted, WorkerLost
from streams.adapter.workers.requests import (
    Compare,
    Comparison,
    Compute,
    Ended,
    Import,
    Plan,
    Planned,
    Query,
    Request,
)
from streams.adapter.workers.spool import Spool
from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.physical import Column
from streams.storage.client.shards import Shards
from streams.trace.kernel.functions import Function

_Returned = TypeVar("_Returned")


class Reads:
    """Reads on behalf of users. Thread-safe."""

    def __init__(  # noqa: PLR0913, PLR0917  dependencies
        self,
        shards: Shards,
        guards: Guards,
        workers: Workers,
        unmade: Callable[[Item], str],
        delay: Callable[[Item], Delay | None],
        indexes: IndexReads,
        system: SystemReads,
    ) -> None:
        self._indexes, self._system = indexes, system
        self._guards, self._workers = guards, workers
        self._collections = CollectionReads(shards, unmade, delay)
        self.subscribes = Subscribes(self._collections, guards)

    def select(
        self,
        query: str,
        when: When,
        items: Sequence[Item],
        functions: Sequence[Function] = (),
    ) -> Iterator[Result]:
        """Yield the answer to a query over the items, which may call Python functions.

        Errors: InvalidStatement; TimeoutError if an item is not created in time.
        """
        with telling_names():
            plan, planned = yield from self.planned(query, items, functions)
        read = imported(planned, items)
        indexed = yield from self._by_index(planned, when, items)
        if indexed is not None:
            yield from indexed
            return
        with self.spool() as spool:
            request, by_index = partial(Compute, plan), planned.peek is None
            time, ended = yield from self.computed(
                read, when, items, request, spool.take, by_index=by_index
            )
            yield Columns(tuple(Column(*column) for column in planned.shown))
            for block in spool.blocks():
                yield Rows(tuple(block.decode().split("\n")))
        facts: dict[str, str | int] = {"as_of": time} if read else {}
        yield Complete(
            f"SELECT {ended.facts['rows']}", {**facts, **session_facts(when.session)}
        )

    def _by_index(
        self, planned: Planned, when: When, items: Sequence[Item]
    ) -> Generator[Result, None, tuple[Result, ...] | None]:
        """Return the answer from an index; None if there is none. Errors: as `select`."""
        index = self._indexes.find(planned)
        if index is None:
            return None
        ask = partial(self._indexes.answer, planned, index)
        time, answer = yield from self.asked(index.collection, when, items, ask)
        if answer is None:
            return None
        facts = {"as_of": time, **session_facts(when.session)}
        columns = Columns(tuple(Column(*column) for column in planned.shown))
        return columns, *answer.rows, Complete(f"SELECT {answer.count}", facts)

    def asked(
        self,
        item: Item,
        when: When,
        items: Sequence[Item],
        ask: Callable[[Timestamp], Generator[Result, None, _Returned]],
    ) -> Generator[Result, None, tuple[Timestamp, _Returned]]:
        """Ask replicas for a collection at one time, which is held; return time and answer.

        Errors: as `select`, and those of `ask`.
        """
        when = replace(when, timeline=common([item], {read.id: read for read in items}))
        with self._guards.reading([item.id], Timestamp(0)) as guard:
            time = yield from self._collections.readable([item], when, guard)
            return time, (yield from ask(time))

    def spool(self, what: str = "rows as JSON") -> Spool:
        """Return a buffer for the data of an answer; `what` is what errors call them."""
        return Spool(self._workers.limits, self._workers.directory, what)

    def compare(
        self, item: Item, when: When, items: Sequence[Item], functions: Sequence[Function]
    ) -> Generator[Result, None, tuple[Timestamp, Comparison]]:
        """Compare a view with its query at one time, and return that.

        Errors: as `select`.
        """
        plan, planned = yield from self.planned(item.query, items, functions)
        actual = Import(str(item.id), frozenset(range(len(item.columns))))
        read = [*imported(planned, items), (item, actual)]
        request = partial(Compare, plan)
        time, ended = yield from self.computed(read, when, items, request, bytes)
        return time, Comparison.told(ended.facts)

    def computed(
        self,
        read: Sequence[tuple[Readable, Import]],
        when: When,
        items: Sequence[Item],
        request: Callable[[Timestamp], Request],
        take: Callable[[bytes], object],
        *,
        by_index: bool = False,
    ) -> Generator[Result, None, tuple[Timestamp, Ended]]:
        """Have a worker execute a request on snapshots at one time; return time and end.

        Of a snapshot that an index can look up, replicas are asked `by_index`. Errors: as
        `select`.
        """
        sources = [item for item, _ in read if isinstance(item, Item)]
        tables = [item for item, _ in read if isinstance(item, SystemTable)]
        refuse_as_of(tables, when.as_of)
        when = replace(when, timeline=common(sources, {item.id: item for item in items}))
        with self._guards.reading([item.id for item in sources], Timestamp(0)) as guard:
            time = yield from self._collections.readable(sources, when, guard)
            if tables and not sources:
                time = Timestamp(self._system.now_ms())
            imports = [actual for _, actual in read] if by_index else []
            looked_up = yield from self._indexes.snapshots(imports, time)
            with (yield from beating(self._workers.lend())) as worker:
                snapshots = self._snapshots(read, time, looked_up)
                return time, (yield from beating(worker.ask(request(time), snapshots, take)))

    def planned(
        self, query: str, items: Sequence[Item], functions: Sequence[Function]
    ) -> Generator[Result, None, tuple[bytes, Planned]]:
        """Return the plan of a SELECT over the items. Errors: InvalidStatement."""
        text = query.casefold()
        near = [item for item in items if _is_spelled(item, text)]
        called = [function for function in functions if function.name.casefold() in text]
        blocks, by_id = list[bytes](), {item.id: item for item in items}
        system = named_in(query)
        request = Plan(Query(query, {**system, **relations(near, by_id)}, tuple(called)))
        try:
            ended = yield from self.evaluate(request, blocks.append)
        except (WorkerLost, Unstarted):
            raise
        except InvalidStatement:
            if len(near) == len(items) and len(called) == len(functions):
                raise
            # to tell what else there is
            every = {**system, **relations(items, by_id)}
            request = Plan(Query(query, every, tuple(functions)))
            ended = yield from self.evaluate(request, blocks.append)
        return b"".join(blocks), Planned.told(ended.facts)

    def evaluate(
        self, request: Request, take: Callable[[bytes], object] = bytes
    ) -> Generator[Result, None, Ended]:
        """Have a worker execute a request without tables; `take` gets the data.

        Errors: as `Worker.ask`.
        """
        with (yield from beating(self._workers.lend())) as worker:
            return (yield from beating(worker.ask(request, (), take)))

    def _snapshots(
        self,
        read: Sequence[tuple[Readable, Import]],
        time: Timestamp,
        looked_up: Mapping[int, pa.Table],
    ) -> list[pa.Table]:
        """Return what a SELECT reads of its imports, of which some are there already.

        Errors: InvalidStatement.
        """
        allowance = Allowance(self._workers.limits.rows)
        tables = [item for item, _ in read if isinstance(item, SystemTable)]
        system = self._system.snapshots(tables, time)
        snapshots = []
        for position, (item, actual) in enumerate(read):
            there = looked_up.get(position)
            if isinstance(item, SystemTable):
                there = system[item.id]
            if there is not None:
                allowance.take(there.nbytes)
                snapshots.append(there)
                continue
            assert isinstance(item, Item), "a system table is there"
            wanted = Wanted(actual.columns, allowance, actual.where)
            allowance.expect(self._collections.stored_bytes(item, time, wanted))
            updates, errors = self._collections.snapshot(item, time, wanted)
            refuse_errors(item.name, errors, time)
            snapshots.append(updates)
        return snapshots


def _is_spelled(item: Item, text: str) -> bool:
    """Whether a text may name an object, quoted or not."""
    name = item.name.casefold().replace('"', '""')
    parts = name.rsplit(".", 1) if item.kind == "errors" else [name]
    return all(part in text for part in parts)
