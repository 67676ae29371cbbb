"""From the text of a SELECT to the dataflow that maintains it: the planner's entry point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streams.errors import InvalidStatement, InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.plan import ir, to_sql
from streams.plan import json as plans
from streams.plan.analyses import open_state
from streams.plan.analyses.keys import key
from streams.plan.analyses.temporal import refuse_elsewhere
from streams.plan.bind import closing, mutual_recursion
from streams.plan.bind.binder import Binder, binder
from streams.plan.bind.casts import refuse_casts
from streams.plan.bind.correlated import refuse_correlated
from streams.plan.bind.orders import OrderedRows
from streams.plan.bind.query import bind, bind_shown
from streams.plan.bind.refusals import refuse, refuse_today, refuse_types, refuse_unstable
from streams.plan.display.draw import draw
from streams.plan.display.explain import explain_logical, explain_physical
from streams.plan.duckdb_plan import Record
from streams.plan.lowering.intervals import checked_interval
from streams.plan.lowering.lower import WindowEnd, lower
from streams.plan.passes import lower_unions, optimise
from streams.plan.passes.fold_constants import fold_constants
from streams.plan.physical import Column, Dataflow, EmitOnClose, SortKey, Source
from streams.plan.scalar import Ref, Scalar, refs
from streams.plan.sql.emit import Emit, split
from streams.trace.kernel.functions import Function, functions_in, without_hash


@dataclass(frozen=True, slots=True)
class Relation:
    """The relation behind a name of the catalog: a collection and its columns.

    `keys` are sets of column names by which no two rows are equal; only what an operator keeps
    so may be given, as the upsert behind a source does. If it is `monotone` no row ever leaves.
    Of a rebase, `rebase_of` is the name of its input.
    """

    id: CollectionId
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    monotone: bool = False
    rebase_of: str = ""

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The keys by the positions of their columns."""
        names = [column.name for column in self.columns]
        return tuple(tuple(map(names.index, key)) for key in self.keys)


@dataclass(frozen=True, slots=True)
class CompiledView:
    """A view ready to run: its dataflow, the logical plan behind it, its columns.

    `key` are columns by which no two of its rows are equal, whatever the inputs hold; None
    without any. Of a view with EMIT ON CLOSE the logical plan is that of the rows whose windows
    are open, and `end` is the end over its columns.
    """

    dataflow: Dataflow
    logical: ir.Relational
    columns: tuple[Column, ...]
    end: Scalar | None = None

    @property
    def key(self) -> tuple[int, ...] | None:
        """Columns by which no two rows are equal, whatever the inputs hold."""
        own = key(self.logical)
        last = self.dataflow.nodes[-1]
        if self.end is None or not isinstance(last, EmitOnClose):
            return own
        return closing.key_of(own, self.end, WindowEnd(last.end, None), len(self.columns))

    @property
    def kept(self) -> tuple[str, ...]:
        """What keeps rows of windows that have closed, of a view with EMIT ON CLOSE."""
        return () if self.end is None else open_state.kept(self.logical)


@dataclass(frozen=True, slots=True)
class CompiledSelect:
    """A SELECT ready to run: what a view of it would hold, and how to show that.

    `columns` of the dataflow are those of `shown` first; those behind them serve the order.
    """

    dataflow: Dataflow
    columns: tuple[Column, ...]
    shown: tuple[Column, ...]
    order: tuple[SortKey, ...]


def compile_view(
    query: str,
    catalog: Mapping[str, Relation],
    functions: Sequence[Function] = (),
    born: Timestamp | None = None,
) -> CompiledView:
    """Plan the SELECT against the catalog, whose names are case-insensitive.

    `functions` are those that the query may call beside DuckDB's; the dataflow holds the ones
    that it does. `born` is the first time of the dataflow, on which that of a query with EMIT
    ON CLOSE depends; without it, windows that have ended before do not come out.

    Errors: InvalidStatement, naming the construct or the place, for what does not bind or is
    not maintained. InvalidUsage for catalog names that differ in case alone.
    """
    text, emit = split(query)
    settled, columns = _settled(text, catalog, functions)
    if emit is None:
        return _compiled(settled.rows, columns, functions)
    end = _end(emit, columns, functions)
    rows, closes = closing.open_rows(settled.rows, end, born)
    return replace(_compiled(rows, columns, functions, closes), end=end)


