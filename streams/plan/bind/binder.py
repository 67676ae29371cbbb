"""The planner's interface to DuckDB: text in, bound plans out; only constants are computed.

A `Binder` is a connection with empty tables named like the catalog's relations, under the
settings every kernel of ours has (rules 31, 34), so that a query means here what it means
where it runs. One `Binder` serves one statement and is then closed. Its tables are temporary,
which in DuckDB means its own: all binders of a process share one empty database, because
opening a database takes longer than planning.
"""

import atexit
import difflib
import functools
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from streams.errors import InvalidStatement
from streams.plan.analyses.temporal import NOW_TEXT
from streams.plan.bind.qualified_names import has_qualified, unqualified
from streams.plan.duckdb_plan import Record, parse
from streams.plan.physical import Column
from streams.plan.refusal import Refusal
from streams.plan.sql.ordinality import rewrite_ordinality
from streams.plan.type_names import quoted, stored_type
from streams.trace.kernel.connection import FAILURES, create, translate_internal
from streams.trace.kernel.functions import Function, without_hash

# The kernel's settings as far as they decide what a query means, or what it may touch.
_SETTINGS = (
    "SET integer_division = true",
    "SET default_null_order = 'postgres'",
    "SET arrow_lossless_conversion = true",
    "SET TimeZone = 'UTC'",
    # a PIVOT into more columns would be an operator of its own, not filtered aggregates
    "SET pivot_filter_threshold = 100000",
)
_NOW = f"CREATE TEMP MACRO mz_now() AS {NOW_TEXT}"
_DATABASE = {
    "threads": "1",
    "memory_limit": "256MB",  # constants are computed here: a huge one must not hurt the host
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "disable_database_invalidation": "true",  # a constant's failure must not end the binder
}

_DECLARING = threading.Lock()
"""Held while a function is declared: all binders of a process share one database."""


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query as DuckDB understood it: its unoptimised plan and its result's columns."""

    plan: Record
    columns: tuple[Column, ...]


_OF_BYTES = Refusal(
    "a constant of type BIT or BIGNUM in an expression",
    "name it in a subquery: FROM t, (SELECT '0101'::BIT AS bits)",
)
"""DuckDB folds such a constant and writes its bytes, which are no text, into the plan."""


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds queries against a set of empty tables."""

    connection: duckdb.DuckDBPyConnection
    tables: tuple[str, ...]

    def syntax(self, query: str) -> tuple[Record, ...]:
        """The statements of the text as DuckDB's parser sees them.

        Errors: InvalidStatement for bad syntax or anything but SELECT.
        """
        return self._syntax(self._unqualified(query))

    def _syntax(self, query: str) -> tuple[Record, ...]:
        answer = self._answer("SELECT json_serialize_sql(?)", query)
        return answer.records("statements")

    def _unqualified(self, query: str) -> str:
        if not has_qualified(query, self.tables):
            return query
        return unqualified(query, self._syntax(query), self.tables)

    def bind(self, query: str) -> BoundQuery:
        """Bind one SELECT.

        Errors: InvalidStatement, in DuckDB's words, for what does not bind.
        """
        query = self._unqualified(query)
        call = "SELECT json_serialize_plan(?, optimize := false)"
        answer = self._answer(call, rewrite_ordinality(query))
        try:
            relation = self.connection.sql(query)
        except FAILURES as error:
            raise InvalidStatement("the query cannot be planned", _words(error)) from error
        columns = tuple(
            Column(without_hash(name), stored_type(str(type_)))
            for name, type_ in zip(relation.columns, relation.types, strict=True)
        )
        return BoundQuery(answer.records("plans")[0], columns)

    def columns(self, table: str) -> tuple[Column, ...]:
        """The columns of a table, with types spelled as DuckDB prints them."""
        relation = self.connection.table(quoted(table))
        pairs = zip(relation.columns, relation.types, strict=True)
        return tuple(Column(name, str(type_)) for name, type_ in pairs)

    def computable(self, expression: str) -> bool:
        """Tell whether an expression without columns has a value."""
        # A value may be a list of millions, of which the optimiser and Python make so many.
        text = f"SELECT count(v) FROM (SELECT {expression} AS v)"
        self.connection.execute("PRAGMA disable_optimizer")
        try:
            self.connection.execute(text).fetchall()
        except FAILURES:
            return False
        finally:
            self.connection.execute("PRAGMA enable_optimizer")
        return True

    def check(self, sql: str) -> None:
        """Run a query without tables; its answer does not matter.

        Errors: InvalidStatement if it fails.
        """
        try:
            self.connection.execute(sql).fetchall()
        except FAILURES as error:
            raise InvalidStatement("a constant cannot be computed", _words(error)) from error

    def _answer(self, call: str, query: str) -> Record:
        try:
            (text,) = self.connection.execute(call, [query]).fetchall()[0]
        except FAILURES as error:
            raise InvalidStatement("the query cannot be planned", _words(error)) from error
        try:
            answer = parse(str(text))
        except json.JSONDecodeError as error:
            raise _OF_BYTES.raised() from error
        if answer.flag("error"):
            raise _refused(answer, query, self.tables)
        return answer


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config=dict(_DATABASE))
    # A connection that knows functions and is open when Python ends is reported as a leak.
    atexit.register(connection.close)
    return connection


@functools.cache
def unstable_functions() -> Mapping[str, str]:
    """The functions whose value depends on the time of the call, with the reason.

    DuckDB says so of its functions, except for two clocks. Of its macros it says nothing, and
    it may put the time of planning in their place: a macro is as unstable as what it calls.
    """
    connection = _database().cursor()
    rows = connection.execute(
        "SELECT DISTINCT lower(function_name), stability FROM duckdb_functions()"
        # `error` is marked VOLATILE only so that DuckDB does not raise it while planning
        " WHERE stability <> 'CONSISTENT' AND function_name <> 'error'"
    )
    stabilities = {str(name): str(stability) for name, stability in rows.fetchall()} | dict(
        _CLOCKS
    )
    macros = connection.execute(
        "SELECT lower(function_name), lower(macro_definition) FROM duckdb_functions()"
        " WHERE function_type = 'macro' AND macro_definition IS NOT NULL"
    ).fetchall()
    for _ in range(_MACROS_IN_MACROS):
        called = {n: set(re.findall(r"\w+", d)) & stabilities.keys() for n, d in macros}
        stabilities = {
            n: "a macro over " + min(words) for n, words in called.items() if words
        } | stabilities
    return stabilities


_CLOCKS = dict.fromkeys(
    (
        "current_date",
        "current_localtime",
        "current_localtimestamp",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
    ),
    "a clock",
)
_MACROS_IN_MACROS = 3  # levels; DuckDB's own have two


@contextmanager
def binder(
    tables: Mapping[str, Sequence[Column]], functions: Sequence[Function] = ()
) -> Iterator[Binder]:
    """A binder that knows these tables and functions.

    Errors: InvalidStatement for a column type or a name that DuckDB refuses.
    """
    connection = _database().cursor()
    try:
        for setting in (*_SETTINGS, _NOW):
            connection.execute(setting)
        for name, columns in tables.items():
            _create(connection, name, columns)
        for function in functions:
            with _DECLARING:
                _declare(function)
            connection.execute(function.macro)
        yield Binder(connection, tuple(tables))
    finally:
        connection.close()


def canonical_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The same columns with types as DuckDB prints them (`int` is INTEGER).

    Errors: InvalidStatement for an unknown type, or for two columns of one name.
    """
    with binder({"relation": columns}) as bound:
        return bound.columns("relation")


