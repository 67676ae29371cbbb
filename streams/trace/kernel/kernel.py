"""The kernel: one DuckDB connection per worker, configured so that its answers match ours.

Invariant: every table that leaves the kernel has the Arrow types of `arrow_schema` for the
DuckDB types it was asked for, and reads back as those types: DuckDB's lossless conversion is
on, booleans are Arrow's booleans, and what Arrow cannot carry (ENUM, UNION, unnamed structs)
travels as the nearest type it can and is cast on the way in.

Statements that run again and again are prepared once over *ports* (rule 33): a port is a
stable object whose Arrow table is swapped before each call. A prepared statement over a table
that is registered again would keep reading the old one.
"""

import functools
import itertools
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import pyarrow as pa
from duckdb import _seam

from streams.errors import SlackwaterError
from streams.trace.kernel.arrow import empty_table, without_dictionaries
from streams.trace.kernel.connection import (
    FAILURES,
    INTERNAL,
    OUT_OF_MEMORY,
    UTC,
    AnswerTooLarge,
    EvaluationFailed,
    KernelFailed,
    StatementRefused,
    connect,
    create,
    translate_error,
    translate_internal,
)
from streams.trace.kernel.functions import Function, vectorise
from streams.trace.kernel.nested import has_nested, importable
from streams.trace.kernel.unions import as_union, carrier_type, has_union

ENGINE_VERSIONS = f"duckdb {duckdb.__version__} pyarrow {pa.__version__}"
MOST_PREPARED = 4000
"""Statements a kernel keeps ready; about 10 KB each."""

MOST_TEXT = 1 << 20
"""Characters of the statements that a kernel keeps ready; each takes 50 to 80 bytes."""

_PLACE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\{(\w+)\}""")
"""The place of a port; braces in a text or in a name are the user's."""
UNBOUNDED = 1 << 62
"""So many bytes that an answer never has more."""

TAKEN_ROWS = 2048
"""Rows of an answer that are taken at once where its bytes are bounded: DuckDB's vector."""

_BOOL8 = pa.bool8()
_Key: TypeAlias = tuple[str, tuple[tuple[str, pa.Schema], ...]]


