"""DuckDB's word on a maintained view: its contents, and whether errors exist, at every time.

Compared are the names and types of columns, as a table of the query has them, and the rows, as
a multiset and by type, at every time from the view's since to its upper; or, where DuckDB fails
over the contents of that time, that the view has an error then.
What a view's errors say, how many there are, and the rows that a view still has beside an
error are not compared: DuckDB has only one answer.

The query that DuckDB answers is the *pinned* one: its ties are broken by the whole row, as the
engine does (rule 39). It is answered without DuckDB's optimiser, which moves and drops
expressions that fail: only as they are written do they have a meaning. Where the view
disagrees with that about a failure, DuckDB is asked again with its optimiser, and with parts of
it. If it ever says what the view says, its answer depends on how it plans, and the time counts
as undetermined: neither right nor wrong. So it does where the view fails by a scalar subquery
with several rows and DuckDB does not: which rows ask for one is a matter of the plan. Where
DuckDB fails so and the view does not, nobody may read the value: we prune what is not read
before we compute it, DuckDB does not (rule 38). Then the view must hold the rows that DuckDB
has when it lets any of the several stand for the value, with its optimiser and without. Other
failures that nobody reads are told by asking DuckDB with our plan, and those that DuckDB does
not come to, since the other side of a join is empty, by asking it for the parts of our plan.

Where DuckDB's rows, or those of a part of our plan, hold an interval for which Arrow has no
room, the view must fail, or may (D222); such times are counted by themselves.

Not told apart: floats that differ beyond nine decimals or ten digits, a zero by its sign, NaN
by its bits, and intervals of one length.
"""

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import duckdb
import pyarrow as pa

from streams.errors import InvalidStatement
from streams.plan.compile import bound_plan
from streams.plan.ir import Relational, children, columns
from streams.plan.passes import optimise
from streams.plan.type_names import stored_type
from streams.testing import Maintained, maintain
from streams.testing.maintain import defined
from streams.trace.kernel.connection import create
from streams.trace.kernel.functions import vectorise
from streams.trace.kernel.kernel import Kernel, arrow_type
from streams.trace.kernel.unions import carrier_type
from tests.random_sql.case import Case, catalog, has_unions, spans_times
from tests.random_sql.tables import Table
from tests.support.interval_room import lacks_room
from tests.support.plan_sql import to_sql
from tests.support.plan_tables import as_text, carriers, connect, in_arrow, shown
from tests.support.recursive import naive

SEVERAL = "a scalar subquery returned more than one row"
_UNPLANNED = Counter(["no answer"])
_SEVERAL = "More than one row returned by a subquery"
_NO_ROOM = "Arrow has no room for an interval of this answer (D222)"
_WITHOUT = ("", "join_order,build_side_probe_side", "filter_pullup,filter_pushdown")
"""What DuckDB's optimiser goes without: which side of a join is read first, and what is
filtered before it, decides whether an expression that fails is computed at all."""
_FAILS = (
    duckdb.OutOfRangeException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.BinderException,  # of a row, such as NULL for a histogram's bins
    UnicodeDecodeError,  # DuckDB's error quotes a part of a character
    duckdb.InternalException,  # of a function that DuckDB does not expect to fail
)


_OF_TEXT_TOO = duckdb.BinderException, UnicodeDecodeError, duckdb.InternalException
"""Of these, what is raised of a query that does not bind is no failure over its rows."""


class Refused(Exception):
    """A query that no view can have; `unbound` if DuckDB does not take it either."""

    def __init__(self, why: str, unbound: bool) -> None:
        super().__init__(why)
        self.unbound = unbound


