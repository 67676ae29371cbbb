"""From the text of a SELECT to the dataflow that maintains it: the planner's front door."""

from collections.abc import Mapping
from dataclasses import dataclass

from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import CollectionId
from streams.plan import ir, render
from streams.plan.bind import bind
from streams.plan.binder import Binder, binder
from streams.plan.draw import draw
from streams.plan.explain import explain_logical, explain_physical
from streams.plan.lower import lower
from streams.plan.passes import optimise
from streams.plan.physical import Column, Dataflow, Source
from streams.plan.record import Record
from streams.plan.refusals import refuse, refuse_today, refuse_types, refuse_unstable
from streams.plan.settle import settle
from streams.plan.temporal import refuse_elsewhere


@dataclass(frozen=True, slots=True)
class Relation:
    """What a name of the catalog stands for in a query: a collection and its columns."""

    id: CollectionId
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A view ready to run: its dataflow, the logical plan behind it, its columns."""

    dataflow: Dataflow
    logical: ir.Relational
    columns: tuple[Column, ...]


def compile_view(query: str, catalog: Mapping[str, Relation]) -> Compiled:
    """Plan the SELECT against the catalog, whose names are case-insensitive.

    Errors: InvalidStatement, naming the construct or the place, for what does not bind or is
    not maintained. InvalidUsage for catalog names that differ in case alone.
    """
    _refuse_ambiguous(catalog)
    with binder({name: relation.columns for name, relation in catalog.items()}) as bound:
        refuse(bound, query, _column_names(catalog))
        answer = bound.bind(query)
        _refuse_duplicates(answer.columns)
        # Words like current_date, and macros, turn into functions only when they are bound.
        refuse_unstable(_functions(answer.plan))
        refuse_today(answer.plan)
        names = {name.lower(): (name, relation.id) for name, relation in catalog.items()}
        unchecked = bind(answer.plan, names)
        refuse_elsewhere(unchecked)
        settled = settle(unchecked, bound.computable)
        _refuse_failing_rows(settled, bound)
    logical = optimise(settled)
    dataflow = lower(logical, answer.columns)
    refuse_types(answer.columns, _inner_types(dataflow))
    return Compiled(dataflow, logical, answer.columns)


def explain(query: str, catalog: Mapping[str, Relation]) -> str:
    """The logical and the physical plan of the SELECT as trees.

    Errors: as `compile_view`.
    """
    compiled = compile_view(query, catalog)
    names = {relation.id: name for name, relation in catalog.items()}
    return "\n".join(
        [
            "logical plan",
            explain_logical(compiled.logical),
            "",
            "physical plan",
            explain_physical(compiled.dataflow, names),
        ]
    )


def drawn(query: str, catalog: Mapping[str, Relation]) -> str:
    """The physical plan of the SELECT as a picture: the text of an SVG document.

    Errors: as `compile_view`.
    """
    compiled = compile_view(query, catalog)
    return draw(compiled.dataflow, {relation.id: name for name, relation in catalog.items()})


def _refuse_ambiguous(catalog: Mapping[str, Relation]) -> None:
    seen: dict[str, str] = {}
    for name in catalog:
        if name.lower() in seen:
            raise InvalidUsage(f"catalog names {seen[name.lower()]} and {name} differ in case")
        seen[name.lower()] = name


def _column_names(catalog: Mapping[str, Relation]) -> frozenset[str]:
    """The names of all columns of the catalog, in lower case."""
    return frozenset(
        column.name.lower() for relation in catalog.values() for column in relation.columns
    )


def _functions(plan: Record) -> frozenset[str]:
    """The functions of a bound plan, by lower-case name."""
    return frozenset(
        node.record("qname").texts("path")[-1].lower()
        for node in plan.walk()
        if node.has("qname")
    )


def _refuse_duplicates(columns: tuple[Column, ...]) -> None:
    seen = set()
    for column in columns:
        if column.name.lower() in seen:
            raise InvalidStatement(
                f"column name {column.name} appears more than once in the result",
                "column names are compared without case",
                "give each column a name of its own with AS",
            )
        seen.add(column.name.lower())


def _inner_types(dataflow: Dataflow) -> frozenset[str]:
    """The types of what the nodes hand on; what a source has is the source's business."""
    return frozenset(
        type_
        for node, types in zip(dataflow.nodes, dataflow.types, strict=True)
        if not isinstance(node, Source)
        for type_ in types
    )


def _refuse_failing_rows(node: ir.Relational, bound: Binder) -> None:
    """Errors: InvalidStatement for a VALUES list with a cell that has no value."""
    if isinstance(node, ir.Values):
        for row in node.rows:
            bound.check("SELECT " + ", ".join(render.sql(cell) for cell in row))
    for child in ir.children(node):
        _refuse_failing_rows(child, bound)
