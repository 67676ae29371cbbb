"""Functions in Python: made from their text alone, and held to what they declare."""

import pyarrow as pa
import pytest

from streams.errors import InvalidStatement
from streams.trace.kernel.arrow import is_plain
from streams.trace.kernel.connection import EvaluationFailed, KernelFailed
from streams.trace.kernel.functions import (
    Function,
    compile_function,
    functions_in,
    without_hash,
)
from streams.trace.kernel.kernel import Kernel

TWICE = "import pyarrow.compute as pc\n\ndef f(x):\n    return pc.multiply(x, 2)\n"


def function(body: str, types: str = "BIGINT", returns: str = "BIGINT") -> Function:
    kinds = tuple(types.split(", "))
    return Function("f", tuple("xyz"[: len(kinds)]), kinds, returns, body)


def called(user_function: Function, values: str) -> list[object]:
    """The results over a list of SQL values, in order."""
    kernel = Kernel()
    kernel.name([user_function])
    table = kernel.query(f"SELECT f(v) AS r FROM (VALUES {values}) t(v)")
    return list(table["r"].to_pylist())


def test_a_function_is_called_by_name_and_by_symbol() -> None:
    declared = function(TWICE)
    assert called(declared, "(1::BIGINT), (NULL), (3)") == [2, None, 6]
    kernel = Kernel()
    kernel.define([declared, declared])
    for connection in (kernel, kernel.careful):
        actual = connection.query(f'SELECT "{declared.symbol}"(4::BIGINT) AS r')
        assert actual["r"].to_pylist() == [8]
    other = function(TWICE.replace("2", "3"))
    kernel.define([other])
    actual = kernel.careful.query(f'SELECT "{other.symbol}"(4::BIGINT) AS r')
    assert actual["r"].to_pylist() == [12]


def test_booleans_are_arrows_own_both_ways() -> None:
    body = "import pyarrow.compute as pc\ndef f(x): return pc.invert(x)"
    assert called(function(body, "BOOLEAN", "BOOLEAN"), "(true), (NULL), (false)") == [
        False,
        None,
        True,
    ]


def test_nothing_but_nulls_needs_no_type() -> None:
    body = "import pyarrow as pa\ndef f(x): return pa.nulls(len(x))"
    assert called(function(body), "(1::BIGINT), (2)") == [None, None]


def test_chunks_come_back_whole() -> None:
    body = (
        "import pyarrow as pa\ndef f(x): return pa.chunked_array([x.slice(0, 1), x.slice(1)])"
    )
    assert called(function(body), "(1::BIGINT), (2), (3)") == [1, 2, 3]


@pytest.mark.parametrize("values", ["(1::BIGINT)", "(1::BIGINT), (2), (3)"])
@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("pa.array([7])", "values from f, one a row, actual 1"),
        ("x.cast('int32')", "expected int64 from f, declared to return BIGINT, actual int32"),
        ("x.to_pylist()", "expected a pyarrow array from f, actual list"),
        ("1 // 0", "ZeroDivisionError"),
    ],
)
def test_a_result_that_was_not_declared_fails_the_rows(
    values: str, result: str, message: str
) -> None:
    with pytest.raises(EvaluationFailed, match=message):
        called(function(f"import pyarrow as pa\ndef f(x): return {result}"), values)


@pytest.mark.parametrize("body", ["import no_such_module", "raise MemoryError"])
def test_what_is_the_fault_of_the_process_fails_no_row(body: str) -> None:
    with pytest.raises(KernelFailed, match="this process cannot run function f"):
        called(function(f"def f(x): {body}"), "(1::BIGINT), (2)")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def f(x: return", "SyntaxError"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def g(x): return x", "defines no function f"),
        ("f = 3", "defines no function f"),
        ("def f(): return 1", "does not take 1 arguments"),
        ("def f(x, y): return x", "does not take 1 arguments"),
    ],
)
def test_a_text_without_the_function_is_refused(body: str, message: str) -> None:
    with pytest.raises(InvalidStatement, match=message):
        compile_function(function(body))
    with pytest.raises(InvalidStatement, match=message):
        Kernel().define([function(body)])


def test_a_symbol_says_what_is_called() -> None:
    declared = function(TWICE)
    others = [
        function(TWICE + "#"),
        function(TWICE, "INTEGER"),
        function(TWICE, returns="INTEGER"),
        Function("f", ("a",), ("BIGINT",), "BIGINT", TWICE),
    ]
    symbols = {udf.symbol for udf in (declared, function(TWICE), *others)}
    assert len(symbols) == 5
    text = f'sum("{declared.symbol}"(c0)) x@{"0" * 17} a@b'
    assert without_hash(text) == f"sum(f(c0)) x@{'0' * 17} a@b"
    assert without_hash(f"'{declared.symbol}(INTEGER)'") == "'f(INTEGER)'"
    assert functions_in([declared, *others], text) == (declared,)


def test_plain_types_are_plain_inside_too() -> None:
    assert is_plain(pa.list_(pa.struct([("a", pa.int64())])))
    assert not is_plain(pa.list_(pa.struct([("a", pa.bool8())])))
    assert not is_plain(pa.map_(pa.string(), pa.uuid()))
