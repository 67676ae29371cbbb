"""Drop every column that nobody reads, as early as possible.

Narrow rows are cheap to move and to keep, and an expression that nobody reads must not fail
(rule 38). Leaves behind: every operator's input has just the columns the operator needs and
its own output needs, except where all of them make up the row's identity (Distinct, the keys
of Group).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from streams.plan.ir import (
    Distinct,
    Filter,
    Get,
    Group,
    Join,
    Key,
    Product,
    Project,
    Relational,
    TopK,
    Union,
    Values,
    Window,
    changed_orders,
    columns,
)
from streams.plan.scalar import Literal, Ref, Scalar, refs, remap

# SQL has no rows without columns: where only the number of rows matters, they have this one.
_NOTHING = Literal("true", "BOOLEAN", "true")


def prune(node: Relational) -> Relational:
    """Drop unread columns below the root, whose columns all stay."""
    return _exactly(node, tuple(range(len(columns(node)))))


def _exactly(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
    node: Relational, needed: tuple[int, ...]
) -> Relational:
    """The node with the needed columns, in that order, and no others."""
    match node:
        case Get() | Values():
            return pick(node, needed)
        case Project():
            return _project(node, needed)
        case Filter():
            return _filter(node, needed)
        case Product():
            return _product(node, needed)
        case Join():
            return _join(node, needed)
        case Group():
            return _group(node, needed)
        case Window():
            return _window(node, needed)
        case TopK():
            return _top(node, needed)
        case Distinct():
            everything = tuple(range(len(columns(node))))
            return pick(Distinct(_exactly(node.input, everything)), needed)
        case Union():
            return Union(tuple(_exactly(part, needed) for part in node.inputs))


def pick(node: Relational, positions: Sequence[int]) -> Relational:
    """The columns at these positions; the node itself if that is all of them in order."""
    own = columns(node)
    if tuple(positions) == tuple(range(len(own))):
        return node
    if not positions:
        return Project(node, (_NOTHING,), ("row",))
    outputs = tuple(Ref(i, own[i].type, own[i].name) for i in positions)
    return Project(node, outputs, tuple(own[i].name for i in positions))


def _project(node: Project, needed: tuple[int, ...]) -> Relational:
    if not needed:
        return Project(_exactly(node.input, ()), (_NOTHING,), ("row",))
    outputs = tuple(node.outputs[i] for i in needed)
    names = tuple(node.names[i] for i in needed)
    read = _read(outputs)
    source = _exactly(node.input, read)
    return Project(source, _moved(outputs, read), names)


def _filter(node: Filter, needed: tuple[int, ...]) -> Relational:
    read = _read(node.predicates, needed)
    kept = Filter(_exactly(node.input, read), _moved(node.predicates, read))
    return pick(kept, [read.index(i) for i in needed])


def _product(node: Product, needed: tuple[int, ...]) -> Relational:
    read = _read(node.predicates, needed)
    parts, positions, start = [], dict[int, int](), 0
    width = 0
    for part in node.inputs:
        size = len(columns(part))
        own = tuple(i for i in read if start <= i < start + size)
        parts.append(_exactly(part, tuple(i - start for i in own)))
        positions |= {i: width + place for place, i in enumerate(own)}
        width += max(len(own), 1)
        start += size
    predicates = tuple(remap(predicate, positions) for predicate in node.predicates)
    return pick(Product(tuple(parts), predicates), [positions[i] for i in needed])


def _join(node: Join, needed: tuple[int, ...]) -> Relational:
    width = len(columns(node.left))
    keys_left, keys_right = (
        {key.left for key in node.keys},
        {key.right for key in node.keys},
    )
    left = tuple(sorted({i for i in needed if i < width} | keys_left))
    right = tuple(sorted({i - width for i in needed if i >= width} | keys_right))
    keys = tuple(
        Key(left.index(key.left), right.index(key.right), key.null_equal) for key in node.keys
    )
    joined = Join(_exactly(node.left, left), _exactly(node.right, right), keys)
    return pick(
        joined,
        [left.index(i) if i < width else len(left) + right.index(i - width) for i in needed],
    )


def _group(node: Group, needed: tuple[int, ...]) -> Relational:
    width = len(node.keys)
    kept = sorted({i - width for i in needed if i >= width})
    if not kept and not node.keys:
        kept = [0]  # a row without columns again
    calls = tuple(node.calls[i] for i in kept)
    arguments = tuple(scalar for call in calls for scalar in call.scalars)
    read = _read(node.keys + arguments)
    names = node.names[:width] + tuple(node.names[width + i] for i in kept)
    moved = tuple(call.over(partial(_move, read=read)) for call in calls)
    grouped = Group(_exactly(node.input, read), _moved(node.keys, read), moved, names)
    return pick(grouped, [i if i < width else width + kept.index(i - width) for i in needed])


def _window(node: Window, needed: tuple[int, ...]) -> Relational:
    width = len(columns(node.input))
    kept = sorted({i - width for i in needed if i >= width})
    if not kept:
        return _exactly(node.input, needed)
    calls = tuple(node.calls[i] for i in kept)
    scalars = node.keys + tuple(scalar for call in calls for scalar in call.scalars)
    read = _read(scalars, [i for i in needed if i < width])
    moved = Window(
        _exactly(node.input, read),
        _moved(node.keys, read),
        tuple(call.over(partial(_move, read=read)) for call in calls),
        tuple(node.names[i] for i in kept),
    )
    size = max(len(read), 1)  # rows without columns have one
    return pick(
        moved, [read.index(i) if i < width else size + kept.index(i - width) for i in needed]
    )


def _top(node: TopK, needed: tuple[int, ...]) -> Relational:
    scalars = node.keys + tuple(order.scalar for order in node.orders)
    read = _read(scalars, needed)
    moved = replace(
        node,
        input=_exactly(node.input, read),
        keys=_moved(node.keys, read),
        orders=changed_orders(node.orders, partial(_move, read=read)),
    )
    return pick(moved, [read.index(i) for i in needed])


def _read(scalars: Sequence[Scalar], others: Sequence[int] = ()) -> tuple[int, ...]:
    return tuple(sorted({i for scalar in scalars for i in refs(scalar)} | set(others)))


def _move(scalar: Scalar, read: Sequence[int]) -> Scalar:
    return remap(scalar, {old: new for new, old in enumerate(read)})


def _moved(scalars: Sequence[Scalar], read: Sequence[int]) -> tuple[Scalar, ...]:
    return tuple(_move(scalar, read) for scalar in scalars)
