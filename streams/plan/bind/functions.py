"""Validates functions that a user creates, so that errors are raised at CREATE."""

import keyword

from streams.errors import InvalidStatement
from streams.plan.bind.binder import binder, canonical_columns, known_functions
from streams.plan.bind.refusals import is_carried
from streams.plan.physical import Column
from streams.plan.sql.statements import CreateFunction
from streams.plan.type_names import contains
from streams.trace.kernel.arrow import is_plain
from streams.trace.kernel.functions import Function, compile_function
from streams.trace.kernel.kernel import arrow_type


def function_of(statement: CreateFunction) -> Function:
    """The function that a statement creates, its types spelled as DuckDB prints them.

    The body is run once, to see that it defines the function; the function is not called.

    Errors: InvalidStatement for a name, a type or a body that cannot be.
    """
    name = statement.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidStatement(f"function name {name} is not a name in Python")
    if name.lower() in known_functions() | {"mz_now"}:
        raise InvalidStatement(
            f"function {name} is one of DuckDB's", hint="choose another name"
        )
    if not _is_callable(name, len(statement.parameters)):
        raise InvalidStatement(
            f"function name {name} is a keyword of DuckDB's", hint="choose another name"
        )
    columns = canonical_columns(statement.parameters)
    (returns,) = canonical_columns([Column("result", statement.returns)])
    for column in columns:
        _refuse_type(f"argument {column.name} of {name}", column.type)
    _refuse_type(f"the result of {name}", returns.type)
    function = Function(
        name,
        tuple(column.name for column in columns),
        tuple(column.type for column in columns),
        returns.type,
        statement.body,
    )
    compile_function(function)
    return function


def _is_callable(name: str, count: int) -> bool:
    """Tell whether DuckDB's grammar takes this for a call of a function of the name."""
    with binder({}) as bound:
        try:
            statements = bound.syntax(f"SELECT {name}({', '.join(['1'] * count)}) AS x")
        except InvalidStatement:
            return False
    named = {
        node.text("function_name").lower()
        for node in statements[0].walk()
        if node.has("function_name")
    }
    return name.lower() in named


def _refuse_type(what: str, type_: str) -> None:
    """Errors: InvalidStatement for a type whose values are not plain in Arrow."""
    is_odd = any(contains(type_, kind) for kind in ("ENUM", "UNION"))
    if is_odd or not is_carried(type_) or not is_plain(arrow_type(type_)):
        raise InvalidStatement(
            f"{what} cannot be of type {type_}",
            "Arrow has no plain array of it",
            "cast it in the query, to VARCHAR or DECIMAL(38, 0) for instance",
        )
