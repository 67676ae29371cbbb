"""A query of a suite as a view over a random history of its tables, against DuckDB.

The tables' rows come and go, and at the last time are what the suite's script left. Rows of a
table have an order for DuckDB, which a query may show (`LIMIT` without `ORDER BY`, `first`,
`row_number() OVER ()`): where the view disagrees, DuckDB is asked over tables in other orders,
and with ties of a LIMIT broken by what is shown. If it says what the view says, or where the
view has rows several things, the query has no one answer at that time. A view that fails where
DuckDB fails in no order and by no plan is wrong, unless Arrow has no room for an interval
(D222).
"""

import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from streams.plan.type_names import quoted
from streams.testing import Maintained
from streams.trace.kernel.unions import as_union, carrier_type
from tests.random_sql.case import Case
from tests.random_sql.judge import Judge, Refused
from tests.random_sql.tables import Table, Update
from tests.suites.replay import Held
from tests.support.plan_tables import in_arrow

SLOW = 10.0
"""Seconds of processor time beyond which a view is slow."""
LAST = 5
_ORDERS = 6
_LIMIT = re.compile(r"(.*?)\s+(LIMIT\b[^()]*)", re.IGNORECASE | re.DOTALL)
_ORDER = re.compile(r".*\bORDER\s+BY\b[^()]*", re.IGNORECASE | re.DOTALL)
_NO_ANSWER = Counter(["no answer"])
_OWN_FAILURES = (duckdb.InternalException, duckdb.FatalException)


@dataclass(frozen=True)
class Verdict:
    """What became of a query, why, and the processor time that its view took.

    The word is right, undetermined, without room (D222), refused, unanswered (by DuckDB),
    BROKEN (DuckDB itself), slow (no answer in time), WRONG or INTERNAL.
    """

    word: str
    why: str
    seconds: float


@dataclass
class SuiteJudge(Judge):
    """A judge of cases whose rows are those of `held`, by their places."""

    held: dict[str, Held] = field(default_factory=dict)
    maintained: float = 0.0
    """When the view of the last case was there, by `time.process_time`."""

    def verdict(self, query: str, held: list[Held], seed: str) -> Verdict:
        """Maintain the view and compare it. Errors: what is raised from outside (a timer)."""
        chance = random.Random(seed)
        self.held = {table.name: table for table in held}
        self.maintained = 0.0
        buckets = chance.choice((1, 2, 3))
        tables = tuple(_table(chance, table) for table in held)
        case = Case(tables=tables, query=query, pinned=query, last=LAST, buckets=buckets)
        begun = time.process_time()
        word, why = self._word(case)
        return Verdict(word, why, (self.maintained or time.process_time()) - begun)

    def _word(self, case: Case) -> tuple[str, str]:
        try:
            self.judge(case)
        except TimeoutError:
            raise
        except Refused as refusal:
            return ("unanswered" if refusal.unbound else "refused"), str(refusal)
        except _OWN_FAILURES as error:
            return "BROKEN", str(error)
        except AssertionError as error:
            return ("WRONG" if str(error) else "INTERNAL"), str(error) or repr(error)
        except Exception as error:  # noqa: BLE001 - whatever else the engine raises is a defect
            return "INTERNAL", f"{type(error).__name__}: {error}"
        if self.undetermined:
            return "undetermined", ""
        return ("without room" if self.without_room else "right"), ""

    def compare(self, case: Case, view: Maintained) -> None:
        """As the judge of cases, but DuckDB plans as it does: its joins end."""
        self.maintained = time.process_time()
        self.connection.execute("PRAGMA enable_optimizer")
        super().compare(case, view)

    def _load(self, table: Table, last: int) -> pa.Table:
        """Make the table a view of its contents at the time `now`, in an order by `salt`."""
        contents, execute = self.held[table.name], self.connection.execute
        rows_name, live = f"rows_of_{table.name}", f"lives_of_{table.name}"
        names = [f'"{name}"' for name, _ in contents.columns]
        casts = [f"{_own(quoted(n), kind)} AS {quoted(n)}" for n, kind in contents.columns]
        ids = pa.array(range(contents.rows.num_rows), pa.int64())
        self.connection.register("held_rows", contents.rows.append_column("_id", ids))
        listed = ", ".join([*casts, "_id"])
        execute(f"CREATE OR REPLACE TABLE {rows_name} AS SELECT {listed} FROM held_rows")
        self.connection.register("held_lives", _lives(table, last))
        execute(f"CREATE OR REPLACE TABLE {live} AS FROM held_lives")
        columns = [f"k.{name}" for name in names]
        salted = "CASE WHEN getvariable('salt') > 0 THEN hash(k._id, getvariable('salt')) END"
        execute(
            f"CREATE OR REPLACE VIEW {table.name} AS SELECT {', '.join(columns)}"
            f" FROM {rows_name} k JOIN {live} l ON k._id = l.place"
            f" WHERE l.time = getvariable('now') ORDER BY {', '.join([salted, *columns])}"
        )
        rows = in_arrow(self.connection, rows_name, "_id").drop_columns(["_id"])
        return _updates(rows, table)

    def _is_undetermined(
        self, case: Case, view: Maintained, time: int, types: list[str],
        actual: Counter[str] | None, want: Counter[str] | None,
    ) -> bool:  # fmt: skip
        self.connection.execute("PRAGMA disable_optimizer")
        plain = self.answer(case.pinned, types, time)
        is_undetermined = (
            actual in (plain, self._pinned(case.pinned, types, time))
            or self._varies(case, time, types, actual, plain)
            or super()._is_undetermined(case, view, time, types, actual, plain)
        )
        self.connection.execute("PRAGMA enable_optimizer")
        return is_undetermined

    def _pinned(self, query: str, types: list[str], time: int) -> Counter[str] | None:
        """The answer with ties of the last LIMIT broken by the columns that are shown."""
        last = _LIMIT.fullmatch(query)
        if last is None:
            return _NO_ANSWER
        places = ", ".join(f"{place} NULLS LAST" for place in range(1, len(types) + 1))
        then = "," if _ORDER.fullmatch(last[1]) else " ORDER BY"
        try:
            return self.answer(f"{last[1]}{then} {places} {last[2]}", types, time)
        except (Refused, duckdb.Error):
            return _NO_ANSWER

    def _varies(
        self, case: Case, time: int, types: list[str],
        actual: Counter[str] | None, want: Counter[str] | None,
    ) -> bool:  # fmt: skip
        """Whether the rows' order is what the view and DuckDB differ by.

        So it is if DuckDB says what the view says over rows in another order, or has several
        answers that are rows, as the view has: which it has, LIMIT decides.
        """
        answers = [want]
        try:
            for salt in range(1, _ORDERS):
                self.connection.execute(f"SET VARIABLE salt = {salt}")
                answers.append(self.answer(case.pinned, types, time))
        finally:
            self.connection.execute("RESET VARIABLE salt")
        rows = [answer for answer in answers if answer is not None]
        return actual in answers or (actual is not None and any(row != rows[0] for row in rows))