def _create(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Sequence[Column]
) -> None:
    body = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
    try:
        connection.execute(f"CREATE TEMP TABLE {quoted(name)} ({body})")
    except FAILURES as error:
        raise InvalidStatement(f"the columns of {name} are not valid", _words(error)) from error


@functools.cache
def _declare(function: Function) -> None:
    """Let binders bind calls of a function: planning never runs what users wrote."""

    def uncalled(*_: object) -> pa.Array:
        raise RuntimeError(f"{function.name} is not called while planning")

    create(_database(), function, uncalled)


def known_functions() -> frozenset[str]:
    """The names of DuckDB's own functions and macros, in lower case."""
    rows = (
        _database()
        .cursor()
        .execute("SELECT DISTINCT lower(function_name) FROM duckdb_functions()")
    )
    return frozenset(str(name) for (name,) in rows.fetchall())


def _words(error: Exception) -> str:
    """DuckDB's first line, without its class."""
    if isinstance(error, UnicodeDecodeError):
        return "a constant of text that is not ASCII is not valid where it stands"
    if isinstance(error, duckdb.InternalException):
        return str(translate_internal(str(error)))
    first = without_hash(str(error).splitlines()[0])
    return first.partition(": ")[2] or first


def _refused(answer: Record, query: str, tables: Sequence[str]) -> InvalidStatement:
    """DuckDB's refusal: its words, the place, and its advice where that fits our users."""
    position = answer.text("position")
    where = _where(query, int(position)) if position else ""
    if answer.text("type") == "Table":
        return _no_relation(answer.text("name"), where, tables)
    message, _, rest = without_hash(answer.text("error_message")).partition("\n")
    if message.startswith("Deprecated lambda arrow"):
        hint = "write lambda x: x + 1 instead of x -> x + 1"
        return InvalidStatement("a lambda with an arrow is not supported", where, hint)
    if "is a Macro Function" in message:
        name = message.partition('"')[2].partition('"')[0]
        hint = "aggregate its values, or order the list inside: to_json(list(x ORDER BY y))"
        return InvalidStatement(f"{name} takes no DISTINCT, FILTER or ORDER BY", where, hint)
    # DuckDB lists each overload on a line of its own; the first few are enough to see the kind.
    detail = "; ".join(line.strip() for line in rest.splitlines()[:6] if line.strip())
    hint = ""
    if detail.startswith("Either add"):  # DuckDB advises any_value, whose answer may change
        detail, hint = "", "group by it too, or take its min or max"
    elif detail.startswith(("Did you mean", "Candidate bindings")):
        detail, hint = "", _small(detail)
    return InvalidStatement(
        _small(message.rstrip("!.")), "; ".join(filter(None, [where, detail])), hint
    )


def _no_relation(name: str, where: str, tables: Sequence[str]) -> InvalidStatement:
    lower = {table.lower(): table for table in tables}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"did you mean {lower[close[0]]}?" if close else ""
    return InvalidStatement(f"relation {name} does not exist", where, hint)


def _small(text: str) -> str:
    """The text with a small first letter, unless it begins with an acronym."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _where(query: str, position: int) -> str:
    """Line and column, from one, of a byte offset into the query."""
    before = query.encode()[:position].decode(errors="ignore")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"line {line}, column {column}"