def _end(emit: Emit, columns: tuple[Column, ...], functions: Sequence[Function]) -> Scalar:
    """The end of the window of a view's row, over its columns. Errors: InvalidStatement."""
    row = {closing.ROW: Relation(closing.COLLECTION, columns)}
    query = closing.query_of(emit, columns)
    try:
        rows = _settled(query, row, functions)[0].rows
    except InvalidStatement as error:  # its place is one in our query
        raise InvalidStatement(f"EMIT ON CLOSE: {error.message}", hint=error.hint) from error
    return closing.end_of(rows)


def compile_select(
    query: str, catalog: Mapping[str, Relation], functions: Sequence[Function] = ()
) -> CompiledSelect:
    """Plan a SELECT whose rows are read once: as a view, but in the order it asks for.

    Its columns may share names, since they are not identified by these.

    Errors: as `compile_view`; for EMIT ON CLOSE.
    """
    if split(query)[1] is not None:
        raise InvalidStatement(
            "EMIT ON CLOSE in a SELECT",
            "a SELECT reads what is there at one time, and EMIT ON CLOSE says when rows appear",
            "create a materialized view with it, and read that",
        )
    bound_query, shown = _settled(query, catalog, functions, is_shown=True)
    behind = ir.columns(bound_query.rows)[bound_query.width :]
    view = _compiled(bound_query.rows, (*shown, *behind), functions)
    orders = tuple(map(_sort_key, bound_query.orders))
    return CompiledSelect(view.dataflow, view.columns, shown, orders)


def _sort_key(order: ir.Order) -> SortKey:
    assert isinstance(order.scalar, Ref), "the terms of an order are columns"
    return SortKey(order.scalar.index, order.descending, order.nulls_first)


def _compiled(
    settled: ir.Relational,
    columns: tuple[Column, ...],
    functions: Sequence[Function],
    closes: WindowEnd | None = None,
) -> CompiledView:
    refuse_types(columns, ())
    logical = optimise(settled)
    dataflow = lower(logical, lower_unions.columns(columns), closes)
    if functions:
        called = functions_in(functions, plans.dumps(dataflow))
        dataflow = replace(dataflow, functions=called)
    refuse_types((), _inner_types(dataflow))
    return CompiledView(dataflow, logical, columns)


def bound_plan(
    query: str, catalog: Mapping[str, Relation], functions: Sequence[Function] = ()
) -> ir.Relational:
    """The plan of the SELECT before any pass. Errors: as `compile_view`."""
    text, emit = split(query)
    settled, columns = _settled(text, catalog, functions)
    if emit is None:
        return settled.rows
    return closing.open_rows(settled.rows, _end(emit, columns, functions), None)[0]


def _settled(
    query: str,
    catalog: Mapping[str, Relation],
    functions: Sequence[Function],
    *,
    is_shown: bool = False,
) -> tuple[OrderedRows, tuple[Column, ...]]:
    """The plan before any pass and the query's columns; its order where it is to be shown."""
    _refuse_ambiguous(catalog)
    block = mutual_recursion.split(query)
    relations = _scope(block, catalog)
    tables = {name: relation.columns for name, relation in relations.items()}
    with binder(tables, functions) as bound:
        values = [_value(binding, block, relations, bound) for binding in block.bindings]
        unchecked, columns = _bind(block.query, block, relations, bound, is_shown=is_shown)
        columns = columns if is_shown else _named_apart(columns)
        tied = mutual_recursion.loop_over(block, values, unchecked.rows)
        refuse_elsewhere(tied)
        settled = fold_constants(lower_unions.lower_unions(tied), bound.computable)
        _refuse_failing_constants(settled, bound)
    return replace(unchecked, rows=settled), columns


def _scope(
    block: mutual_recursion.QueryBlock, catalog: Mapping[str, Relation]
) -> Mapping[str, Relation]:
    """The scope of the queries of a block: its bindings hide relations."""
    own = {
        binding.name: Relation(block.collection(binding.name), _declared(binding))
        for binding in block.bindings
    }
    hidden = {name.lower() for name in own}
    return {n: r for n, r in catalog.items() if n.lower() not in hidden} | own


def _declared(binding: mutual_recursion.Binding) -> tuple[Column, ...]:
    with binder({binding.name: binding.columns}) as bound:
        return bound.columns(binding.name)