@dataclass
class Judge:
    """A DuckDB to ask; one serves many cases.

    `undetermined` counts the times of the last case at which DuckDB has no one answer,
    `without_room` those at which it has one and the view fails, since Arrow has no room for an
    interval in it; `failure` is how its last answer failed, if it did.
    """

    connection: duckdb.DuckDBPyConnection = field(default_factory=connect)
    undetermined: int = 0
    without_room: int = 0
    failure: str = ""

    def __post_init__(self) -> None:
        # At the latest when the process ends: DuckDB and a function in Python hold each other,
        # and of what is left then a page is printed.
        weakref.finalize(self, self.connection.close)
        self.connection.execute("SET arrow_lossless_conversion = true")
        self.connection.execute("PRAGMA disable_optimizer")

    def judge(self, case: Case, engine: str = "local") -> Maintained:
        """The view of a case, compared at every time.

        Errors: Refused; AssertionError where the view is wrong; what the engine raises.
        """
        updates = self.load(case)
        definitions = {table.name: table.definition for table in case.tables}
        try:
            view = maintain(
                case.query,
                definitions,
                updates,
                case.cuts,
                "spark" if engine == "spark" else "local",
                buckets=case.buckets,
                merge_factor=case.merge_factor,
                functions=case.functions,
            )
        except InvalidStatement as refusal:
            raise Refused(_why(refusal), self._is_unbound(case)) from refusal
        self.compare(case, view)
        return view

    def load(self, case: Case) -> dict[str, pa.Table]:
        """Make the case's tables views of their contents at the time `now`; their updates."""
        for function in defined(case.functions):
            with suppress(duckdb.NotImplementedException):  # it is there from another case
                create(
                    self.connection,
                    function,
                    vectorise(function, arrow_type(function.returns), {}),
                )
            self.connection.execute(function.macro)
        stamps = any("TIMESTAMP" in table.definition for table in case.tables)
        now = "getvariable('now')::BIGINT"
        now = f"make_timestamp({now} * 1000)" if stamps else now
        self.connection.execute(f"CREATE OR REPLACE TEMP MACRO mz_now() AS {now}")
        return {table.name: self._load(table, case.last) for table in case.tables}

    def compare(self, case: Case, view: Maintained) -> None:
        """Ask DuckDB at every time. Errors: AssertionError."""
        self.undetermined = self.without_room = 0
        types = [column.type for column in view.columns]
        if "MUTUALLY" not in case.query:
            self._compare_columns(case.query, view)
        histories = self._contents(view, types)
        moved = {
            view.since,
            *(update.time for table in case.tables for update in table.updates),
        }
        want, is_without_room = None, False
        for time in range(view.since, view.upper):
            actual = None if view._errors.num_rows and view.errors_at(time) else histories[time]
            if time in moved or "mz_now" in case.pinned:  # else DuckDB says what it said
                want = self.answer(case.pinned, types, time)
                is_without_room = self.failure == _NO_ROOM
            if actual == want:
                self.without_room += is_without_room
                continue
            if actual is None and want is not None and self._lacks_room(case, time):
                self.without_room += 1
                continue
            assert self._is_undetermined(case, view, time, types, actual, want), (
                f"at {time}\nview:   {_text(actual)} {view.errors_at(time)}"
                f"\nDuckDB: {_text(want)} {self.failure}"
            )
            self.undetermined += 1

    def _compare_columns(self, query: str, view: Maintained) -> None:
        """Ask DuckDB for the names and types that a table of the query has."""
        self.connection.execute("SET VARIABLE now = -1")  # when all is empty: a table is filled
        try:
            self.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE columns_of_view AS ({query})"
            )
        except _FAILS:
            return
        except duckdb.NotImplementedException as error:  # without its optimiser it cannot
            raise Refused(str(error).splitlines()[0], unbound=True) from error
        described = self.connection.execute("DESCRIBE columns_of_view").fetchall()
        want = [(name, stored_type(type_)) for name, type_, *_ in described]
        actual = [(column.name, column.type) for column in view.columns]
        assert actual == want, f"columns of the view: {actual}, of DuckDB's table: {want}"

    def _is_undetermined(
        self, case: Case, view: Maintained, time: int, types: list[str],
        actual: Counter[str] | None, want: Counter[str] | None,
    ) -> bool:  # fmt: skip
        if want is not None and actual is not None:
            return False  # rows stand against rows
        if SEVERAL in view.errors_at(time):
            return True
        if _SEVERAL in self.failure and self._is_of_any(case.pinned, types, time, actual):
            return True
        texts, plan = [case.pinned], self._plan(case)
        if want is None and plan is not None:
            # Spared what nobody reads, and its failure, DuckDB gives these rows. Where nothing
            # fails, passes keep what a plan means: that is compared elsewhere, at each pass.
            texts.append(shown(_text_of(case, plan), view.columns))
            if self.answer(texts[-1], types, time) == actual:
                return True
        self.connection.execute("PRAGMA enable_optimizer")
        variants = product(texts, _WITHOUT)
        plans = [self._planned(text, types, time, without) for text, without in variants]
        self.connection.execute("PRAGMA disable_optimizer")
        return actual in plans or (
            want is not None and plan is not None and self._fails(case, plan)
        )

    def _plan(self, case: Case) -> Relational | None:
        """Our plan of the query, if DuckDB can answer it at a time."""
        if spans_times(case):
            return None
        functions = defined(case.functions)
        return optimise(bound_plan(case.pinned, catalog(case, Kernel()), functions))

    def _lacks_room(self, case: Case, time: int) -> bool:
        """Whether Arrow has no room for an interval in the rows of a part of the plan."""
        plan = self._plan(case)
        self.connection.execute(f"SET VARIABLE now = {time}")
        return plan is not None and any(self._has_long(case, part) for part in _all_of(plan))

    def _has_long(self, case: Case, plan: Relational) -> bool:
        """Whether the rows of a plan, as DuckDB has them, hold an interval without room."""
        text, types = _text_of(case, plan), [column.type for column in columns(plan)]
        try:
            rows = self.connection.execute(_shown(text, types)).fetchall()
        except _FAILS:
            return False
        return any(is_long for *_, is_long in rows)

    def _fails(self, case: Case, plan: Relational) -> bool:
        """Whether a part of the plan fails by itself, be it that nothing above asks for it."""
        try:
            self.connection.execute(_text_of(case, plan)).fetchall()
        except _FAILS:
            return True
        return any(self._fails(case, child) for child in children(plan))

    def _is_of_any(
        self, query: str, types: list[str], time: int, actual: Counter[str] | None
    ) -> bool:
        """Whether these are DuckDB's rows, however planned, if any row stands for several."""
        self.connection.execute("SET scalar_subquery_error_on_multiple_rows = false")
        plain = self._planned(query, types, time)
        self.connection.execute("PRAGMA enable_optimizer")
        planned = self._planned(query, types, time)
        self.connection.execute("PRAGMA disable_optimizer")
        self.connection.execute("SET scalar_subquery_error_on_multiple_rows = true")
        return plain == actual and planned in (actual, _UNPLANNED)

    def _planned(
        self, query: str, types: list[str], time: int, without: str = ""
    ) -> Counter[str] | None:
        """The answer without some optimisers; `_UNPLANNED` if DuckDB cannot plan the query."""
        self.connection.execute(f"SET disabled_optimizers = '{without}'")
        try:
            return self.answer(query, types, time)
        except duckdb.InvalidTypeException:  # a filter that is a BETWEEN of lists
            return _UNPLANNED
        finally:
            self.connection.execute("SET disabled_optimizers = ''")

    def answer(self, query: str, types: list[str], time: int) -> Counter[str] | None:
        """DuckDB's rows at a time, or None if it fails over them.

        Errors: Refused where it fails whatever the rows: that says nothing of a view.
        """
        self.connection.execute(f"SET VARIABLE now = {time}")
        self.failure = ""
        try:
            if "MUTUALLY" in query.upper():
                return Counter(naive(self.connection, query))
            rows = self.connection.execute(_shown(query, types)).fetchall()
        except _FAILS as error:
            self.failure = str(error)
            if isinstance(error, _OF_TEXT_TOO) and not self._binds(query):
                raise Refused(self.failure.splitlines()[0], unbound=True) from error
            return None
        except duckdb.NotImplementedException as error:  # without its optimiser it cannot
            raise Refused(str(error).splitlines()[0], unbound=True) from error
        except duckdb.Error as error:
            if type(error) is not duckdb.Error:  # list_reduce of no elements has no class
                raise
            self.failure = str(error)
            return None
        if any(is_long for *_, is_long in rows):
            self.failure = _NO_ROOM
            return None
        return Counter(str(tuple(row)) for *row, _ in rows)

    def _contents(self, view: Maintained, types: list[str]) -> list[Counter[str]]:
        """The view's rows at each time from 0 on."""
        # Not `view.updates`: DuckDB does not read a batch of no enums but empty lists of them.
        self.connection.register("changes", pa.Table.from_batches([view._updates]))
        kinds = enumerate(map(carrier_type, types))
        listed = ", ".join(as_text(f"CAST(c{n} AS {kind})", kind) for n, kind in kinds)
        rows = self.connection.execute(f"SELECT time, diff, {listed} FROM changes").fetchall()
        histories = []
        for time in range(view.upper):
            counts: Counter[str] = Counter()
            for at, diff, *row in rows:
                if at <= time:
                    counts[str(tuple(row))] += diff
            assert all(count >= 0 for count in counts.values()), f"a negative count at {time}"
            histories.append(+counts)
        return histories

    def _is_unbound(self, case: Case) -> bool:
        return not self._binds(case.pinned)

    def _binds(self, query: str) -> bool:
        """Whether DuckDB takes the query, whatever the rows."""
        try:
            self.connection.execute(f"EXPLAIN {query}")
        except (duckdb.Error, UnicodeDecodeError):
            return False
        return True

    def _load(self, table: Table, last: int) -> pa.Table:
        """Make the table a view of its contents at the time `now`; its updates."""
        rows = list(dict.fromkeys(update.row for update in table.updates))
        places = {row: place for place, row in enumerate(rows)}
        rows_name, live = f"rows_{table.name}", f"live_{table.name}"
        execute = self.connection.execute
        execute(f"CREATE OR REPLACE TABLE {rows_name} ({table.definition})")
        if rows:
            kinds = [
                f"::{kind}" if len(table.columns) > 1 else "" for kind in table.columns.values()
            ]
            listed = [
                ", ".join(
                    f"({cell}){kind}" if kind else cell
                    for cell, kind in zip(row, kinds, strict=True)
                )
                for row in rows
            ]
            if len(table.columns) > 1:
                execute(
                    f"INSERT INTO {rows_name} VALUES {', '.join(f'({row})' for row in listed)}"
                )
            else:  # each row on its own: its cells have no casts
                for row in listed:
                    execute(f"INSERT INTO {rows_name} VALUES ({row})")
        table_ = in_arrow(self.connection, rows_name, "rowid")
        self.connection.register(live, _lives(table, places, last))
        names = ", ".join(f'"{name}"' for name in table_.column_names)
        execute(
            f"CREATE OR REPLACE VIEW {table.name} AS SELECT {names} FROM"
            f" (SELECT *, rowid AS _id FROM {rows_name}) k JOIN {live} l ON k._id = l.place"
            " WHERE l.time = getvariable('now')"
        )
        updates = table_.take(
            pa.array([places[update.row] for update in table.updates], pa.int64())
        )
        times = pa.array([update.time for update in table.updates], pa.int64())
        diffs = pa.array([update.diff for update in table.updates], pa.int64())
        return updates.append_column("_time", times).append_column("_diff", diffs)


