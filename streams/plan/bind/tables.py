"""Translates DuckDB's table functions: one list per row, expanded by Unnest.

`generate_series`, `range` and `unnest` are also functions of one row that return a list, so a
call with constants is that function over a row of nothing, and a call with columns of another
relation (LATERAL) is the function over its rows. The nodes of a JSON text (`json_each`,
`json_tree`) are a list of structs, whose fields are the function's columns.
"""

from collections.abc import Sequence

from streams.plan.bind.joins import projection
from streams.plan.bind.literals import literal, text_literal
from streams.plan.bind.refusals import TABLE_FUNCTIONS
from streams.plan.bind.scalars import bind_scalar, row_scope
from streams.plan.duckdb_plan import Record
from streams.plan.ir import Project, Relational, Unnest, Values, columns
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.physical import Column
from streams.plan.refusal import Refusal
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar
from streams.plan.type_names import stored_type, struct_type, type_name

_NODES = ("json_each", "json_tree")
NOTHING = Values(((Literal("true", "BOOLEAN", "true"),),), (Column("row", "BOOLEAN"),))
"""One row without columns; it has an unused one, because SQL requires one."""


def function(name: str, record: Record, source: Relational | None) -> Relational:
    """The rows of a call, and behind them the columns of `source` that it hands on.

    Errors: InvalidStatement for a function that is not one of a row.
    """
    if name not in TABLE_FUNCTIONS:
        raise Refusal(f"table function {name}").raised()
    if record.text("source_ordinality") == "WITH_ORDINALITY":
        raise Refusal(f"{name} WITH ORDINALITY behind a macro").raised()
    element = _row(record)
    handed = projection(record, "projected_input") or ()
    if source is None:
        source = NOTHING
        arguments: Sequence[Scalar] = [literal(value) for value in record.records("parameters")]
    else:
        own = columns(source)
        count = min(handed, default=len(own))
        arguments = [Ref(i, c.type, c.name) for i, c in enumerate(own[:count])]
    taken = _unnested(source, [_list(name, arguments, element.type)], [element])
    return _shown(taken, len(columns(source)), record, handed)


def _row(record: Record) -> Column:
    """The element of the list that a call stands for: its one column, or a struct of them."""
    names = record.texts("names")
    types = tuple(map(_element, record.records("returned_types")))
    if len(names) == 1:
        return Column(names[0], types[0])
    return Column("row", struct_type(zip(names, types, strict=True)))


def _shown(taken: Relational, width: int, record: Record, handed: Sequence[int]) -> Relational:
    """The columns of the call that the query names, and those that it hands on."""
    names, row = record.texts("names"), columns(taken)[width]
    places = [index.number("index") for index in record.records("column_indexes")]
    if any(place >= len(names) for place in places):
        raise Refusal("a hidden column of a table function", "name its argument").raised()
    if len(names) == 1:
        return pick_columns(taken, [*(width for _ in places), *handed])
    types = tuple(map(_element, record.records("returned_types")))
    whole = Ref(width, row.type, row.name)
    fields: list[Scalar] = [
        Call(Form.FUNCTION, "struct_extract", (whole, _text(names[place])), types[place])
        for place in places
    ]
    own = [columns(taken)[place] for place in handed]
    fields += [Ref(at, c.type, c.name) for at, c in zip(handed, own, strict=True)]
    called = [*(names[place] for place in places), *(column.name for column in own)]
    return Project(taken, tuple(fields), tuple(called))


def _text(text: str) -> Literal:
    return Literal(text_literal(text), "VARCHAR", text_literal(text))


def unnest(record: Record, source: Relational) -> Relational:
    """UNNEST in a select list: the input's columns, then the elements."""
    inside = row_scope(columns(source))
    lists, elements = [], []
    for expression in record.records("expressions"):
        type_ = _element(expression.record("return_type"))
        value = bind_scalar(expression.record("child"), inside)
        lists.append(_cast(value, f"{type_}[]"))
        elements.append(Column("unnest", type_))
    return _unnested(source, lists, elements)


def _unnested(
    source: Relational, lists: Sequence[Scalar], elements: Sequence[Column]
) -> Relational:
    """The source's columns and the elements of the lists, which it does not have."""
    own = columns(source)
    width, count = len(own), len(lists)
    refs = tuple(Ref(i, c.type, c.name) for i, c in enumerate(own))
    names = tuple(column.name for column in own) + ("list",) * count
    listed = Project(source, (*refs, *lists), names)
    taken = Unnest(listed, tuple(range(width, width + count)), tuple(elements))
    return pick_columns(taken, [*range(width), *range(width + count, width + 2 * count)])


def _list(name: str, arguments: Sequence[Scalar], element: str) -> Scalar:
    type_ = f"{element}[]"
    if name == "unnest":
        return _cast(arguments[0], type_)
    if name in _NODES:
        return Call(Form.ROWS, name, tuple(arguments), type_)
    if element == "BIGINT":  # the function of a row takes no narrower numbers
        arguments = [_cast(argument, "BIGINT") for argument in arguments]
    return Call(Form.FUNCTION, name, tuple(arguments), type_)


def _cast(value: Scalar, type_: str) -> Scalar:
    return value if value.type == type_ else Call(Form.CAST, "cast", (value,), type_)


def _element(type_: Record) -> str:
    return stored_type(type_name(type_))
