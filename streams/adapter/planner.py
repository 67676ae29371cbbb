"""Evaluates definitions in worker processes: planning evaluates users' expressions.

The coordinator takes the resulting columns, names and plans, and evaluates no constant and no
function itself, neither for a statement nor at a restart.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from streams.adapter.catalog import Catalog, Item
from streams.adapter.provisioning import relations
from streams.adapter.results import Columns, Complete, Notice, Result
from streams.adapter.row_encoding import text_rows
from streams.adapter.system_columns import IDS, named_in, select_only, telling_names
from streams.adapter.workers.requests import (
    Declare,
    Ended,
    Explain,
    Query,
    Request,
    Types,
    View,
    Viewed,
    columns_told,
    declared,
)
from streams.compute import dead_letters
from streams.plan.physical import Column
from streams.plan.sql import statements as sql
from streams.trace.kernel.functions import Function


class Evaluate(Protocol):
    """Has a worker execute a request; yields beats for the user meanwhile."""

    def __call__(
        self, request: Request, take: Callable[[bytes], object] = bytes
    ) -> Generator[Result, None, Ended]:
        """Return the end of the answer; `take` gets its data."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view's query with its resolved names, its plan in JSON, and the facts of the plan."""

    query: Query
    plan: str
    viewed: Viewed


Evaluated = PlannedView | Function | tuple[Column, ...] | None
"""A view, a function or the columns of a source; None if there is nothing to evaluate."""


def meant(query: str, catalog: Catalog) -> Query:
    """Return the text of a query with its resolved names.

    Of dead letters only if it may name some: there are as many as sources.
    """
    may_read = dead_letters.SUFFIX[1:] in query.casefold()
    items = [item for item in catalog.ordered() if may_read or item.kind != "errors"]
    by_id = catalog.items
    named = {**named_in(query), **relations(items, by_id)}
    return Query(query, named, tuple(catalog.functions.values()))


def query_of(item: Item, catalog: Catalog) -> Query:
    """Return the query of a view in the catalog, with only the objects it reads and calls."""
    inputs = [catalog.items[collection] for collection in item.inputs]
    return Query(item.query, relations(inputs, catalog.items), catalog.called(item))


def evaluated(
    statement: sql.Statement, catalog: Catalog, evaluate: Evaluate
) -> Generator[Result, None, Evaluated]:
    """Evaluate a definition; None if its name is taken. Errors: InvalidStatement."""
    match statement:
        case sql.CreateMaterializedView() if catalog.find(statement.name) is None:
            query, blocks = meant(statement.query, catalog), list[bytes]()
            with telling_names():
                ended = yield from evaluate(View(query), blocks.append)
            viewed = Viewed.told(ended.facts)
            for input_ in IDS.keys() & set(viewed.inputs):
                raise select_only(input_)
            return PlannedView(query, joined(blocks), viewed)
        case sql.CreateSource() if catalog.find(statement.name) is None:
            ended = yield from evaluate(Types(statement.columns))
            return columns_told(ended.facts)
        case sql.CreateFunction() if statement.name.casefold() not in catalog.functions:
            ended = yield from evaluate(Declare(statement))
            return declared(statement, ended.facts)
        case _:
            return None


def explained(
    query: str, catalog: Catalog, evaluate: Evaluate, *, picture: bool
) -> Iterator[Result]:
    """Yield the plan of a query as text or as a picture. Errors: InvalidStatement."""
    chunks: list[bytes] = []
    yield from evaluate(Explain(meant(query, catalog), picture), chunks.append)
    plan = joined(chunks)
    yield Columns((Column("plan", "SVG" if picture else "VARCHAR"),))
    yield text_rows([(line,) for line in ([plan] if picture else plan.splitlines())])
    yield Complete("EXPLAIN")


def notices(evaluation: Evaluated) -> tuple[Notice, ...]:
    """Return what the user has to know of a view that is created."""
    kept = evaluation.viewed.kept if isinstance(evaluation, PlannedView) else ()
    return tuple(Notice(said) for said in kept)


def joined(blocks: Iterable[bytes]) -> str:
    """Return a worker's data as one text."""
    return b"".join(blocks).decode(errors="replace")
