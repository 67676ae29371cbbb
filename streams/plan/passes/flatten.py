"""Make one Product of products that are inputs of products.

`a JOIN b ... JOIN c ...` binds as a product in a product; the joins may then be taken in an
order in which keys connect them. A subquery that only picks columns is no border either.
Leaves behind: no input of a Product is a Product, nor a pure choice of columns of one.
"""

from streams.plan.ir import Product, Project, Relational, children, columns, with_children
from streams.plan.scalar import Ref, Scalar, conjuncts, shift, substitute


def flatten(node: Relational) -> Relational:
    """Flatten every product in the tree."""
    node = with_children(node, tuple(flatten(child) for child in children(node)))
    return _flat(node) if isinstance(node, Product) else node


def _flat(node: Product) -> Relational:
    parts: list[Relational] = []
    predicates: list[Scalar] = []
    outputs: list[Scalar] = []
    start = 0
    for part in node.inputs:
        inner, picked = _opened(part)
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


def _opened(part: Relational) -> tuple[Product, tuple[Scalar, ...]]:
    """The part as a product, and which of the product's columns the part has."""
    match part:
        case Product():
            return part, _all(part)
        case Project(input=Product() as inner) if all(isinstance(o, Ref) for o in part.outputs):
            return inner, part.outputs
        case _:
            return Product((part,), ()), _all(part)


def _all(part: Relational) -> tuple[Scalar, ...]:
    return tuple(Ref(i, c.type, c.name) for i, c in enumerate(columns(part)))
