"""SELECT and SUBSCRIBE: reads of collections at one common time, from their shards.

A SELECT is DuckDB's, over tables that hold exactly what the collections hold at the chosen
time. A SUBSCRIBE is the contents at its as_of and then every change, in intervals, each
followed by a progress. Both wait until what they read is final, and while they wait or send,
nothing that they read may be compacted (`streams.adapter.guards`).

Waiting is cut into beats: at each one the caller gets to see that we are still there, and we
that it is. An answer is a generator; closing it ends the read.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streams.adapter.catalog import Item, unknown
from streams.adapter.contents import contents, nothing, refuse_errors
from streams.adapter.guards import Guard, Guards
from streams.adapter.objects import bounds_of
from streams.adapter.results import Columns, Complete, Notice, Progress, Result
from streams.adapter.rows import rows
from streams.adapter.sessions import Session
from streams.adapter.timestamps import LAST, Bounds, ReadAt, Unreadable, choose
from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import Timestamp
from streams.plan.binder import binder
from streams.plan.mutual import split
from streams.plan.physical import Column
from streams.plan.refusals import is_carried
from streams.progress import Antichain, frontier
from streams.storage.read import (
    Loaded,
    SinceViolation,
    end,
    is_complete,
    load_stable,
    snapshot,
)
from streams.storage.shards import Shards
from streams.storage.soundness import first_error
from streams.storage.state import CollectionState
from streams.trace.columns import int64
from streams.trace.functions import Function, without_hash
from streams.trace.kernel import (
    AnswerTooLarge,
    EvaluationFailed,
    Kernel,
    KernelFailed,
    StatementRefused,
    arrow_schema,
)
from streams.trace.updates import at, consolidate, flatten

BEAT_MS = 1000
PATIENT_BEATS = 3
"""After how many beats a read says that it waits for its session's time."""

MADE_MS = 60_000
"""For how long a read waits until what it reads is made."""

MOST_ANSWERED = 512 << 20
"""Bytes of an answer, in Arrow: the coordinator holds it whole, and serves others beside it."""

TIME = Column("slackwater_time", "BIGINT")
DIFF = Column("slackwater_diff", "BIGINT")


_NO_TABLE = re.compile(r"Catalog Error: Table with name (.*) does not exist!$")


@dataclass(frozen=True, slots=True)
class When:
    """At which time to read: AS OF one, or at none before the session's."""

    as_of: Timestamp | None
    session: Session

    def note(self, time: Timestamp, items: Sequence[Item]) -> None:
        """The items were read at a time. That of sealed ones alone is beyond all others."""
        if self.as_of is None and items and time < LAST:
            self.session.note(time)

    def note_progress(self, upper: Antichain) -> None:
        """All updates at times not beyond upper were delivered."""
        if self.as_of is None and not upper.is_empty:
            self.session.note(Timestamp(upper.time - 1))


