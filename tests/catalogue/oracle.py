"""DuckDB's word on a candidate: for each row, for each group and time, or for each time."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from streams.trace.kernel.unions import as_struct
from tests.catalogue.candidates import Candidate
from tests.catalogue.values import LAST, ROWS, History, create, history
from tests.support.interval_room import lacks_room
from tests.support.plan_tables import as_text, connect

_SECONDS = 30.0
"""Most seconds of a candidate: a machine that does much else may need some for any."""
_FAILS = (
    duckdb.OutOfRangeException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    UnicodeDecodeError,  # an error's text with a part of a character
)

Cells = tuple[str, ...]
Rows = Counter[Cells]


class Unanswered(Exception):
    """DuckDB does not bind a candidate, does not answer it in time, or fails itself."""


@dataclass(frozen=True)
class Answer:
    """The types of the columns that count, and for each time the rows and whether some fail.

    `cells` has the value of each place (a row's id, a group and time), or None where it fails,
    or where Arrow has no room for an interval in it: a view fails there (D222).
    """

    types: tuple[str, ...]
    cells: dict[tuple[int, int], Cells | None]
    rows: tuple[tuple[Rows, bool], ...] = ()

    @property
    def fails(self) -> bool:
        """Whether anything fails anywhere."""
        return None in self.cells.values() or any(failed for _, failed in self.rows)


class Oracle:
    """A DuckDB that holds the table, and its contents at each time."""

    def __init__(self) -> None:
        self.changes: History = history()
        self._open()

    def _open(self) -> None:
        self.connection = connect()
        execute = self.connection.execute
        execute("SET arrow_lossless_conversion = true; SET memory_limit = '1GB'")
        execute("PRAGMA disable_optimizer")
        create(self.connection)
        execute("ALTER TABLE every RENAME TO kept")
        for row in range(ROWS):  # alone: DuckDB looks at lists of rows that it leaves out
            execute(f"CREATE TABLE kept_{row} AS FROM kept WHERE id = {row}")
        lives = [
            (row, time)
            for time in range(LAST + 1)
            for row in sorted(self.changes.at(time).elements())
        ]
        table = pa.table(
            {"row": [row for row, _ in lives], "time": [time for _, time in lives]}
        )
        self.connection.register("lives", table)
        execute("CREATE TABLE live AS SELECT * FROM lives")
        execute(
            "CREATE VIEW every AS SELECT kept.* FROM kept JOIN live ON kept.id = live.row"
            " WHERE live.time = getvariable('now')"
        )

    def with_optimiser(self, candidate: Candidate) -> Answer:
        """The answer as DuckDB plans it when it may."""
        self.connection.execute("PRAGMA enable_optimizer")
        try:
            return self.answer(candidate)
        finally:
            self.connection.execute("PRAGMA disable_optimizer")

    def with_constants(self, candidate: Candidate) -> Answer:
        """The answer where DuckDB knows the values of a row before it computes anything.

        Of `x = y::T` it computes no cast if x is NULL, and casts a list that has only NULLs,
        though the cast fails of any value, and so of any row of a table.
        """
        if candidate.shape != "row":
            raise Unanswered("only an answer by rows has constants for columns")
        (type_,) = self._types(f"SELECT {candidate.text} AS c0 FROM kept")
        shown = f"({as_struct(f'({candidate.text})', type_)})::VARCHAR"
        names = sorted(candidate.columns)
        constants = ", ".join(f"getvariable('{name}') AS {name}" for name in names)
        cells = dict[tuple[int, int], Cells | None]()
        for row in range(ROWS):
            for name in names:
                self.connection.execute(
                    f"SET VARIABLE {name} = (SELECT {name} FROM kept_{row})"
                )
            with_values = f"SELECT * REPLACE ({constants}) FROM kept_{row}"
            _, cell, is_long = self._row(f"SELECT id, {shown}, false FROM ({with_values})", row)
            cells[row, 0] = _text(cell, is_long)
        return Answer((type_,), cells)

    def binds(self, candidate: Candidate) -> bool:
        """Whether DuckDB knows the types of a candidate's answer."""
        query = candidate.text
        if candidate.shape != "query":
            query = f"SELECT {query} FROM {'kept' if candidate.shape == 'row' else 'every'}"
        try:
            return bool(self._types(query))
        except duckdb.Error:
            return False

    def answer(self, candidate: Candidate) -> Answer:
        """Errors: Unanswered."""
        timer = threading.Timer(_SECONDS, self.connection.interrupt)
        timer.start()
        try:
            return _OF_SHAPE[candidate.shape](self, candidate)
        except (duckdb.InternalException, duckdb.FatalException) as error:
            self._open()  # DuckDB takes no query after that
            raise Unanswered(str(error)) from error
        except duckdb.Error as error:
            raise Unanswered(str(error)) from error
        finally:
            timer.cancel()

    def _of_rows(self, candidate: Candidate) -> Answer:
        (type_,) = self._types(f"SELECT {candidate.text} AS c0 FROM kept")
        text = as_struct(f"({candidate.text})", type_)
        is_long = lacks_room([(f"({candidate.text})", type_)])
        query = f"SELECT id, ({text})::VARCHAR, {is_long} FROM kept"
        try:
            fetched = self.connection.execute(query).fetchall()
        except _FAILS:
            fetched = [self._row(f"{query}_{row}", row) for row in range(ROWS)]
        if len(fetched) != ROWS:
            raise Unanswered("an expression over a row has several values")
        cells = {(row, 0): _text(cell, is_long) for row, cell, is_long in fetched}
        return Answer((type_,), cells)

    def _row(self, query: str, row: int) -> tuple[int, object, bool]:
        try:
            return self.connection.execute(query).fetchall()[0]
        except _FAILS:
            return row, _FAILED, False

    def _of_groups(self, candidate: Candidate) -> Answer:
        (type_,) = self._types(f"SELECT {candidate.text} AS c0 FROM every")
        inner = f"SELECT g, {candidate.text} AS c0 FROM every"
        is_long = lacks_room([("c0", type_)])
        shown = f"SELECT g, {as_text('c0', type_)}, {is_long} FROM ({inner}"
        cells = {}
        for time in range(LAST + 1):
            self._at(time)
            try:
                fetched = self.connection.execute(f"{shown} GROUP BY g)").fetchall()
            except _FAILS:
                groups = sorted({row % 3 for row in self.changes.at(time)})
                fetched = [self._group(shown, group) for group in groups]
            for group, cell, is_long in fetched:
                cells[group, time] = _text(cell, is_long)
        return Answer((type_,), cells)

    def _group(self, shown: str, group: int) -> tuple[int, object, bool]:
        try:
            text = f"{shown} WHERE g = {group} GROUP BY g)"
            return self.connection.execute(text).fetchall()[0]
        except _FAILS:
            return group, _FAILED, False

    def _of_query(self, candidate: Candidate) -> Answer:
        types = self._types(candidate.text)
        columns = [(f"c{place}", type_) for place, type_ in enumerate(types)]
        names = ", ".join(name for name, _ in columns)
        listed = ", ".join(as_text(*column) for column in columns)
        text = f"SELECT {listed}, {lacks_room(columns)} FROM ({candidate.text}) AS q({names})"
        rows: list[tuple[Rows, bool]] = []
        for time in range(LAST + 1):
            self._at(time)
            try:
                fetched = self.connection.execute(text).fetchall()
            except _FAILS:
                rows.append((Counter(), True))
            else:
                texts = Counter(tuple(map(str, row)) for *row, _ in fetched)
                fails = any(is_long for *_, is_long in fetched)
                rows.append((Counter(), True) if fails else (texts, False))
        return Answer(types, {}, tuple(rows))

    def _at(self, time: int) -> None:
        self.connection.execute(f"SET VARIABLE now = {time}")

    def _types(self, query: str) -> tuple[str, ...]:
        self._at(0)
        described: Sequence[tuple[str, str]] = self.connection.execute(
            f"DESCRIBE {query}"
        ).fetchall()
        return tuple(row[1] for row in described)


def _text(cell: object, is_long: bool) -> Cells | None:
    return None if is_long or cell is _FAILED else (str(cell),)


_FAILED = object()
_OF_SHAPE: dict[str, Callable[[Oracle, Candidate], Answer]] = {
    "row": Oracle._of_rows,
    "group": Oracle._of_groups,
    "query": Oracle._of_query,
}
