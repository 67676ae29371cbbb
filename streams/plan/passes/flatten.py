"""Make one Product of products that are inputs of products.

`a JOIN b ... JOIN c ...` binds as a product in a product; in one Product the joins can be
ordered so that keys connect them. A projection of columns is moved above the Product, so that
inputs which differ only in the columns read are equal; `prune_columns` restores it. A subtree
that the plan has several times stays one input, to be joined once. Leaves behind: no other
input of a Product is a Product, and none is a projection of columns only.
"""

from streams.plan.analyses.shared_subplans import repeated_subtrees
from streams.plan.ir import Product, Project, Relational, children, columns, with_children
from streams.plan.scalar import Ref, Scalar, conjuncts, shift, substitute


def flatten(node: Relational) -> Relational:
    """Flatten every product in the tree."""
    shared = frozenset(_flattened(subtree, frozenset()) for subtree in repeated_subtrees(node))
    return _flattened(node, shared)


def _flattened(node: Relational, opaque: frozenset[Relational]) -> Relational:
    node = with_children(node, tuple(_flattened(child, opaque) for child in children(node)))
    return _flat(node, opaque) if isinstance(node, Product) else node


def _flat(node: Product, opaque: frozenset[Relational]) -> Relational:
    parts: list[Relational] = []
    predicates: list[Scalar] = []
    outputs: list[Scalar] = []
    start = 0
    for part in node.inputs:
        inner, picked = _opened(part, opaque)
        parts += inner.inputs
        predicates += [shift(predicate, start) for predicate in inner.predicates]
        outputs += [shift(output, start) for output in picked]
        start += len(columns(inner))
    flat = tuple(outputs)
    for predicate in node.predicates:
        predicates += conjuncts(substitute(predicate, flat))
    product = Product(tuple(parts), tuple(predicates))
    names = tuple(column.name for column in columns(node))
    whole = [output.index for output in flat if isinstance(output, Ref)]
    if whole == list(range(start)):
        return product
    return Project(product, flat, names)


def _opened(
    part: Relational, opaque: frozenset[Relational]
) -> tuple[Product, tuple[Scalar, ...]]:
    """The part as a product, and which of the product's columns the part has."""
    inner, picked = part, _all(part)
    if (
        isinstance(part, Project)
        and part not in opaque
        and all(isinstance(o, Ref) for o in part.outputs)
    ):
        inner, picked = part.input, part.outputs
    if isinstance(inner, Product) and not {part, inner} & opaque:
        return inner, picked
    return Product((inner,), ()), picked


def _all(part: Relational) -> tuple[Scalar, ...]:
    return tuple(Ref(i, c.type, c.name) for i, c in enumerate(columns(part)))