def _table(chance: random.Random, contents: Held) -> Table:
    columns = {f'"{name}"': kind for name, kind in contents.columns}
    return Table(contents.name, columns, _history(chance, contents.rows.num_rows))


def _history(chance: random.Random, rows: int) -> tuple[Update, ...]:
    """Every row is there at last; some go in between, and copies of some come and go."""
    updates = []
    for row in ((str(place),) for place in range(rows)):
        at = chance.choice((0, 1, 1, 2, 3, 4))
        updates.append(Update(row, at, 1))
        if at < LAST - 1 and chance.random() < 0.3:
            dies_at = chance.randint(at + 1, LAST - 1)
            updates += [
                Update(row, dies_at, -1),
                Update(row, chance.randint(dies_at + 1, LAST), 1),
            ]
        if chance.random() < 0.2:
            come = chance.randint(0, LAST - 1)
            updates += [Update(row, come, 1), Update(row, chance.randint(come + 1, LAST), -1)]
    return tuple(updates)


def _own(carrier: str, kind: str) -> str:
    """SQL for the value of what carries it in `Held.rows`."""
    return as_union(f"CAST({carrier} AS {carrier_type(kind)})", kind)


def _updates(rows: pa.Table, table: Table) -> pa.Table:
    places = pa.array([int(update.row[0]) for update in table.updates], pa.int64())
    times = pa.array([update.time for update in table.updates], pa.int64())
    diffs = pa.array([update.diff for update in table.updates], pa.int64())
    return rows.take(places).append_column("_time", times).append_column("_diff", diffs)


def _lives(table: Table, last: int) -> pa.Table:
    """Which rows are there at which time, once for each copy."""
    lives = []
    for at in range(last + 1):
        counts: Counter[int] = Counter()
        for update in table.updates:
            if update.time <= at:
                counts[int(update.row[0])] += update.diff
        lives += [(place, at) for place in counts.elements()]
    columns = {"place": [place for place, _ in lives], "time": [at for _, at in lives]}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