class Port:
    """A stable name for a table that changes: DuckDB asks for the stream at each execution."""

    __slots__ = ("nested", "nothing", "schema", "table")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.nested = has_nested(schema)
        self.nothing: pa.Table = empty_table(schema)
        self.table: pa.Table | pa.RecordBatch = self.nothing

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule protocol: the stream of the table of the moment."""
        rows = importable(self.table) if self.nested else self.table
        return rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The Arrow PyCapsule protocol: the schema, which never changes."""
        return self.schema.__arrow_c_schema__()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement over ports; `run` takes the tables in the order of the ports.

    `scan` reads all that the ports hold, and nothing else.
    """

    execute: Callable[[], pa.Table]
    scan: Callable[[], None]
    ports: tuple[Port, ...]
    number: int
    names: tuple[str, ...]

    def run(self, *tables: pa.Table | pa.RecordBatch) -> pa.Table:
        """The statement's answer over these tables.

        Errors: EvaluationFailed when an expression fails over some row; KernelFailed, also
            when DuckDB cannot import the tables; AnswerTooLarge.
        """
        for port, table in zip(self.ports, tables, strict=True):
            port.table = table
        try:
            return self.execute()
        except EvaluationFailed:
            self.scan()
            raise
        finally:
            for port in self.ports:
                port.table = port.nothing


class Kernel:
    """One DuckDB connection with the settings of rule 34 and its prepared statements.

    No answer of it has more than `most_bytes` bytes, and what makes rows beside it makes no
    more than that at a time.
    """

    def __init__(
        self,
        memory_limit: str = "1GB",
        temp_directory: str = "",
        most_bytes: int = UNBOUNDED,
    ) -> None:
        self._limits = memory_limit, temp_directory, most_bytes
        self.most_bytes = most_bytes
        self._careful: Kernel | None = None
        self._names = itertools.count()
        self._prepared: OrderedDict[_Key, Prepared] = OrderedDict()
        self._text = 0
        self._functions: dict[str, Function] = {}
        self.raised: dict[str, str] = {}
        """The first exception of each Python function, by its name; the reader clears it."""

    @functools.cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """It is opened for the first statement, which takes 20 ms of a processor."""
        memory_limit, temp_directory, _ = self._limits
        return connect(memory_limit, temp_directory)

    def open(self) -> None:
        """Open the connection now, so that the first statement does not wait for it."""
        assert self._connection is not None

    def query(self, sql: str, /, **tables: pa.Table | pa.RecordBatch) -> pa.Table:
        """The answer to `sql`, in which the tables go by the names of the arguments.

        Errors: EvaluationFailed, StatementRefused, KernelFailed; AnswerTooLarge.
        """
        for name, table in tables.items():
            self._register(name, importable(table))
        try:
            return self._run(sql)
        except EvaluationFailed:
            self._scan(tables)
            raise
        finally:
            for name in tables:
                self._connection.unregister(name)

    def query_as(
        self,
        sql: str,
        tables: Mapping[str, tuple[pa.Table, Sequence[str]]],
        /,
    ) -> pa.Table:
        """The answer to `sql` over tables by name, their columns read as these DuckDB types.

        Errors: EvaluationFailed, StatementRefused, KernelFailed; AnswerTooLarge.
        """
        for name, (table, types) in tables.items():
            self._view(name, table, types)
        try:
            return self._run(sql)
        except EvaluationFailed:
            self._scan(tables)
            raise
        finally:
            for name in tables:
                self._execute(f"DROP VIEW IF EXISTS {_quoted(name)}")
                self._connection.unregister(name)

    def prepare(self, sql: str, **ports: pa.Schema) -> Prepared:
        """A statement made ready; `{name}` in `sql` stands for the port of that name.

        Equal statements over equal schemas share one.

        Errors: StatementRefused; EvaluationFailed when a constant in it fails.
        """
        key = (sql, tuple(ports.items()))
        statement = self._prepared.get(key)
        if statement is None:
            statement = self._prepared[key] = self._make(sql, ports)
            self._text += len(sql)
            while self._is_full():
                (text, _), last = self._prepared.popitem(last=False)
                self._text -= len(text)
                self._forget(last)
        else:
            self._prepared.move_to_end(key)
        return statement

    def allow(self, size: int) -> None:
        """Say that rows of so many bytes are to be made. Errors: AnswerTooLarge."""
        if size > self.most_bytes:
            raise AnswerTooLarge(self.most_bytes)

    @property
    def careful(self) -> "Kernel":
        """A kernel for statements with TRY: one that computes nothing outside of it.

        DuckDB's elimination of common subexpressions moves what two TRYs share out of both, and
        its failure with it. IN with five or more constants becomes a join there, for which the
        left side is computed of all rows, those too for which a CASE does not come to it.
        """
        if self._careful is None:
            careful = Kernel(*self._limits)
            careful.set("disabled_optimizers", "common_subexpressions,in_clause")
            careful.raised = self.raised
            careful.define(tuple(self._functions.values()))
            self._careful = careful
        return self._careful

    def define(self, functions: Sequence[Function]) -> None:
        """Let statements call these functions by their symbols; those it knows stay.

        NULLs are handed to a function like any value. What it raises fails the row.

        Errors: InvalidStatement for a function that cannot be made here.
        """
        for function in functions:
            if not self._functions:
                # What a connection calls, Python cannot free before the connection ends.
                weakref.finalize(self, self._connection.close)
            if function.symbol not in self._functions:
                call = vectorise(function, arrow_type(function.returns), self.raised)
                create(self._connection, function, call)
                self._functions[function.symbol] = function
        if functions and self._careful is not None:
            self._careful.define(functions)

    def name(self, functions: Sequence[Function]) -> None:
        """Let queries call these functions by their names too. Errors: as `define`."""
        self.define(functions)
        for function in functions:
            self._execute(function.macro)

    def set(self, name: str, value: str) -> None:
        """Change a setting of the connection."""
        self._execute(f"SET {name} = '{value}'")

    def columns(self, definitions: str) -> list[tuple[str, str]]:
        """The names and types of columns defined as in CREATE TABLE: `a BIGINT, b VARCHAR`.

        Errors: StatementRefused when they are not column definitions.
        """
        self._execute(f"CREATE TEMP TABLE defined_columns ({definitions})")
        try:
            rows = self._run("DESCRIBE defined_columns")
        finally:
            self._execute("DROP TABLE defined_columns")
        names, types = rows["column_name"].to_pylist(), rows["column_type"].to_pylist()
        return list(zip(names, types, strict=True))

    def _view(self, name: str, table: pa.Table, types: Sequence[str]) -> None:
        table = importable(table)
        if all(round_trips(kind) for kind in types):
            self._register(name, table)
            return
        pairs = zip(table.column_names, types, strict=True)
        quoted = [(_quoted(column), kind) for column, kind in pairs]
        casts = ", ".join(f"{typed(column, kind)} AS {column}" for column, kind in quoted)
        self._connection.from_arrow(table).project(casts).create_view(name)

    def _make(self, sql: str, schemas: dict[str, pa.Schema]) -> Prepared:
        number = next(self._names)
        ports = {name: Port(schema) for name, schema in schemas.items()}
        names = {name: f"port_{number}_{name}" for name in ports}
        for name, port in ports.items():
            self._register(names[name], port)
        text = _PLACE.sub(lambda place: names[place[1]] if place[1] else place[0], sql)
        self._execute(f"PREPARE statement_{number} AS {text}")
        execute = functools.partial(self._executed, f"EXECUTE statement_{number}")
        scan = functools.partial(self._scan, names.values())
        return Prepared(execute, scan, tuple(ports.values()), number, tuple(names.values()))

    def _executed(self, sql: str) -> pa.Table:
        """The answer of a bound statement. Errors: EvaluationFailed, KernelFailed."""
        try:
            return self._run(sql)
        except StatementRefused as error:  # of a row, such as NULL for a histogram's bins
            raise EvaluationFailed(str(error)) from error

    def _is_full(self) -> bool:
        many = len(self._prepared) > MOST_PREPARED or self._text > MOST_TEXT
        return many and len(self._prepared) > 1

    def _forget(self, statement: Prepared) -> None:
        """Give back a statement that was not used for long."""
        self._execute(f"DEALLOCATE statement_{statement.number}")
        for name in statement.names:
            self._connection.unregister(name)

    def _scan(self, names: Iterable[str]) -> None:
        """Read all rows of the tables of these names and do nothing with them.

        A failure here is none of an expression. Errors: KernelFailed.
        """
        for name in names:
            try:
                self._whole(f"FROM {_quoted(name)}")
            except SlackwaterError as error:
                raise KernelFailed(f"DuckDB cannot import rows: {error}") from error

    def _register(self, name: str, rows: pa.Table | pa.RecordBatch | Port) -> None:
        try:
            self._connection.register(name, rows)
        except FAILURES as error:
            raise translate_error(error) from error

    def _execute(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except FAILURES as error:
            raise translate_error(error) from error

    def _run(self, sql: str) -> pa.Table:
        return self._whole(sql) if self.most_bytes == UNBOUNDED else self._taken(sql)

    def _whole(self, sql: str) -> pa.Table:
        # `execute` copies every row once more on the way to Arrow, and `sql` binds the text
        # again: either costs as much again as a small statement itself. This is what `sql`
        # calls when it has bound; DuckDB's version is pinned (rule 32).
        try:
            return _plain_booleans(
                _seam.submit(self._connection, sql, None, "arrow").arrow_table()
            )
        except FAILURES as error:
            raise translate_error(error) from error

    def _taken(self, sql: str) -> pa.Table:
        """The answer, taken piece by piece. Errors: as `_run`, AnswerTooLarge."""
        pieces: list[pa.RecordBatch] = []
        taken = 0
        try:
            with self._connection.sql(sql).to_arrow_reader(TAKEN_ROWS) as reader:
                schema = reader.schema
                for piece in reader:
                    taken += piece.nbytes
                    self.allow(taken)
                    pieces.append(piece)
        except FAILURES as error:
            raise translate_error(error) from error
        except (pa.ArrowException, OSError) as error:  # a failure after the first piece
            if str(error).startswith(INTERNAL):
                raise translate_internal(str(error)) from error
            is_data = not str(error).startswith(OUT_OF_MEMORY)
            raise (EvaluationFailed if is_data else KernelFailed)(str(error)) from error
        return _plain_booleans(pa.Table.from_batches(pieces, schema))


def _plain_booleans(table: pa.Table) -> pa.Table:
    for index, field in enumerate(table.schema):
        if field.type == _BOOL8:
            chunks = [chunk.storage.cast(pa.bool_()) for chunk in table.column(index).chunks]
            column = pa.chunked_array(chunks, pa.bool_())
            table = table.set_column(index, pa.field(field.name, pa.bool_()), column)
    return table


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@functools.cache
def _types_kernel() -> duckdb.DuckDBPyConnection:
    return connect("100MB", "")


@functools.lru_cache(maxsize=4096)
def arrow_type(duckdb_type: str) -> pa.DataType:
    """The Arrow type in which values of a DuckDB type travel.

    ENUM travels as text: a dictionary would have to be unified at every concatenation.
    """
    with (
        _types_kernel().cursor() as connection
    ):  # of its own: other threads ask for other types
        connection.execute(
            UTC
        )  # a cursor has the machine's time zone, whatever its connection has
        relation = connection.sql(
            f"SELECT NULL::{carrier_type(printed_type(duckdb_type))} AS x"
        ).to_arrow_table()
    type_ = relation.schema.field(0).type
    if type_ == _BOOL8:
        return pa.bool_()
    return without_dictionaries(type_)


@functools.lru_cache(maxsize=4096)
def printed_type(duckdb_type: str) -> str:
    """The type's text as DuckDB prints it."""
    with _types_kernel().cursor() as connection:
        return str(connection.sql(f"SELECT NULL::{duckdb_type} AS x").types[0])