class Reads:
    """Reads on behalf of users. Any thread may read; each read has a kernel of its own."""

    def __init__(
        self,
        shards: Shards,
        guards: Guards,
        new_kernel: Callable[[], Kernel],
        unmade: Callable[[Item], str],
    ) -> None:
        self._shards, self._guards, self._new_kernel = shards, guards, new_kernel
        self._unmade = unmade

    def select(
        self,
        query: str,
        when: When,
        items: Mapping[str, Item],
        functions: Sequence[Function] = (),
    ) -> Iterator[Result]:
        """The answer to a query over the named items, which may call Python functions.

        Errors: InvalidStatement; TimeoutError when an item is not made in time.
        """
        kernel = self._new_kernel()
        text = query.casefold()
        kernel.name([each for each in functions if each.name.casefold() in text])
        read = [items[name] for name in referenced(query, items)]
        columns = bind(kernel, query, read, items.values())
        ids = [item.id for item in read]
        with self._guards.reading(ids, Timestamp(0)) as guard:
            time = yield from self._readable(read, when, guard)
            tables = [
                contents(item.name, item.columns, self._snapshot(item, time), time, kernel)
                for item in read
            ]
            answer = evaluate(kernel, query, read, tables)
        yield Columns(columns)
        yield from rows(answer, [each.type for each in columns], kernel)
        facts: dict[str, str | int] = {"as_of": time} if read else {}
        if when.session.is_named and when.session.time is not None:
            facts["session_time"] = when.session.time
        yield Complete(f"SELECT {answer.num_rows}", facts)

    def subscribe(self, item: Item, when: When) -> Iterator[Result]:
        """The contents of an object and then its changes, for ever; ends when it is sealed.

        It fails when the object is dropped: what has come was not all that there would be. It
        fails at the first time at which the object is in error, after all changes before that
        time, however the changes are cut into intervals and whether or not the error heals.

        Errors: InvalidStatement.
        """
        kernel = self._new_kernel()
        with self._guards.reading([item.id], Timestamp(0)) as guard:
            time = yield from self._readable([item], when, guard)
            yield Columns((TIME, DIFF, *item.columns))
            updates, errors = self._snapshot(item, time)
            refuse_errors(item.name, errors, time)
            schema = arrow_schema([each.type for each in item.columns])
            yield from changes(item, at(flatten([updates], schema), time, kernel), kernel)
            yield Progress(frontier(time + 1))
            for each in self._follow(item, time, guard, kernel):
                if isinstance(each, Progress):
                    when.note_progress(each.frontier)
                yield each

    def _follow(
        self, item: Item, time: Timestamp, guard: Guard, kernel: Kernel
    ) -> Iterator[Result]:
        schema = arrow_schema([each.type for each in item.columns])
        lower = Timestamp(time + 1)
        while True:
            yield from self._wait([item], lower)
            state = self._state(item)
            upper = end(state)
            updates, errors = self._changes(item, lower, upper)
            wrong = first_error(errors)
            if wrong is not None:
                updates = updates.filter(pc.less(updates.column("time"), wrong))
            news = consolidate(flatten([updates], schema), kernel)
            yield from changes(item, news, kernel)
            yield Progress(state.upper if wrong is None else frontier(wrong))
            if wrong is not None:
                refuse_errors(item.name, errors, wrong)
            if state.upper.is_empty:
                yield Complete("SUBSCRIBE")
                return
            lower = upper
            guard.downgrade(Timestamp(lower - 1))

    def _readable(
        self, items: Sequence[Item], when: When, guard: Guard
    ) -> Generator[Result, None, Timestamp]:
        """Wait until the items are readable at one time, which is returned."""
        for each in items:
            yield from self._made(each)
            self._shards.sync(each.id)
        after = when.session.time
        match choose(self._bounds(items), when.as_of, after):
            case Unreadable(name, since):
                raise unreadable(name, since.time if not since.is_empty else None, when.as_of)
            case ReadAt(time):
                guard.downgrade(time)
                yield from self._wait(items, time, is_session_s=time == after)
                when.note(time, items)
                return time

    def _made(self, item: Item) -> Iterator[Result]:
        """Beats until an item that is defined is made, and why it is not.

        Errors: TimeoutError with the cause; InvalidStatement when it was dropped.
        """
        told, waited_ms = "", 0
        while why := self._unmade(item):
            if waited_ms >= MADE_MS:
                raise TimeoutError(
                    f"{item.name} is defined, but not made in {MADE_MS // 1000} s: {why}"
                )
            if why != told:
                yield Notice(f"waits for {item.name}, which is not made yet: {why}")
                told = why
            self._shards.wait(lambda: not self._unmade(item), BEAT_MS)
            waited_ms += BEAT_MS
            yield Progress(frontier(0))

    def _snapshot(self, item: Item, time: Timestamp) -> Loaded:
        """The contents at a time. Errors: InvalidStatement when since has passed it."""
        with refusing(item.name):
            return snapshot(self._shards, item.id, time)

    def _changes(self, item: Item, lower: Timestamp, upper: Timestamp) -> Loaded:
        """The updates in [lower, upper). Errors: InvalidStatement when since has passed."""
        with refusing(item.name):
            held = Timestamp(lower - 1)
            return load_stable(self._shards, item.id, (lower, upper), held)

    def _bounds(self, items: Sequence[Item]) -> tuple[Bounds, ...]:
        return tuple(bounds_of(item, self._shards.state(item.id)) for item in items)

    def _state(self, item: Item) -> CollectionState:
        """The state of what is being read. Errors: InvalidStatement when it was dropped.

        A dropped collection's upper is empty, just as that of one which is complete.
        """
        try:
            state = self._shards.state(item.id)
        except InvalidUsage as cause:  # the topics are gone as well
            raise unreadable(item.name, None, None) from cause
        if state.is_dropped:
            raise unreadable(item.name, None, None)
        return state

    def _wait(
        self, items: Sequence[Item], time: Timestamp, *, is_session_s: bool = False
    ) -> Iterator[Result]:
        """Beats until the items are final at `time`; says what a session waits for.

        Errors: InvalidStatement.
        """

        def final() -> bool:
            return all(is_complete(self._state(each), time) for each in items)

        if final():
            return
        groups = {self._shards.group_of(each.id) for each in items}
        beats = 0
        while not self._shards.wait(final, BEAT_MS, groups):
            beats += 1
            if is_session_s and beats == PATIENT_BEATS:
                behind = [e.name for e in items if not is_complete(self._state(e), time)]
                yield Notice(
                    f"waits for {', '.join(behind)} to come to {time}, the time of this"
                    " session's last read; AS OF reads earlier"
                )
            uppers = [self._state(each).upper for each in items]
            least = min((each.time for each in uppers if not each.is_empty), default=0)
            yield Progress(frontier(min(least, time)))


