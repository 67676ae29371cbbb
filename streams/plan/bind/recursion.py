"""Translates WITH RECURSIVE to an equivalent Loop.

With B the base and F the recursive term, DuckDB computes W1 = B, W2 = F(W1), W3 = F(W2) and so
on until there are no rows, and answers their sum; for UNION without ALL each W loses what an
earlier one had. F sees the rows of the iteration before alone.

Where F is additive, F(X + Y) = F(X) + F(Y), the sums R of the W up to an iteration obey

    R = B + F(R before)              UNION      R = distinct(B + F(R before))

and each row's way is followed once. Any other F gets the rows of the iteration before:

    UNION ALL   W = B in iteration 1 + F(W before)           R = R before + W
    UNION       R = distinct(B + R before + F(W before))     W = R - R before

and F counts, for F may have rows over nothing, where W before has rows and in iteration 2,
which DuckDB always computes.
"""

from streams.errors import InvalidStatement
from streams.plan.ir import (
    Distinct,
    Filter,
    Group,
    Join,
    JoinKind,
    Limit,
    Loop,
    Match,
    Negate,
    Product,
    Project,
    Relational,
    Threshold,
    TopK,
    Union,
    Unnest,
    Values,
    Variable,
    Window,
    columns,
    shared,
    variables,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.physical import Column, Rule
from streams.plan.scalar import Literal

DEFAULT_LIMIT = Limit(1000, fails=True)
"""A recursion that is still going after so many iterations is an error, until it is not."""

_TRUE = Literal("true", "BOOLEAN", "true")
_ONCE = Values(((_TRUE,),), (Column("row", "BOOLEAN"),))


def recursion(
    loop: str,
    name: str,
    base: Relational,
    term: Relational,
    limit: Limit,
    *,
    keeps_all: bool,
) -> Loop:
    """The Loop of a recursive term over `Variable(loop, 0, ...)`, which stands for W before.

    Args:
        loop: what tells this loop from others.
        name: the CTE's name.
        base: the rows of the first iteration.
        term: the rows of another, with the variable in it.
        limit: how many iterations there may be.
        keeps_all: whether it is UNION ALL.

    Errors: InvalidStatement for a recursion that depends on another one around it.
    """
    types = [[column.type for column in columns(part)] for part in (base, term)]
    assert types[0] == types[1], types
    result: Loop
    if additive(term):
        rows = Union((base, term))
        value = rows if keeps_all else Distinct(rows)
        result = Loop(loop, (name,), (value,), 0, limit)
    else:
        result = _stepwise(loop, name, base, shared(term), limit, keeps_all=keeps_all)
    return require_closed(result)


def require_closed(loop: Loop) -> Loop:
    """The loop, if it depends on no other. Errors: InvalidStatement if it does."""
    if variables(loop):
        raise InvalidStatement(
            f"{loop.names[loop.result]}, a recursion inside another that it depends on, is not"
            " supported in a materialized view",
            hint="make one of the two a view of its own, or both bindings of WITH MUTUALLY"
            " RECURSIVE",
        )
    return loop


def _stepwise(
    loop: str,
    name: str,
    base: Relational,
    term: Relational,
    limit: Limit,
    *,
    keeps_all: bool,
) -> Loop:
    """The bindings are W, R, and two of one row: `once` is there, `again` was before."""
    own = columns(base)
    news = Variable(loop, 0, name, own)
    all_ = Variable(loop, 1, name, own)
    once = Variable(loop, 2, "once", _ONCE.columns)
    again = Variable(loop, 3, "again", _ONCE.columns)
    gated = not is_empty_without_variable(term)
    if gated:
        rows = Project(news, (_TRUE,), ("row",))
        open_ = Distinct(Union((rows, once, Negate(again))))
        term = pick_columns(Product((term, open_), ()), range(len(own)))
    if keeps_all:
        first = pick_columns(Product((base, Union((_ONCE, Negate(once)))), ()), range(len(own)))
        value: Relational = Union((first, term))
        total: Relational = Union((all_, value))
    else:
        total = Distinct(Union((base, all_, term)))
        value = Union((total, Negate(all_)))
    bindings = [(f"new {name}", value), (name, total)]
    if gated or keeps_all:
        bindings.append((once.name, _ONCE))
    if gated:
        bindings.append((again.name, once))
    names, values = zip(*bindings, strict=True)
    return Loop(loop, names, values, 1, limit)


def additive(term: Relational) -> bool:  # noqa: PLR0911 - one case for each kind of node
    """Tell whether the term over a sum of rows is the sum of the terms over each."""
    match term:
        case Variable():
            return True
        case Project() | Filter() | Unnest():
            return additive(term.input)
        case Product():
            moving = [part for part in term.inputs if variables(part)]
            return len(moving) == 1 and additive(moving[0])
        case Match(kind=JoinKind.FULL | JoinKind.RIGHT):
            return False
        case Match():
            return additive(term.left) and not variables(term.right)
        case Union():
            return all(map(additive, term.inputs))
        case _:
            return False


def is_empty_without_variable(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    term: Relational,
) -> bool:
    """Tell whether the term has no rows where the variable has none."""
    match term:
        case Variable():
            return True
        case Project() | Filter() | Unnest() | Distinct() | TopK() | Window():
            return is_empty_without_variable(term.input)
        case Group():
            return bool(term.keys) and is_empty_without_variable(term.input)
        case Product():
            return any(map(is_empty_without_variable, term.inputs))
        case Join():
            return is_empty_without_variable(term.left) or is_empty_without_variable(term.right)
        case Match(kind=JoinKind.FULL):
            return is_empty_without_variable(term.left) and is_empty_without_variable(
                term.right
            )
        case Match(kind=JoinKind.RIGHT):
            return is_empty_without_variable(term.right)
        case Match():
            return is_empty_without_variable(term.left)
        case Union():
            return all(map(is_empty_without_variable, term.inputs))
        case Threshold(rule=Rule.EXCEPT | Rule.EXCEPT_ALL):
            return is_empty_without_variable(term.inputs[0])
        case Threshold(rule=Rule.INTERSECT | Rule.INTERSECT_ALL):
            return any(map(is_empty_without_variable, term.inputs))
        case _:
            return False
