"""Make columns of what Group computes with, and Distinct of a Group that computes nothing.

Leaves behind: the keys and arguments of every Group are columns of its input, each computed
once however often it is used; every Group has an aggregate.
"""

from dataclasses import replace

from streams.plan.ir import (
    AggregateCall,
    Distinct,
    Group,
    Project,
    Relational,
    children,
    with_children,
)
from streams.plan.scalar import Literal, Ref, Scalar

_NOTHING = Literal("true", "BOOLEAN", "true")


def groups(node: Relational) -> Relational:
    """Rewrite every Group in the tree."""
    node = with_children(node, tuple(groups(child) for child in children(node)))
    return _columns(node) if isinstance(node, Group) else node


def _columns(node: Group) -> Relational:
    if not node.calls:
        return Distinct(Project(node.input, node.keys, node.names))
    arguments = tuple(call.argument for call in node.calls if call.argument is not None)
    outputs = tuple(dict.fromkeys(node.keys + arguments)) or (_NOTHING,)
    names = tuple(_name(output, node) for output in outputs)

    def column(scalar: Scalar) -> Ref:
        place = outputs.index(scalar)
        return Ref(place, scalar.type, names[place])

    def moved(call: AggregateCall) -> AggregateCall:
        return call if call.argument is None else replace(call, argument=column(call.argument))

    return Group(
        Project(node.input, outputs, names),
        tuple(column(key) for key in node.keys),
        tuple(moved(call) for call in node.calls),
        node.names,
    )


def _name(scalar: Scalar, node: Group) -> str:
    if isinstance(scalar, Ref):
        return scalar.name
    return node.names[node.keys.index(scalar)] if scalar in node.keys else "argument"
