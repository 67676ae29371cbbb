"""Python functions of users: their values, and the SQL that calls them in DuckDB.

A function is its text, and only the text is sent: every process that calls the function
compiles it, and no object is pickled. In plans it goes by its *symbol*, its name and a hash of
its text (`score@3fa9c1d2e4b50617`), so that two functions of one name never meet: a plan's
text, and with it the fingerprint of its state, says which code it calls, and a kernel may know
any number of functions. For people the hash is left out (`without_hash`).

The author of a function guarantees that it is deterministic and that each value depends on its
own row alone. Rows come in batches of any size and are retracted by computing them again, so a
function that breaks the promise gives wrong answers, which nothing here can notice but for a
result of the wrong length or type.
"""

import hashlib
import inspect
import json
import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from streams.arrow_without_pandas import with_pandas
from streams.errors import InvalidStatement

_HASH = re.compile(r'"((?:[^"]|"")*)@[0-9a-f]{16}"|@[0-9a-f]{16}(?![0-9a-f])')
_BOOL8 = pa.bool8()

UNFIT = "this process cannot run function"
"""The note on a failure of the process: in another process the row might not fail."""

MOST_SAID = 500
"""Characters of an exception's message that are shown."""


class Vectorised(Protocol):
    """Columns of one length to an array of that length."""

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        """The values, one a row."""
        ...


class Written(Protocol):
    """The user's Python function; its results are checked at each call."""

    def __call__(self, *columns: pa.Array) -> object:
        """The values, one a row."""
        ...


@dataclass(frozen=True)  # no slots: the symbol is computed once
class Function:
    """A scalar function over Arrow arrays: `body` is Python source that defines `name`.

    `types` and `returns` are DuckDB's names of types; `parameters` the names, one a type.
    """

    name: str
    parameters: tuple[str, ...]
    types: tuple[str, ...]
    returns: str
    body: str

    @cached_property
    def symbol(self) -> str:
        """The symbol of the function in plans and kernels, equal only for equal functions."""
        parts = [self.name, self.parameters, self.types, self.returns, self.body]
        text = json.dumps(parts).encode()
        return f"{self.name.lower()}@{hashlib.sha256(text).hexdigest()[:16]}"

    @property
    def macro(self) -> str:
        """SQL that lets queries of a connection call the function by its name."""
        names = ", ".join(map(_quoted, self.parameters))
        called = f"{_quoted(self.symbol)}({names})"
        return f"CREATE OR REPLACE TEMP MACRO {_quoted(self.name)}({names}) AS {called}"

    @property
    def signature(self) -> str:
        """The arguments for people: `a BIGINT, b VARCHAR`."""
        pairs = zip(self.parameters, self.types, strict=True)
        return ", ".join(f"{name} {kind}" for name, kind in pairs)


def without_hash(text: str) -> str:
    """The text with functions by their names instead of their symbols."""
    return _HASH.sub(lambda match: match[1] or "", text)


def compile_function(function: Function) -> Written:
    """The Python function that the text defines.

    Errors: InvalidStatement when the text is no Python, fails when it is run, or defines no
        function of the name that takes the parameters.
    """
    with_pandas()  # which the text may use
    refused = f"function {function.name} cannot be made"
    namespace: dict[str, object] = {"__name__": function.name}
    try:
        code = compile(function.body, f"<function {function.name}>", "exec")
        exec(code, namespace)  # noqa: S102 - to run what the user wrote is what was asked for
    except Exception as error:
        raise InvalidStatement(refused, f"its text fails with {error_text(error)}") from error
    defined = namespace.get(function.name)
    if not callable(defined):
        raise InvalidStatement(
            refused,
            f"its text defines no function {function.name}",
            f"the body must have a line def {function.name}({', '.join(function.parameters)}):",
        )
    try:
        inspect.signature(defined).bind(*function.parameters)
    except (TypeError, ValueError) as error:
        raise InvalidStatement(
            refused,
            f"the Python function does not take {len(function.types)} arguments by position",
            f"it is declared as {function.name}({function.signature})",
        ) from error
    return defined


def error_text(error: Exception) -> str:
    """An exception's type and the first line of its message, of which the rest may be huge."""
    kind = type(error).__name__
    try:
        first = str(error).partition("\n")[0]
    except Exception:  # noqa: BLE001  its class is the user's too
        return kind
    shown = first if len(first) <= MOST_SAID else f"{first[:MOST_SAID]}..."
    return f"{kind}: {shown}" if shown else kind


def vectorise(
    function: Function, returns: pa.DataType, raised: MutableMapping[str, str]
) -> Vectorised:
    """The function that DuckDB calls: passes plain arrays, and checks the signature.

    Args:
        function: the function.
        returns: the Arrow type in which values of its result travel.
        raised: called with the function's first error, by its name.

    Errors: InvalidStatement as `compile_function`; a call raises what the function does,
        TypeError for a result that is no array of the type, ValueError for another length.
    """
    function_object = compile_function(function)

    def call(*columns: pa.ChunkedArray) -> pa.Array:
        arrays = [_plain(column) for column in columns]
        rows = len(arrays[0])
        if rows == 1:
            # Of one row a result that is no longer than that proves nothing: an aggregate, say.
            arrays = [pa.concat_arrays([array, array]) for array in arrays]
        try:
            result = _checked(function, function_object(*arrays), returns, len(arrays[0]))
        except (ImportError, MemoryError) as error:
            raise RuntimeError(f"{UNFIT} {function.name}: {error_text(error)}") from error
        except Exception as error:
            raised.setdefault(function.name, error_text(error))
            raise
        return result[:rows]

    return call


def positional(count: int) -> inspect.Signature:
    """The signature of a function of so many arguments."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    return inspect.Signature([inspect.Parameter(f"p{i}", kind) for i in range(count)])


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    merged = column.combine_chunks()
    return merged if isinstance(merged, pa.Array) else pa.concat_arrays(merged.chunks)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """One array, its booleans Arrow's own."""
    whole = _whole(column)
    return whole.storage.cast(pa.bool_()) if whole.type == _BOOL8 else whole


def _checked(function: Function, result: object, returns: pa.DataType, rows: int) -> pa.Array:
    """The result, if it is what was declared."""
    if not isinstance(result, pa.Array | pa.ChunkedArray):
        raise TypeError(
            f"expected a pyarrow array from {function.name}, actual {type(result).__name__}"
        )
    if len(result) != rows:
        raise ValueError(
            f"expected {rows} values from {function.name}, one a row, actual {len(result)}"
        )
    if pa.types.is_null(result.type):
        return pa.nulls(rows, returns)
    if result.type != returns:
        raise TypeError(
            f"expected {returns} from {function.name}, declared to return"
            f" {function.returns}, actual {result.type}"
        )
    return _whole(result)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def functions_in(functions: Sequence[Function], text: str) -> tuple[Function, ...]:
    """The functions whose symbols a text has."""
    return tuple(function for function in functions if function.symbol in text)
