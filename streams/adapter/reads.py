"""SELECT and SUBSCRIBE: reads of collections at one common time, from their shards.

A SELECT is what a view of it holds at the chosen time (`streams.adapter.select`). A
SUBSCRIBE is the contents at its as_of and then every change, in intervals, each followed by a
progress. Both wait until their input is final, and while they wait or send, it is held against
compaction (`streams.adapter.read_holds`).

Waiting is divided into beats, at which both sides see that the other is alive. An answer is a
generator; closing it ends the read.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from streams.adapter.catalog import Item
from streams.adapter.delays import Delay, Delays
from streams.adapter.index_reads import IndexReads
from streams.adapter.provisioning import bounds_of, relations
from streams.adapter.pruning import Allowance, Wanted
from streams.adapter.read_errors import halted, refuse_errors, refusing, unreadable
from streams.adapter.read_holds import Guard, Guards
from streams.adapter.read_times import When, why_patient
from streams.adapter.results import (
    Columns,
    Complete,
    Notice,
    Progress,
    Result,
    Rows,
    beating,
)
from streams.adapter.row_encoding import CHANGE, change_rows
from streams.adapter.running_subscribes import Running, RunningSubscribes
from streams.adapter.sessions import session_facts
from streams.adapter.subscribe_replicas import Deliver, delivered
from streams.adapter.system_columns import named_in, telling_names
from streams.adapter.system_reads import (
    Readable,
    SystemReads,
    SystemTable,
    imported,
    refuse_as_of,
)
from streams.adapter.timelines import common
from streams.adapter.timestamp_selection import ReadAt, Unreadable, choose
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
from streams.compute.as_of import ReadableInterval
from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.plan.physical import Column
from streams.plan.sql.subscribe import Subscribe
from streams.progress import EMPTY, END, Antichain, frontier
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState
from streams.storage.read import reader
from streams.storage.read.reader import (
    EVERYTHING,
    ChunkSelection,
    Loaded,
    is_complete,
    snapshot,
    snapshot_pieces,
)
from streams.storage.read.soundness import first_error
from streams.trace.kernel.functions import Function
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, contents_at, flatten

BEAT_MS = 1000
PATIENT_BEATS = 3
"""Number of beats after which a read reports that it waits for its session's time."""

MADE_MS = 60_000
"""The maximum wait of a read for its objects to be created."""

