"""A DuckDB connection: its settings, its functions, and the classification of its errors."""

import duckdb
import duckdb.func
import pyarrow as pa

from streams.errors import SlackwaterError
from streams.trace.kernel.functions import UNFIT, Function, Vectorised, positional

FAILURES = duckdb.Error, UnicodeDecodeError
"""What a failure in DuckDB is raised as. The text of some quotes one byte of a character of
several, so that Python cannot read it: those are failures of an expression over a text."""

_OF_DATA = duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError
"""Failures that data cause, beside those of functions that have no class of their own."""

OUT_OF_MEMORY = "Out of Memory Error"
_UNEXPECTED = "but the function is not marked as fallible"
"""DuckDB's note on a function that fails over a row though it was declared not to."""

INTERNAL = "INTERNAL Error"
_STACK = "\n\nStack Trace"
UTC = "SET TimeZone = 'UTC'"


class EvaluationFailed(SlackwaterError):
    """DuckDB raised while it evaluated a statement: some row's expression failed."""


class StatementRefused(SlackwaterError):
    """DuckDB does not accept a statement, whatever the rows."""


class KernelFailed(SlackwaterError):
    """DuckDB itself failed: out of memory, out of disk, interrupted, or a fault of its own."""


class AnswerTooLarge(SlackwaterError):
    """An answer has more bytes than were asked for: the rest was not computed."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self.most_bytes = most_bytes

    def __str__(self) -> str:
        return f"expected an answer of at most {self.most_bytes:,} bytes, actual more"


def translate_error(error: Exception) -> SlackwaterError:
    """The meaning of a failure: only one caused by data may become an error row."""
    match error:
        case duckdb.BinderException() | duckdb.CatalogException() | duckdb.ParserException():
            return StatementRefused(str(error))
        case duckdb.InvalidInputException() if UNFIT in str(error):
            return KernelFailed("".join(str(error).partition(UNFIT)[1:]))
        case duckdb.InternalException():
            return translate_internal(str(error))
        case UnicodeDecodeError():
            return EvaluationFailed("an expression failed over text that is not ASCII")
        case _ if isinstance(error, _OF_DATA) or type(error) is duckdb.Error:
            return EvaluationFailed(str(error))
        case _:
            return KernelFailed(str(error))


def translate_internal(text: str) -> SlackwaterError:
    """The meaning of the text of a failure that DuckDB did not expect."""
    text = text.partition(_STACK)[0]
    _, is_of_row, reason = text.partition(_UNEXPECTED)
    if is_of_row:
        return EvaluationFailed(reason.partition("Error: ")[2] or text)
    return KernelFailed(text)


def connect(memory_limit: str, temp_directory: str) -> duckdb.DuckDBPyConnection:
    """A connection to a database in memory with the settings of rule 34.

    An internal error of DuckDB fails its statement. By DuckDB's default it would end the
    database too, and with it every later statement of the process. The default protects what
    is written to a database; nothing is written to this one.
    """
    # async threads read files, which a kernel may not: DuckDB starts eight unless told at once
    connection = duckdb.connect(
        ":memory:",
        config={"threads": 1, "async_threads": 0, "disable_database_invalidation": "true"},
    )
    settings = {
        "memory_limit": f"'{memory_limit}'",
        "TimeZone": "'UTC'",
        "arrow_lossless_conversion": "true",
        "integer_division": "true",
        "default_null_order": "'postgres'",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_progress_bar": "false",  # else what takes seconds draws one on our output
    }
    if temp_directory:
        quoted = temp_directory.replace("'", "''")
        settings["temp_directory"] = f"'{quoted}'"
    for name, value in settings.items():
        connection.execute(f"SET {name} = {value}")
    connection.execute("SET enable_external_access = false")
    return connection


def create(connection: duckdb.DuckDBPyConnection, function: Function, call: Vectorised) -> None:
    """Let a connection's database call `call` by the function's symbol, for any row.

    Errors: what DuckDB raises where the symbol is taken.
    """

    def called(*columns: pa.ChunkedArray) -> pa.Array:
        return call(*columns)

    # DuckDB counts parameters by the signature.
    called.__signature__ = positional(len(function.types))  # type: ignore[attr-defined]
    connection.create_function(
        function.symbol,
        called,
        list(function.types),
        function.returns,
        type=duckdb.func.ARROW,
        null_handling=duckdb.func.SPECIAL,
        side_effects=False,
    )