@functools.lru_cache(maxsize=4096)
def round_trips(duckdb_type: str) -> bool:
    """Whether DuckDB reads its own Arrow export of this type back as this type."""
    table = empty_table(pa.schema([("x", arrow_type(duckdb_type))]))
    with _types_kernel().cursor() as connection:
        read = str(connection.from_arrow(table).types[0])
    return printed_type(read) == printed_type(duckdb_type)


def typed(column: str, duckdb_type: str) -> str:
    """SQL for a column of a table of ours as a value of its DuckDB type."""
    kind = printed_type(duckdb_type)
    value = f"CAST({column} AS {carrier_type(kind)})"
    return as_union(value, kind) if has_union(kind) else value


def arrow_schema(types: Sequence[str]) -> pa.Schema:
    """The schema of a collection of these DuckDB types: c0 .. cn, then time and diff."""
    return _arrow_schema(tuple(types))


def data_schema(types: Sequence[str]) -> pa.Schema:
    """The schema of a collection's data alone: c0 .. cn."""
    return _data_schema(tuple(types))


@functools.lru_cache(maxsize=4096)
def _arrow_schema(types: tuple[str, ...]) -> pa.Schema:
    more = [pa.field("time", pa.int64()), pa.field("diff", pa.int64())]
    return pa.schema([*_data_schema(types), *more])


@functools.lru_cache(maxsize=4096)
def _data_schema(types: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(f"c{index}", arrow_type(type_)) for index, type_ in enumerate(types)])
