"""Prepares the body of a Loop: separates the parts that do not change between iterations.

Subtrees without a variable are the same in every iteration: they are computed outside, once and
by all tasks in parallel, and the loop reads them. A join with residual predicates becomes a
join and a filter, since a pair belongs to the later iteration of its two rows.

The multiplicity of a row that grows with each iteration would exceed 64 bits long before a
limit ends the loop. So multiplicities of a binding are checked unless the plan bounds them.
"""

from dataclasses import dataclass, field, replace

from streams.ids import CollectionId
from streams.plan.ir import (
    Distinct,
    Filter,
    Get,
    Group,
    Join,
    Loop,
    Match,
    Project,
    Relational,
    Threshold,
    Variable,
    children,
    columns,
    variables,
    with_children,
)
from streams.plan.lowering.outer_joins import expand
from streams.plan.passes.fuse import fuse
from streams.plan.physical import Import, Rule


@dataclass(frozen=True, slots=True)
class LoopBody:
    """The bindings' values over `imports`: first what the `inputs` hold, then the variables."""

    inputs: tuple[Relational, ...]
    imports: tuple[Import, ...]
    values: tuple[Relational, ...]


def split(loop: Loop) -> LoopBody:
    """Split a loop into the parts that are computed once and those that are repeated."""
    cutter = _Cutter()
    values = tuple(cutter.cut(_bounded(_simple(value))) for value in loop.values)
    imports = [Import(_input(number), columns(node)) for node, number in cutter.inputs.items()]
    own = [Import(_variable(n), columns(value)) for n, value in enumerate(loop.values)]
    return LoopBody(tuple(cutter.inputs), (*imports, *own), values)


def _input(number: int) -> CollectionId:
    return CollectionId(f"input {number}")


def _variable(number: int) -> CollectionId:
    return CollectionId(f"variable {number}")


def _bounded(value: Relational) -> Relational:
    """The value, its counts watched unless they are known to be small."""
    root = value
    while isinstance(root, Project | Filter):
        root = root.input
    is_bounded = isinstance(root, Distinct | Group) or not variables(value)
    return value if is_bounded else Threshold((value,), Rule.BOUNDED)


def _simple(node: Relational) -> Relational:
    """The tree without any Match, and without joins that judge."""
    if isinstance(node, Match):
        node = expand(node)
    node = with_children(node, tuple(map(_simple, children(node))))
    if isinstance(node, Join) and node.residual:
        return Filter(replace(node, residual=()), node.residual)
    return fuse(node) if isinstance(node, Project | Filter) else node


@dataclass(slots=True)
class _Cutter:
    """The inputs found so far, and their numbers."""

    inputs: dict[Relational, int] = field(default_factory=dict)

    def cut(self, node: Relational) -> Relational:
        """The tree with a Get for each variable and for each greatest subtree without any."""
        if isinstance(node, Variable):
            return Get(node.name, _variable(node.binding), node.columns)
        if not variables(node):
            number = self.inputs.setdefault(node, len(self.inputs))
            return Get(f"input {number}", _input(number), columns(node))
        return with_children(node, tuple(map(self.cut, children(node))))