def referenced(query: str, items: Mapping[str, Item]) -> tuple[str, ...]:
    """The names of items that a query mentions, as they are spelled in `items`.

    Errors: InvalidStatement when the query does not parse.
    """
    if split(query).query != query:
        raise InvalidStatement(
            "a SELECT is answered by DuckDB, which knows neither WITH MUTUALLY RECURSIVE nor a"
            " recursion limit",
            hint="make a materialized view of it, and read that",
        )
    with binder({}) as bound:
        statements = bound.syntax(query)
    if len(statements) != 1:
        raise InvalidStatement(f"expected one query, got {len(statements)}")
    mentioned = {
        node.text("table_name").casefold()
        for node in statements[0].walk()
        if node.fields.get("type") == "BASE_TABLE"
    }
    return tuple(name for name in items if name.casefold() in mentioned)


def bind(
    kernel: Kernel, query: str, read: Sequence[Item], items: Iterable[Item]
) -> tuple[Column, ...]:
    """The columns of the answer: nobody waits for a query that does not bind.

    Errors: InvalidStatement in DuckDB's words, but for a table: of those it knows its own.
    """
    empty = [nothing(item.columns) for item in read]
    try:
        described = evaluate(kernel, f"DESCRIBE {query}", read, empty)
    except InvalidStatement as error:
        missing = _NO_TABLE.match(error.detail)
        raise (unknown(missing[1], items) if missing else error) from error
    names = described.column("column_name").to_pylist()
    types = described.column("column_type").to_pylist()
    columns = tuple(
        Column(without_hash(name), kind) for name, kind in zip(names, types, strict=True)
    )
    for each in columns:
        if not is_carried(each.type):
            raise InvalidStatement(
                f"column {each.name} of type {each.type} cannot be shown",
                hint="cast it to VARCHAR, or take the parts that you need",
            )
    return columns


def evaluate(
    kernel: Kernel, query: str, read: Sequence[Item], tables: Sequence[pa.Table]
) -> pa.Table:
    """DuckDB's answer over the items' contents, read as the types that the items declare.

    Errors: InvalidStatement in DuckDB's words.
    """
    typed = {
        item.name: (table, [each.type for each in item.columns])
        for item, table in zip(read, tables, strict=True)
    }
    try:
        return kernel.query_as(query, typed, most_bytes=MOST_ANSWERED)
    except AnswerTooLarge as error:
        raise InvalidStatement(
            "the answer is too large",
            f"expected at most {MOST_ANSWERED >> 20} MiB, got more",
            "take fewer rows or columns, or make a materialized view and a sink of it",
        ) from error
    except (EvaluationFailed, StatementRefused, KernelFailed) as error:
        lines = [each for each in without_hash(str(error)).splitlines() if each]
        hint = lines[1] if len(lines) > 1 and not lines[1].startswith("LINE") else ""
        raise InvalidStatement("the query failed", lines[0], hint) from error


def changes(item: Item, updates: pa.RecordBatch, kernel: Kernel) -> Iterator[Result]:
    """Updates as rows, in the order of their times: time, diff, then the data."""
    if not updates.num_rows:
        return
    order = pc.sort_indices(pa.array(int64(updates.column("time"))))
    table = pa.Table.from_batches([updates.take(order)])
    width = len(item.columns)
    shown = table.select([width, width + 1, *range(width)])
    types = [TIME.type, DIFF.type, *(each.type for each in item.columns)]
    yield from rows(shown, types, kernel)


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Says in the user's words that since has passed what is being read."""
    try:
        yield
    except SinceViolation as passed:
        since = None if passed.since.is_empty else passed.since.time
        raise unreadable(name, since, passed.as_of) from passed


def unreadable(name: str, since: int | None, as_of: Timestamp | None) -> InvalidStatement:
    """The error of a read that no waiting will help."""
    if since is None:
        return InvalidStatement(f"{name} cannot be read any more", "it was dropped")
    return InvalidStatement(
        f"{name} cannot be read at {as_of}",
        f"its history before {since} has been compacted",
        f"read it at {since} or later",
    )
