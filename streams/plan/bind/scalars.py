"""Translates DuckDB's bound expressions to scalars.

DuckDB has resolved names, overloads and casts; what is left is to translate each class of
node. A lambda's captured values are inlined where its body uses them, so that a column is
always a column of the row.
"""

from dataclasses import dataclass

from streams.errors import InvalidStatement
from streams.plan.bind.literals import literal
from streams.plan.duckdb_plan import Record
from streams.plan.physical import Column
from streams.plan.scalar import Call, Form, Literal, Parameter, Ref, Scalar
from streams.plan.type_names import stored_type, type_name
from streams.trace.kernel.unions import has_union

_NUMBER = "BIGINT"  # the type of DuckDB's numbers of rows
_OPERATORS = {
    "OPERATOR_NOT": Form.NOT,
    "OPERATOR_IS_NULL": Form.IS_NULL,
    "OPERATOR_IS_NOT_NULL": Form.IS_NOT_NULL,
    "COMPARE_IN": Form.IN,
    "COMPARE_NOT_IN": Form.NOT_IN,
    "OPERATOR_COALESCE": Form.COALESCE,
    "OPERATOR_TRY": Form.TRY,
}
_ARITHMETIC = frozenset({"+", "-", "*"})
_OF_WIDENED = frozenset({"equi_width_bins"})
"""Functions whose result has the type of arguments that DuckDB has widened: bound again, it
would have theirs."""
_OF_VECTORS = frozenset({
    "list_distance", "list_cosine_distance", "list_cosine_similarity", "list_dot_product",
    "list_inner_product", "list_negative_dot_product", "list_negative_inner_product", "<->",
    "<=>",
})  # fmt: skip
"""Functions that fail for a NULL in the lists of any row that DuckDB has at hand."""
_CONJUNCTIONS = {"CONJUNCTION_AND": Form.AND, "CONJUNCTION_OR": Form.OR}


@dataclass(frozen=True, slots=True)
class Scope:
    """The meaning of a positional reference: an expression over the operator's input."""

    values: tuple[Scalar, ...]
    depth: int = 0  # of lambdas around


def row_scope(columns: tuple[Column, ...]) -> Scope:
    """References are the columns of the input."""
    return Scope(tuple(Ref(i, column.type, column.name) for i, column in enumerate(columns)))


def bind_scalar(  # noqa: PLR0911 - one case a class of expression
    record: Record, scope: Scope
) -> Scalar:
    """Translate one bound expression.

    Errors: InvalidStatement for a class of expression that has no meaning row by row.
    """
    match record.text("expression_class"):
        case "BOUND_REF":
            return _reference(record, scope)
        case "BOUND_COLUMN_REF":
            # of a table function's argument; there is one relation to name (`bind`)
            return scope.values[record.record("binding").number("column_index")]
        case "BOUND_CONSTANT":
            return literal(record.record("value"))
        case "BOUND_FUNCTION":
            return _function(record, scope)
        case "BOUND_OPERATOR":
            return _operator(record, scope)
        case "BOUND_CONJUNCTION":
            form = _CONJUNCTIONS[record.text("type")]
            return Call(form, form.value, _arguments(record, scope), "BOOLEAN")
        case "BOUND_CASE":
            return _case(record, scope)
        case other:
            raise InvalidStatement(
                f"expression {record.text('type') or other} is not supported"
            )


def _reference(record: Record, scope: Scope) -> Scalar:
    return scope.values[record.number("index")]


def _arguments(record: Record, scope: Scope) -> tuple[Scalar, ...]:
    return tuple(bind_scalar(child, scope) for child in record.records("children"))


def _function(record: Record, scope: Scope) -> Scalar:
    type_ = type_name(record.record("return_type"))
    if record.text("type") == "OPERATOR_CAST":
        return _cast(record, scope, type_)
    name = record.record("qname").texts("path")[-1]
    if any(_is_lambda(child) for child in record.records("children")):
        return Call(Form.FUNCTION, name, _with_lambda(record, scope), type_)
    arguments = _arguments(record, scope)
    form = _written(name, len(arguments), operator=record.flag("is_operator"))
    if name in _ARITHMETIC and type_.startswith("DECIMAL"):
        return _decimal(form, name, arguments, type_)
    if name in _OF_VECTORS:
        return Call(form, name, tuple(map(_without_null, arguments)), type_)
    if name in _OF_WIDENED:
        return Call(Form.CAST, "cast", (Call(form, name, arguments, type_),), type_)
    return Call(form, name, arguments, type_, record.texts("named_arguments"))


