"""Definitions of functions in Python."""

from streams.adapter import ddl
from streams.adapter.catalog import Define, Undefine
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.planner import Evaluated
from streams.adapter.results import Complete, Notice, Result
from streams.errors import InvalidStatement
from streams.plan.sql.statements import CreateFunction, DropFunction
from streams.trace.kernel.functions import Function


def create_function(
    statement: CreateFunction, evaluation: Evaluated, catalog: CatalogLog
) -> tuple[Result, ...] | None:
    """Create a function; None if it has yet to be evaluated."""
    done = Complete("CREATE FUNCTION")
    existing = catalog.sync().functions.get(statement.name.casefold())
    if existing is None:
        if not isinstance(evaluation, Function):
            return None
        catalog.change(lambda _: Define(evaluation))
        return (done,)
    if not statement.if_not_exists:
        raise InvalidStatement(
            f"function {existing.name} already exists",
            hint="drop it, and the views that call it, or choose another name",
        )
    return Notice(f"{existing.name} already exists and is unchanged"), done


def drop_function(statement: DropFunction, catalog: CatalogLog) -> tuple[Result, ...]:
    """Drop a function, if there is one. Errors: InvalidStatement."""
    done = Complete("DROP FUNCTION")
    function = ddl.undefinable(statement.name, catalog.sync())
    if function is not None:
        catalog.change(lambda _: Undefine(statement.name))
        return (done,)
    if not statement.if_exists:
        raise InvalidStatement(f"function {statement.name} does not exist")
    return Notice(f"function {statement.name} does not exist"), done
