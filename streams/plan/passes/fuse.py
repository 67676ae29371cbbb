"""Fuse projections over projections, and filters over filters.

Leaves behind: between other operators at most one Project over one Filter, unless putting
one into the other would compute something costly twice; no Project that changes nothing.
"""

from dataclasses import replace

from streams.plan.ir import Filter, Project, Relational, children, columns, with_children
from streams.plan.scalar import Call, Form, Ref, Scalar, conjuncts, substitute, walk


def fuse(node: Relational) -> Relational:
    """Fuse from the leaves up."""
    return _fused(with_children(node, tuple(fuse(child) for child in children(node))))


def _fused(node: Relational) -> Relational:
    match node:
        case Project(input=Project() as inner) if _cheap(node.outputs, inner):
            outputs = tuple(substitute(output, inner.outputs) for output in node.outputs)
            return _fused(replace(node, input=inner.input, outputs=outputs))
        case Filter(input=Filter() as inner):
            return Filter(inner.input, inner.predicates + node.predicates)
        case Filter(input=Project() as inner) if _cheap(node.predicates, inner):
            moved = tuple(
                part
                for predicate in node.predicates
                for part in conjuncts(substitute(predicate, inner.outputs))
            )
            return _fused(replace(inner, input=_fused(Filter(inner.input, moved))))
        case Project() if _identity(node):
            return node.input
        case _:
            return node


def _cheap(scalars: tuple[Scalar, ...], inner: Project) -> bool:
    """Tell whether no computed column of `inner` would be computed more than once.

    A cast counts as no computation.
    """
    uses = [0] * len(inner.outputs)
    for scalar in scalars:
        for node in walk(scalar):
            if isinstance(node, Ref):
                uses[node.index] += 1
    return all(
        count <= 1 or _trivial(output)
        for count, output in zip(uses, inner.outputs, strict=True)
    )


def _trivial(scalar: Scalar) -> bool:
    if isinstance(scalar, Call):
        return scalar.form is Form.CAST and _trivial(scalar.arguments[0])
    return True


def _identity(node: Project) -> bool:
    own = columns(node.input)
    return len(own) == len(node.outputs) and all(
        isinstance(output, Ref) and output.index == i for i, output in enumerate(node.outputs)
    )
