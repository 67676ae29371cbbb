"""Give equal groups equal bits (rules 23, 35).

-0.0 equals 0.0, every NaN every other, and an interval of 30 days one of a month, but their
bits differ, and so do their hashes. Where equal rows are merged (the keys of Group, the rows of
Distinct and of set operations, the arguments of min and max) the result must not depend on
which row came first: such a column is replaced by one representative of each class.
(`binary_joins` compares representatives too, but its rows are unchanged.) Equal intervals print
differently, so a key of intervals has one of its original values: of the equal ones the least
by its text. The same holds for values in the result of a general aggregate: its rows are
ordered so that equal values with different bits are distinguished.
"""

from dataclasses import replace

from streams.plan.analyses.aggregates import EXTREMES
from streams.plan.analyses.equality import (
    is_shown,
    least,
    representative,
    shows_values,
    with_one_nan,
)
from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Group,
    Project,
    Relational,
    Threshold,
    TopK,
    Window,
    children,
    columns,
    with_children,
)
from streams.plan.physical import Column
from streams.plan.scalar import Ref


def canonical(node: Relational) -> Relational:
    """Replace keys by their representatives everywhere in the tree."""
    node = with_children(node, tuple(canonical(child) for child in children(node)))
    match node:
        case Distinct() if any(map(is_shown, columns(node))):
            own = columns(node)
            names = tuple(column.name for column in own)
            return _group(Group(node.input, tuple(map(_ref, range(len(own)), own)), (), names))
        case Distinct():
            return Distinct(_represented(node.input))
        case Threshold():
            return replace(node, inputs=tuple(map(_represented, node.inputs)))
        case Group():
            return _group(node)
        case Window() | TopK():
            return replace(node, keys=tuple(map(representative, node.keys)))
        case _:
            return node


def _represented(node: Relational) -> Relational:
    """The node with its columns' representatives."""
    own = columns(node)
    refs = tuple(map(_ref, range(len(own)), own))
    outputs = tuple(map(representative, refs))
    if outputs == refs:
        return node
    return Project(node, outputs, tuple(column.name for column in own))


def _ref(place: int, column: Column) -> Ref:
    return Ref(place, column.type, column.name)


def _group(node: Group) -> Relational:
    calls = tuple(map(_call, node.calls))
    shown = [place for place, key in enumerate(node.keys) if is_shown(key)]
    key_values = tuple(_call(least(node.keys[place])) for place in shown)
    more = tuple(node.names[place] for place in shown)
    keys = tuple(map(representative, node.keys))
    group = Group(node.input, keys, (*calls, *key_values), (*node.names, *more))
    if not shown:
        return group
    own, width = columns(group), len(node.names)
    places = [width + shown.index(i) if i in shown else i for i in range(width)]
    return Project(group, tuple(_ref(i, own[i]) for i in places), node.names)


def _call(call: AggregateCall) -> AggregateCall:
    if call.general:
        return call.over(with_one_nan if shows_values(call) else representative)
    if call.argument is not None and (call.function in EXTREMES or call.distinct or call.share):
        return replace(call, argument=representative(call.argument))
    return call