FAILING_BEATS = 60
"""Number of beats after which a read ends for which a dataflow has failed all the while."""

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
        self._shards, self._guards = shards, guards
        self._workers, self._unmade, self._delay = workers, unmade, delay
        self.subscribes = RunningSubscribes()

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
        found = self._indexes.find(planned)
        if found is None:
            return None
        ask = partial(self._indexes.answer, planned, found)
        time, answer = yield from self.asked(found.collection, when, items, ask)
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
        when = replace(when, timeline=common([item], {each.id: each for each in items}))
        with self._guards.reading([item.id], Timestamp(0)) as guard:
            time = yield from self._readable([item], when, guard)
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
            time = yield from self._readable(sources, when, guard)
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
        blocks, known = list[bytes](), {item.id: item for item in items}
        system = named_in(query)
        request = Plan(Query(query, {**system, **relations(near, known)}, tuple(called)))
        try:
            ended = yield from self.evaluate(request, blocks.append)
        except (WorkerLost, Unstarted):
            raise
        except InvalidStatement:
            if len(near) == len(items) and len(called) == len(functions):
                raise
            # to tell what else there is
            every = {**system, **relations(items, known)}
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
            allowance.expect(self._fetched(item, time, wanted))
            updates, errors = self._snapshot(item, time, wanted)
            refuse_errors(item.name, errors, time)
            snapshots.append(updates)
        return snapshots

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
            time = yield from self._readable([item], when, guard)
            if wanted.until is not None and wanted.until <= time:
                raise InvalidStatement(f"expected UP TO a time beyond {time}, when it begins")
            yield Columns((*CHANGE, *item.columns))
            if deliver is not None and not wanted.snapshot:
                # Nobody else looks whether changes are of anything.
                refuse_errors(item.name, self._snapshot(item, time)[1], time)
            with self.subscribes.running(item.id, wanted, time) as running:
                by_itself = partial(self._delivered, item, time, guard, wanted, running)
                results = by_itself(time)
                if deliver is not None:
                    results = delivered(deliver(time, guard), by_itself)
                for result in results:
                    if isinstance(result, Progress):
                        running.note(result.frontier)
                        self._note_progress(item, result.frontier, when)
                    yield result

    def _delivered(
        self,
        item: Item,
        time: Timestamp,
        guard: Guard,
        wanted: Subscribe,
        running: Running,
        lower: Timestamp,
    ) -> Iterator[Result]:
        """Yield what a subscribe at a time delivers from lower on, which is not before it."""
        kernel = Kernel()
        running.read_by_coordinator()
        if lower == time:
            updates, errors = self._snapshot(item, time)
            refuse_errors(item.name, errors, time)
            schema = arrow_schema([column.type for column in item.columns])
            if wanted.snapshot:
                held = contents_at(flatten([updates], schema), time, kernel)
                yield from change_rows(item.columns, held, kernel)
            lower = Timestamp(time + 1)
            yield Progress(frontier(lower))
        until = END if wanted.until is None else wanted.until
        yield from self._follow(item, (lower, until), guard, kernel)
        yield Complete("SUBSCRIBE")

    def _follow(
        self, item: Item, within: tuple[Timestamp, Timestamp], guard: Guard, kernel: Kernel
    ) -> Iterator[Result]:
        schema = arrow_schema([column.type for column in item.columns])
        lower, until = within
        while lower < until:
            yield from self._wait([item], lower, is_endless=True)
            state = self._state(item)
            with refusing(item.name), halted(item.name, item.id):
                news = reader.changes(self._shards, state, lower, until=until)
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
            guard.downgrade(Timestamp(lower - 1))
        yield Progress(EMPTY)

    def _readable(
        self, items: Sequence[Item], when: When, guard: Guard
    ) -> Generator[Result, None, Timestamp]:
        """Wait until the items are readable at one time; return the time."""
        for item in items:
            yield from self._made(item)
            with halted(item.name, item.id):
                self._shards.sync(item.id)
        after = when.after
        match choose(self._bounds(items), when.as_of, after):
            case Unreadable(name, since):
                raise unreadable(name, since.time if not since.is_empty else None, when.as_of)
            case ReadAt(time):
                guard.downgrade(time)
                yield from self._wait(items, time, when=when)
                self._note(items, time, when)
                return time

    def _note_progress(self, item: Item, upper: Antichain, when: When) -> None:
        """Record that all updates at times before upper were delivered."""
        if not upper.is_empty:
            self._note([item], Timestamp(upper.time - 1), when)

    def _note(self, items: Sequence[Item], time: Timestamp, when: When) -> None:
        """Record the time of a read: of dead letters, no later than its source can be read.

        By event time they are ahead of it, and the session would wait until there are rows.
        """
        for item in items:
            group = self._shards.group_state(item.group).collections
            source = group.get(CollectionId(item.group)) if item.kind == "errors" else None
            if source is not None and not source.upper.is_empty:
                time = min(time, Timestamp(source.upper.time - 1))
        if time >= 0:
            when.note(time, items)

    def _made(self, item: Item) -> Iterator[Result]:
        """Beats until an item that is defined is made, and why it is not.

        Errors: TimeoutError with the cause; InvalidStatement when it was dropped.
        """
        reported, waited_ms = "", 0
        while why := self._why_unmade(item):
            if waited_ms >= MADE_MS:
                raise TimeoutError(
                    f"{item.name} is defined, but not created within {MADE_MS // 1000} s: {why}"
                )
            if why != reported:
                yield Notice(f"waits for {item.name}, which is not created yet: {why}")
                reported = why
            self._shards.wait(lambda: not self._why_unmade(item), BEAT_MS)
            waited_ms += BEAT_MS
            yield Progress(frontier(0))

    def _why_unmade(self, item: Item) -> str:
        with halted(item.name, item.id):
            return self._unmade(item)

    def _snapshot(
        self, item: Item, time: Timestamp, selection: ChunkSelection = EVERYTHING
    ) -> Loaded:
        """The contents at a time. Errors: InvalidStatement when since has passed it."""
        with refusing(item.name), halted(item.name, item.id):
            return snapshot(self._shards, item.id, time, selection=selection)

    def _fetched(self, item: Item, time: Timestamp, wanted: Wanted) -> int:
        """The bytes, as stored, of the chunks that are read of the contents at a time."""
        with refusing(item.name), halted(item.name, item.id):
            pieces = snapshot_pieces(self._shards.state(item.id), time)
        return sum(piece.ref.size for piece in pieces if wanted.may_match(piece.ref))

    def _bounds(self, items: Sequence[Item]) -> tuple[ReadableInterval, ...]:
        return tuple(bounds_of(item, self._state(item)) for item in items)

    def _state(self, item: Item) -> CollectionState:
        """The state of what is being read. Errors: InvalidStatement when it was dropped.

        A dropped collection's upper is empty, just as that of one which is complete.
        """
        try:
            with halted(item.name, item.id):
                state = self._shards.state(item.id)
        except InvalidUsage as cause:  # the topics are gone as well
            raise unreadable(item.name, None, None) from cause
        if state.is_dropped:
            raise unreadable(item.name, None, None)
        return state

    def _wait(
        self,
        items: Sequence[Item],
        time: Timestamp,
        *,
        when: When | None = None,
        is_endless: bool = False,
    ) -> Iterator[Result]:
        """Beats until the items are final at `time`; says what is waited for.

        Failed dataflows are tried again: a read ends with the cause when one has failed for
        `FAILING_BEATS` in a row, unless it is endless.

        Errors: InvalidStatement, TimeoutError.
        """

        def final() -> bool:
            return all(is_complete(self._state(item), time) for item in items)

        if final():
            return
        groups = {self._shards.group_of(item.id) for item in items}
        delays = Delays(time, self._delay, FAILING_BEATS if not is_endless else None)
        beats = 0
        while not self._shards.wait(final, BEAT_MS, groups):
            beats += 1
            if when is not None and beats == PATIENT_BEATS:
                names = [item.name for item in self._behind(items, time)]
                yield from map(Notice, why_patient(", ".join(names), time, when))
            yield from map(Notice, delays.beat(self._behind(items, time)))
            uppers = [self._state(item).upper for item in items]
            least = min((upper.time for upper in uppers if not upper.is_empty), default=0)
            yield Progress(frontier(time if is_endless else min(least, time)))

    def _behind(self, items: Sequence[Item], time: Timestamp) -> list[Item]:
        return [item for item in items if not is_complete(self._state(item), time)]


def _is_spelled(item: Item, text: str) -> bool:
    """Whether a text may name an object, quoted or not."""
    name = item.name.casefold().replace('"', '""')
    parts = name.rsplit(".", 1) if item.kind == "errors" else [name]
    return all(part in text for part in parts)
