"""Drop every column that is not read, as early as possible.

Narrow rows are cheap to send and to store, and an expression or a scalar subquery that nothing
reads must not fail (rule 38). Leaves behind: every operator's input has only the columns that
the operator and its output need, except where all columns make up the row's identity (Distinct,
set operations, the keys of Group). A subtree that occurs several times keeps in every copy the
columns that any reader needs, so that the copies stay equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from streams.plan.analyses.keys import is_single
from streams.plan.analyses.shared_subplans import count_stateful, repeated_subtrees
from streams.plan.ir import (
    PAIRED,
    DeltaJoin,
    Distinct,
    Filter,
    Get,
    Group,
    Join,
    JoinKind,
    Key,
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
    changed_orders,
    children,
    columns,
    with_children,
)
from streams.plan.scalar import Literal, Ref, Scalar, refs, remap

# SQL has no rows without columns: where only the number of rows matters, they have this one.
_NOTHING = Literal("true", "BOOLEAN", "true")


def prune(node: Relational) -> Relational:
    """Drop unread columns below the root; the root keeps all its columns."""
    required: dict[Relational, set[int]] = {
        subtree: set() for subtree in repeated_subtrees(node)
    }
    if required:
        _Pruner(required).whole(node)  # to know what all readers of each copy ask for
    return _Pruner(required).whole(node)


def pick_columns(node: Relational, positions: Sequence[int]) -> Relational:
    """The columns at these positions; the node itself if that is all of them in order."""
    own = columns(node)
    if tuple(positions) == tuple(range(len(own))):
        return node
    if not positions:
        return Project(node, (_NOTHING,), ("row",))
    outputs = tuple(Ref(i, own[i].type, own[i].name) for i in positions)
    return Project(node, outputs, tuple(own[i].name for i in positions))


@dataclass(frozen=True, slots=True)
class _Pruner:
    """The columns required of subtrees that occur several times: every copy provides all.

    But for a copy that does without an operator when it gives no more than it must.
    """

    asked: dict[Relational, set[int]]

    def exactly(self, node: Relational, needed: tuple[int, ...]) -> Relational:
        """The node with the needed columns, in that order, and no others."""
        if not self.asked or node not in self.asked:  # to hash a tree takes a walk
            return self._pruned(node, needed)
        self.asked[node].update(needed)
        wide = tuple(sorted(self.asked[node]))
        pruned, own = self._pruned(node, wide), self._pruned(node, needed)
        if wide == needed or count_stateful(own) < count_stateful(pruned):
            return own
        return pick_columns(pruned, [wide.index(i) for i in needed])

    def whole(self, node: Relational) -> Relational:
        """The node with all its columns."""
        return self.exactly(node, tuple(range(len(columns(node)))))

    def _pruned(  # noqa: C901, PLR0911, PLR0912 - one case for each kind of node
        self, node: Relational, needed: tuple[int, ...]
    ) -> Relational:
        match node:
            case Get() | Values() | Variable() | Loop():
                return pick_columns(node, needed)
            case Negate():
                return Negate(self.exactly(node.input, needed))
            case Project():
                return self._project(node, needed)
            case Filter():
                return self._filter(node, needed)
            case Product():
                return self._product(node, needed)
            case Join():
                return self._join(node, needed)
            case DeltaJoin():
                return self._delta(node, needed)
            case Match():
                return self._match(node, needed)
            case Unnest():
                return self._unnest(node, needed)
            case Group():
                return self._group(node, needed)
            case Distinct() | Threshold():
                whole = tuple(self.whole(part) for part in children(node))
                return pick_columns(with_children(node, whole), needed)
            case Window():
                return self._window(node, needed)
            case TopK():
                return self._top(node, needed)
            case Union():
                return Union(tuple(self.exactly(part, needed) for part in node.inputs))

    def _project(self, node: Project, needed: tuple[int, ...]) -> Relational:
        if not needed:
            return Project(self.exactly(node.input, ()), (_NOTHING,), ("row",))
        outputs = tuple(node.outputs[i] for i in needed)
        names = tuple(node.names[i] for i in needed)
        read = _read(outputs)
        source = self.exactly(node.input, read)
        return Project(source, _moved(outputs, read), names)

    def _filter(self, node: Filter, needed: tuple[int, ...]) -> Relational:
        read = _read(node.predicates, needed)
        filtered = Filter(self.exactly(node.input, read), _moved(node.predicates, read))
        return pick_columns(filtered, [read.index(i) for i in needed])

    def _product(self, node: Product, needed: tuple[int, ...]) -> Relational:
        parts, predicates, positions = self._inputs(node, needed)
        return pick_columns(Product(parts, predicates), [positions[i] for i in needed])

    def _delta(self, node: DeltaJoin, needed: tuple[int, ...]) -> Relational:
        shown = tuple(node.outputs[i] for i in needed or (0,))
        parts, predicates, positions = self._inputs(node, shown)
        join = DeltaJoin(parts, predicates, tuple(positions[i] for i in shown))
        return pick_columns(join, range(len(needed)))

    def _inputs(
        self, node: Product | DeltaJoin, needed: tuple[int, ...]
    ) -> tuple[tuple[Relational, ...], tuple[Scalar, ...], dict[int, int]]:
        """The inputs and predicates, and where a column of the row of all is then."""
        read = _read(node.predicates, needed)
        parts, positions, start = [], dict[int, int](), 0
        width = 0
        for part in node.inputs:
            size = len(columns(part))
            own = tuple(i for i in read if start <= i < start + size)
            parts.append(self.exactly(part, tuple(i - start for i in own)))
            positions |= {i: width + place for place, i in enumerate(own)}
            width += max(len(own), 1)
            start += size
        predicates = tuple(remap(predicate, positions) for predicate in node.predicates)
        return tuple(parts), predicates, positions

    def _match(self, node: Match, needed: tuple[int, ...]) -> Relational:
        width = len(columns(node.left))
        if all(i < width for i in needed) and _adds_columns(node):
            return self.exactly(node.left, needed)
        paired = node.kind in PAIRED
        read = _read(node.predicates, needed if paired else [i for i in needed if i < width])
        left = tuple(i for i in read if i < width)
        right = tuple(i - width for i in read if i >= width)
        ours = max(len(left), 1)
        places = {i: place for place, i in enumerate(left)}
        positions = places | {i + width: ours + place for place, i in enumerate(right)}
        moved = tuple(remap(predicate, positions) for predicate in node.predicates)
        pruned = Match(
            self.exactly(node.left, left), self.exactly(node.right, right), node.kind, moved
        )
        shown = positions if paired else places | {width: ours}
        return pick_columns(pruned, [shown[i] for i in needed])

    def _unnest(self, node: Unnest, needed: tuple[int, ...]) -> Relational:
        width = len(columns(node.input))
        read = tuple(sorted({i for i in needed if i < width} | set(node.lists)))
        lists = tuple(read.index(place) for place in node.lists)
        taken = Unnest(self.exactly(node.input, read), lists, node.elements)
        return pick_columns(
            taken, [read.index(i) if i < width else len(read) + i - width for i in needed]
        )

    def _join(self, node: Join, needed: tuple[int, ...]) -> Relational:
        width = len(columns(node.left))
        keys_left, keys_right = (
            {key.left for key in node.keys},
            {key.right for key in node.keys},
        )
        read = _read(node.residual, needed)
        left = tuple(sorted({i for i in read if i < width} | keys_left))
        right = tuple(sorted({i - width for i in read if i >= width} | keys_right))
        keys = tuple(
            Key(left.index(key.left), right.index(key.right), key.null_equal)
            for key in node.keys
        )
        ours = max(len(left), 1)
        positions = {i: place for place, i in enumerate(left)}
        positions |= {i + width: ours + place for place, i in enumerate(right)}
        residual = tuple(remap(predicate, positions) for predicate in node.residual)
        joined = Join(
            self.exactly(node.left, left), self.exactly(node.right, right), keys, residual
        )
        return pick_columns(joined, [positions[i] for i in needed])

    def _group(self, node: Group, needed: tuple[int, ...]) -> Relational:
        width = len(node.keys)
        places = sorted({i - width for i in needed if i >= width})
        if not places and not node.keys:
            places = [0]  # a row without columns again
        calls = tuple(node.calls[i] for i in places)
        arguments = tuple(scalar for call in calls for scalar in call.scalars)
        read = _read(node.keys + arguments)
        names = node.names[:width] + tuple(node.names[width + i] for i in places)
        moved = tuple(call.over(partial(_move, read=read)) for call in calls)
        grouped = Group(self.exactly(node.input, read), _moved(node.keys, read), moved, names)
        return pick_columns(
            grouped, [i if i < width else width + places.index(i - width) for i in needed]
        )

    def _window(self, node: Window, needed: tuple[int, ...]) -> Relational:
        width = len(columns(node.input))
        places = sorted({i - width for i in needed if i >= width})
        if not places:
            return self.exactly(node.input, needed)
        calls = tuple(node.calls[i] for i in places)
        scalars = node.keys + tuple(scalar for call in calls for scalar in call.scalars)
        read = _read(scalars, [i for i in needed if i < width])
        if node.shared:
            read, places, calls = tuple(range(width)), list(range(len(node.calls))), node.calls
        moved = Window(
            self.exactly(node.input, read),
            _moved(node.keys, read),
            tuple(call.over(partial(_move, read=read)) for call in calls),
            tuple(node.names[i] for i in places),
            node.shared,
        )
        size = max(len(read), 1)  # rows without columns have one
        return pick_columns(
            moved,
            [read.index(i) if i < width else size + places.index(i - width) for i in needed],
        )

    def _top(self, node: TopK, needed: tuple[int, ...]) -> Relational:
        if not (needed or node.keys or node.offset) and node.limit == 1:
            # Whether there is a row, as EXISTS asks: one distinct row without columns.
            return Distinct(self.exactly(node.input, ()))
        scalars = node.keys + tuple(order.scalar for order in node.orders)
        read = tuple(range(len(columns(node)))) if node.shared else _read(scalars, needed)
        moved = replace(
            node,
            input=self.exactly(node.input, read),
            keys=_moved(node.keys, read),
            orders=changed_orders(node.orders, partial(_move, read=read)),
        )
        return pick_columns(moved, [read.index(i) for i in needed])


def _adds_columns(node: Match) -> bool:
    """Tell whether the join only adds columns to left's rows, of which there are as many.

    A scalar subquery that is not read need not have one row.
    """
    return node.kind in {JoinKind.MARK, JoinKind.SINGLE} or (
        node.kind is JoinKind.LEFT and is_single(node)
    )


def _read(scalars: Sequence[Scalar], others: Sequence[int] = ()) -> tuple[int, ...]:
    return tuple(sorted({i for scalar in scalars for i in refs(scalar)} | set(others)))


def _move(scalar: Scalar, read: Sequence[int]) -> Scalar:
    return remap(scalar, {old: new for new, old in enumerate(read)})


def _moved(scalars: Sequence[Scalar], read: Sequence[int]) -> tuple[Scalar, ...]:
    return tuple(_move(scalar, read) for scalar in scalars)