def _cast(record: Record, scope: Scope, type_: str) -> Scalar:
    """A cast; a column of NULLs is stored as INTEGER, and not every union has such a member."""
    (argument,) = _arguments(record, scope)
    if argument.type == type_:
        return argument
    (source,) = map(type_name, record.records("arguments"))
    is_stored = stored_type(source) != source and argument.type in {"", stored_type(source)}
    if is_stored and has_union(type_):
        argument = Call(Form.CAST, Form.CAST.value, (argument,), source)
    form = Form.TRY_CAST if record.record("function_data").flag("try_cast") else Form.CAST
    return Call(form, form.value, (argument,), type_)


def _decimal(form: Form, name: str, arguments: tuple[Scalar, ...], type_: str) -> Scalar:
    """Arithmetic on decimals, such that binding it again gives the same type.

    DuckDB derives the result's width from the arguments' and then widens the arguments to it,
    so that, bound a second time, the result would be wider still.
    """
    narrow = tuple(map(_unwidened, arguments))
    return Call(Form.CAST, "cast", (Call(form, name, narrow, type_),), type_)


def _without_null(scalar: Scalar) -> Scalar:
    """The list, with an error for each NULL element: it fails only for its own row."""
    type_ = scalar.type.removesuffix("[]")
    element = Parameter("element@v", type_)
    text = Literal("'a list holds NULL'", "VARCHAR", "'a list holds NULL'")
    error = Call(Form.FUNCTION, "error", (text,), '"NULL"')
    is_null = Call(Form.IS_NULL, "is null", (element,), "BOOLEAN")
    cases = (is_null, Call(Form.CAST, "cast", (error,), type_), element)
    body = Call(Form.CASE, "case", cases, type_)
    over = Call(Form.LAMBDA, "lambda", (body,), "LAMBDA", (element.name,))
    transformed = Call(Form.FUNCTION, "list_transform", (scalar, over), scalar.type)
    return Call(Form.CHECKED, Form.CHECKED.value, (transformed, scalar), scalar.type)


def _unwidened(scalar: Scalar) -> Scalar:
    if isinstance(scalar, Call) and scalar.form is Form.CAST:
        (inner,) = scalar.arguments
        if inner.type.startswith("DECIMAL") and _scale(inner.type) == _scale(scalar.type):
            return inner
    return scalar


def _scale(type_: str) -> str:
    return type_.partition(",")[2]


def _written(name: str, count: int, *, operator: bool) -> Form:
    symbolic = not (name[0].isalpha() or name[0] == "_")
    if not operator or not (symbolic or name.startswith("IS ")):
        return Form.FUNCTION
    return {1: Form.PREFIX, 2: Form.INFIX}.get(count, Form.FUNCTION)


def _with_lambda(record: Record, scope: Scope) -> tuple[Scalar, ...]:
    """The arguments of a function that takes a lambda.

    DuckDB appends the captured values to the arguments it declares; the lambda's body refers
    first to its parameters, last one first, then to these.
    """
    children = record.records("children")
    declared = len(record.items("arguments"))
    captured = tuple(bind_scalar(child, scope) for child in children[declared:])
    return tuple(
        _lambda(child, captured, scope) if _is_lambda(child) else bind_scalar(child, scope)
        for child in children[:declared]
    )


def _is_lambda(record: Record) -> bool:
    return record.text("expression_class") == "BOUND_LAMBDA"


def _lambda(record: Record, captured: tuple[Scalar, ...], scope: Scope) -> Scalar:
    # A variable carries its depth, so that two of one name never meet.
    names = tuple(f"{name}@{scope.depth}" for name in record.texts("parameter_names"))
    parameters = tuple(Parameter(name, "") for name in reversed(names))
    inner = Scope(parameters + captured, scope.depth + 1)
    body = bind_scalar(record.record("lambda_expr"), inner)
    return Call(Form.LAMBDA, "lambda", (body,), "LAMBDA", names)


def _operator(record: Record, scope: Scope) -> Scalar:
    kind = record.text("type")
    if kind not in _OPERATORS:
        raise InvalidStatement(f"operator {kind} is not supported")
    form, arguments = _OPERATORS[kind], _arguments(record, scope)
    type_ = type_name(record.record("return_type"))
    if form is Form.COALESCE and type_ == _NUMBER:
        # A FULL join in a correlated join takes the row's number from either side; `bind` has
        # the row itself for it, and its type.
        type_ = arguments[0].type or type_
    return Call(form, form.value, arguments, type_)


def _case(record: Record, scope: Scope) -> Scalar:
    parts: list[Scalar] = []
    for check in record.records("case_checks"):
        parts.append(bind_scalar(check.record("when_expr"), scope))
        parts.append(bind_scalar(check.record("then_expr"), scope))
    parts.append(bind_scalar(record.record("else_expr"), scope))
    return Call(Form.CASE, "case", tuple(parts), type_name(record.record("return_type")))