def _lives(table: Table, places: dict[tuple[str, ...], int], last: int) -> pa.Table:
    """Which rows are there at which time, once for each copy."""
    counts: Counter[int] = Counter()
    texts = []
    for time in range(last + 1):
        for update in table.updates:
            if update.time == time:
                counts[places[update.row]] += update.diff
        texts += [(place, time) for place in counts.elements()]
    columns = {"place": [place for place, _ in texts], "time": [time for _, time in texts]}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def _all_of(plan: Relational) -> Iterator[Relational]:
    """The plan and all below it."""
    yield plan
    for child in children(plan):
        yield from _all_of(child)


def _text_of(case: Case, plan: Relational) -> str:
    """SQL for a plan, which reads structs for the unions in the tables' columns."""
    if not has_unions(case):
        return to_sql(plan)
    tables = []
    for name, relation in catalog(case, Kernel()).items():
        listed = carriers((column.name, column.type) for column in relation.columns)
        tables.append(f"{name} AS (SELECT {listed} FROM memory.main.{name})")
    return f"WITH {', '.join(tables)} {to_sql(plan)}"


def _shown(query: str, types: list[str]) -> str:
    names = ", ".join(f"c{i}" for i in range(len(types)))
    listed = [(f"c{i}", type_) for i, type_ in enumerate(types)]
    texts = ", ".join(as_text(*column) for column in listed)
    return f"SELECT {texts}, {lacks_room(listed)} FROM ({query}) AS q({names})"


def _why(refusal: InvalidStatement) -> str:
    return str(refusal).splitlines()[0]


def _text(rows: Counter[str] | None) -> str:
    return "an error" if rows is None else " ".join(sorted(rows.elements())) or "no rows"