def _value(
    binding: mutual_recursion.Binding,
    block: mutual_recursion.QueryBlock,
    relations: Mapping[str, Relation],
    bound: Binder,
) -> ir.Relational:
    width = len(bound.bind(binding.query).columns)
    if width != len(binding.columns):
        raise InvalidStatement(
            f"{binding.name} is declared with {len(binding.columns)} columns,"
            f" its query has {width}"
        )
    return _bind(binding.cast, block, relations, bound)[0].rows


def _bind(
    query: str,
    block: mutual_recursion.QueryBlock,
    relations: Mapping[str, Relation],
    bound: Binder,
    *,
    is_shown: bool = False,
) -> tuple[OrderedRows, tuple[Column, ...]]:
    refuse(bound, query, _column_names(relations))
    answer = bound.bind(query)
    # Words like current_date, and macros, turn into functions only when they are bound.
    refuse_unstable(_functions(answer.plan))
    refuse_today(answer.plan)
    refuse_casts(answer.plan, bound.computable)
    refuse_correlated(bound, query)
    names = {name.lower(): (name, relation.id) for name, relation in relations.items()}
    bound_query = (bind_shown if is_shown else bind)(answer.plan, names, block.limit)
    rows = _described(
        bound_query.rows, {relation.id: relation for relation in relations.values()}
    )
    return replace(bound_query, rows=rows), answer.columns


def _described(
    node: ir.Relational, relations: Mapping[CollectionId, Relation]
) -> ir.Relational:
    """The plan with the catalog's facts about each collection's rows."""
    if isinstance(node, ir.Get):
        relation = relations[node.collection]
        return replace(
            node,
            keys=relation.places,
            monotone=relation.monotone,
            rebase_of=relation.rebase_of,
        )
    return ir.with_parts(node, tuple(_described(part, relations) for part in ir.parts(node)))


def explain(
    query: str, catalog: Mapping[str, Relation], functions: Sequence[Function] = ()
) -> str:
    """The logical and the physical plan of the SELECT as trees.

    Errors: as `compile_view`.
    """
    compiled = compile_view(query, catalog, functions)
    names = {relation.id: name for name, relation in catalog.items()}
    end = compiled.end
    lines = [
        "logical plan",
        *([] if end is None else [f"EmitOnClose at {to_sql.label(end)}  -- append-only"]),
        explain_logical(compiled.logical, int(end is not None), with_facts=True),
        *(f"  -- {said}" for said in compiled.kept),
        "",
        "physical plan",
        explain_physical(compiled.dataflow, names),
    ]
    return without_hash("\n".join(lines))


def draw_plan(
    query: str, catalog: Mapping[str, Relation], functions: Sequence[Function] = ()
) -> str:
    """The physical plan of the SELECT as a picture: the text of an SVG document.

    Errors: as `compile_view`.
    """
    compiled = compile_view(query, catalog, functions)
    names = {relation.id: name for name, relation in catalog.items()}
    return without_hash(draw(compiled.dataflow, names))


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


def _named_apart(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns by the names that CREATE TABLE AS gives them: `a`, `a_1`, `a_2`.

    Names are compared without case.
    """
    uses: dict[str, int] = {}
    named = []
    for column in columns:
        name = column.name
        while name.lower() in uses:
            number = uses[column.name.lower()]
            name = f"{column.name}_{number}"
            uses[column.name.lower()] = number + 1
        uses[name.lower()] = 1
        named.append(replace(column, name=name))
    return tuple(named)


def _inner_types(dataflow: Dataflow) -> frozenset[str]:
    """The types of the columns that nodes output; those of sources are checked elsewhere."""
    return frozenset(
        type_
        for node, types in zip(dataflow.nodes, dataflow.types, strict=True)
        if not isinstance(node, Source)
        for type_ in types
    )


def _refuse_failing_constants(node: ir.Relational, bound: Binder) -> None:
    """Errors: InvalidStatement for a VALUES list, or an argument of a window, without value."""
    rows: tuple[tuple[Scalar, ...], ...] = ()
    if isinstance(node, ir.Values):
        rows = node.rows
    elif isinstance(node, ir.Window):
        arguments = (argument for call in node.calls for argument in call.arguments)
        constants = tuple(
            scalar
            for scalar in arguments
            if checked_interval(scalar) != scalar and not refs(scalar)
        )
        rows = (constants,) if constants else ()
    for row in rows:
        bound.check("SELECT " + ", ".join(to_sql.sql(checked_interval(cell)) for cell in row))
    for part in ir.parts(node):
        _refuse_failing_constants(part, bound)
