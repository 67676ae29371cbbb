"""Scalar expressions: what a bound query computes from one row.

A few kinds of node represent all expressions of DuckDB, because the planner never evaluates
them: it moves expressions between operators, and DuckDB runs them. So each has its exact type,
and its SQL binds again to the same function with the same types (literals are typed, casts
explicit). Columns are positions in the input's row; inside a lambda its variables are
parameters, and columns are still those of the row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from streams.trace.kernel.unions import carrier_type


class Form(Enum):
    """The syntax of a call, which determines the meaning of its arguments."""

    FUNCTION = "function"
    INFIX = "infix"
    PREFIX = "prefix"
    CAST = "cast"
    TRY_CAST = "try_cast"
    AND = "and"
    OR = "or"
    NOT = "not"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"
    IN = "in"
    NOT_IN = "not in"
    COALESCE = "coalesce"
    CASE = "case"  # when, then, when, then, ..., else
    TRY = "try"
    TEMPORAL = "temporal"  # the logical time compared, as `name` says, with the argument
    NEAREST = "nearest"  # a value compared, as `name` says, with the start and end of a range
    ROWS = "rows"  # those of a table function, as a list; NULL if there are none
    LAMBDA = "lambda"  # `names` are the parameters, the argument is the body
    CHECKED = "checked"  # the first argument; people read the second, of which it was made
    AS_STRUCT = "as struct"  # what carries the argument, in which there are unions
    AS_UNION = "as union"  # the value that the argument carries
    AS_KEY = "as key"  # what carries the argument, such that `=` of structs is `=` of unions


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of the input. `name` is for people and takes no part in equality."""

    index: int
    type: str
    name: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: `sql` is exact and typed, `label` is what a person would write."""

    sql: str
    type: str
    label: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A variable of an enclosing lambda."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Call:
    """Anything computed from arguments. `names` are those of named arguments, else empty."""

    form: Form
    name: str
    arguments: tuple["Scalar", ...]
    type: str
    names: tuple[str, ...] = ()


Scalar = Ref | Literal | Parameter | Call


def refs(scalar: Scalar) -> frozenset[int]:
    """The columns that the expression reads."""
    return frozenset(node.index for node in walk(scalar) if isinstance(node, Ref))


def walk(scalar: Scalar) -> Iterator[Scalar]:
    """The expression and everything inside it, outside first."""
    yield scalar
    if isinstance(scalar, Call):
        for argument in scalar.arguments:
            yield from walk(argument)


def rewrite(scalar: Scalar, change: Callable[[Ref], Scalar]) -> Scalar:
    """Replace every column by the result of `change`."""
    if isinstance(scalar, Ref):
        return change(scalar)
    if not isinstance(scalar, Call):
        return scalar
    arguments = tuple(rewrite(argument, change) for argument in scalar.arguments)
    return scalar if arguments == scalar.arguments else replace(scalar, arguments=arguments)


def shift(scalar: Scalar, by: int) -> Scalar:
    """The same expression over a row that starts `by` columns further left."""
    return rewrite(scalar, lambda ref: replace(ref, index=ref.index + by))


def remap(scalar: Scalar, positions: Mapping[int, int]) -> Scalar:
    """The same expression over a row with other column positions."""
    return rewrite(scalar, lambda ref: replace(ref, index=positions[ref.index]))


def substitute(scalar: Scalar, outputs: tuple[Scalar, ...]) -> Scalar:
    """The expression over the input of a projection, given it over the projection's output."""
    return rewrite(scalar, lambda ref: outputs[ref.index])


def replace_part(scalar: Scalar, old: Scalar, new: Scalar) -> Scalar:
    """The expression with one inside it in the place of another."""
    if scalar == old:
        return new
    if not isinstance(scalar, Call):
        return scalar
    arguments = tuple(replace_part(argument, old, new) for argument in scalar.arguments)
    return scalar if arguments == scalar.arguments else replace(scalar, arguments=arguments)


def carrier(scalar: Scalar) -> Scalar:
    """The carrier of the value of an expression that contains unions."""
    if isinstance(scalar, Call) and scalar.form is Form.AS_UNION:
        return scalar.arguments[0]
    return Call(Form.AS_STRUCT, Form.AS_STRUCT.value, (scalar,), carrier_type(scalar.type))


EQUALS = {False: "=", True: "IS NOT DISTINCT FROM"}
"""The equality operators, by whether they equate two NULLs."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Two expressions that a predicate equates."""

    one: Scalar
    other: Scalar
    null_equal: bool

    def oriented(self, bound_places: frozenset[int], new: frozenset[int]) -> "Equality | None":
        """The equality with `one` over known columns and `other` over new ones, if it is."""
        for first, second in ((self.one, self.other), (self.other, self.one)):
            left, right = refs(first), refs(second)
            if left and right and left <= bound_places and right <= new:
                return Equality(first, second, self.null_equal)
        return None


def equality(predicate: Scalar) -> Equality | None:
    """The equality in a predicate, if it is one. The logical time equals nothing."""
    if not isinstance(predicate, Call) or predicate.form is not Form.INFIX:
        return None
    for null_equal, name in EQUALS.items():
        if predicate.name == name:
            left, right = predicate.arguments
            return Equality(left, right, null_equal)
    return None


def nearest(predicates: Sequence[Scalar]) -> Call | None:
    """The predicate that says that a row is the nearest one, as that of an ASOF join does."""
    for predicate in predicates:
        if isinstance(predicate, Call) and predicate.form is Form.NEAREST:
            return predicate
    return None


def conjuncts(scalar: Scalar) -> tuple[Scalar, ...]:
    """The parts of a predicate that must all be true."""
    if isinstance(scalar, Call) and scalar.form is Form.AND:
        return tuple(part for argument in scalar.arguments for part in conjuncts(argument))
    return (scalar,)


def conjunction(scalars: Sequence[Scalar]) -> Scalar:
    """The conjunction of at least one predicate."""
    return _together(Form.AND, scalars)


def disjunction(scalars: Sequence[Scalar]) -> Scalar:
    """The disjunction of at least one predicate."""
    return _together(Form.OR, scalars)


def _together(form: Form, scalars: Sequence[Scalar]) -> Scalar:
    return (
        scalars[0] if len(scalars) == 1 else Call(form, form.value, tuple(scalars), "BOOLEAN")
    )
