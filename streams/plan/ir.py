"""The logical plan: relational operators over typed rows, as an immutable tree.

Every node is a function from multisets to a multiset, independent of time, partitions and
state. A node's columns are positions; their names are only for display. Trees are compared by
value, so equal subtrees mean equal collections and are computed once (`lower`).

Binding creates all nodes except Join and DeltaJoin. A Product, any number of inputs with
predicates over their concatenated rows, represents FROM; the passes `delta_joins` and
`binary_joins` turn each into a DeltaJoin or a tree of Join, which can be maintained. Match
represents the joins whose result depends on rows *without* a match; `lowering.outer_joins` says
how they are maintained. A Loop is a boundary: passes optimise its body separately (`passes`),
and outside treat it as a collection.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from streams.ids import CollectionId
from streams.plan.physical import Column, Rule
from streams.plan.scalar import Scalar


@dataclass(frozen=True, slots=True)
class Get:
    """A collection of the catalog, with all its columns.

    `keys` are sets of columns by which no two rows are equal, each kept by the operator that
    makes the collection (`plan.analyses.keys`). If it is `monotone` no row ever leaves it. Of a
    rebase, `rebase_of` is the name of its input.
    """

    relation: str
    collection: CollectionId
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    monotone: bool = False
    rebase_of: str = ""


@dataclass(frozen=True, slots=True)
class Values:
    """Constant rows. Their expressions have no columns and do not fail."""

    rows: tuple[tuple[Scalar, ...], ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """One output row for each input row."""

    input: "Relational"
    outputs: tuple[Scalar, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which every predicate is true."""

    input: "Relational"
    predicates: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """All combinations of the inputs' rows for which every predicate is true."""

    inputs: tuple["Relational", ...]
    predicates: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A pair of columns, of one type, that a join equates.

    NULL equals nothing, or only NULL if `null_equal`.
    """

    left: int
    right: int
    null_equal: bool


@dataclass(frozen=True, slots=True)
class Join:
    """The combinations of left's and right's rows that agree on the keys.

    Of these, the ones for which every predicate of `residual`, over both rows, is true.
    """

    left: "Relational"
    right: "Relational"
    keys: tuple[Key, ...]
    residual: tuple[Scalar, ...] = ()


@dataclass(frozen=True, slots=True)
class DeltaJoin:
    """Like Product, maintained without intermediate results; `outputs` are the columns shown.

    Predicates that equate columns of two inputs connect all of them; none can fail.
    """

    inputs: tuple["Relational", ...]
    predicates: tuple[Scalar, ...]
    outputs: tuple[int, ...]


class JoinKind(StrEnum):
    """The rows that a join returns. A pair of rows matches if every predicate is true."""

    LEFT = "LEFT"  # the pairs, and left rows without a match, extended with NULLs
    FULL = "FULL"  # the pairs, and the rows of either side without a match, with NULLs
    SEMI = "SEMI"  # left rows with a match
    ANTI = "ANTI"  # left rows without a match
    NULL_AWARE_ANTI = "NULL-AWARE ANTI"  # left rows for which every pair is false: NOT IN
    MARK = "MARK"  # left rows, and whether one matches: else NULL if for one it is unknown
    SINGLE = "SINGLE"  # as LEFT; a row with two matches is an error
    INNER = "INNER"  # to the nearest row: the pairs
    RIGHT = "RIGHT"  # to the nearest row: the pairs, and right rows without a match


PAIRED = frozenset(JoinKind) - {"SEMI", "ANTI", "NULL-AWARE ANTI", "MARK"}
"""The kinds whose rows have the columns of both sides."""


@dataclass(frozen=True, slots=True)
class Match:
    """A join in which rows without a match count, or only the nearest match (ASOF)."""

    left: "Relational"
    right: "Relational"
    kind: JoinKind
    predicates: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One term of an ORDER BY."""

    scalar: Scalar
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over one argument, or over rows (`count(*)`).

    `general` ones are computed by DuckDB over the rows of a group; they may have `more`
    arguments, an order, and a FILTER. The others are functions of accumulators, or with a
    `share` (a decimal's text) the quantile at it; the FILTER is in their argument.
    """

    function: str
    argument: Scalar | None
    type: str
    distinct: bool = False
    more: tuple[Scalar, ...] = ()
    orders: tuple[Order, ...] = ()
    condition: Scalar | None = None
    general: bool = False
    share: str = ""

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Every expression of the call."""
        first = () if self.argument is None else (self.argument,)
        last = () if self.condition is None else (self.condition,)
        return (*first, *self.more, *(order.scalar for order in self.orders), *last)

    def over(self, change: Callable[[Scalar], Scalar]) -> "AggregateCall":
        """The call with every expression changed."""
        return replace(
            self,
            argument=None if self.argument is None else change(self.argument),
            more=tuple(map(change, self.more)),
            orders=changed_orders(self.orders, change),
            condition=None if self.condition is None else change(self.condition),
        )


def changed_orders(
    orders: tuple[Order, ...], change: Callable[[Scalar], Scalar]
) -> tuple[Order, ...]:
    """An ORDER BY with every expression changed."""
    return tuple(replace(order, scalar=change(order.scalar)) for order in orders)


@dataclass(frozen=True, slots=True)
class Group:
    """GROUP BY the keys: the keys, then the aggregates. Without keys always one row."""

    input: "Relational"
    keys: tuple[Scalar, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A window's frame: `kind` is ROWS, RANGE or GROUPS.

    A bound is `UNBOUNDED PRECEDING`, `CURRENT ROW`, `PRECEDING`, ...; the latter two words
    stand behind an offset.
    """

    kind: str
    start: str
    start_offset: Scalar | None
    end: str
    end_offset: Scalar | None
    exclude: str = ""


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A window function over the rows of a partition.

    `orders` are the window's, `inner` those inside the call. The whole row breaks ties where
    they show (`lower`).
    """

    function: str
    arguments: tuple[Scalar, ...]
    type: str
    orders: tuple[Order, ...]
    frame: Frame | None
    inner: tuple[Order, ...] = ()
    condition: Scalar | None = None
    distinct: bool = False
    ignore_nulls: bool = False

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Every expression of the call."""
        frame = self.frame
        offsets = (frame.start_offset, frame.end_offset) if frame else ()
        some = [scalar for scalar in (*offsets, self.condition) if scalar is not None]
        orders = (order.scalar for order in self.orders + self.inner)
        return (*self.arguments, *orders, *some)

    def over(self, change: Callable[[Scalar], Scalar]) -> "WindowCall":
        """The call with every expression changed."""
        frame = self.frame

        def maybe(scalar: Scalar | None) -> Scalar | None:
            return None if scalar is None else change(scalar)

        return replace(
            self,
            arguments=tuple(map(change, self.arguments)),
            orders=changed_orders(self.orders, change),
            inner=changed_orders(self.inner, change),
            condition=maybe(self.condition),
            frame=frame
            and replace(
                frame,
                start_offset=maybe(frame.start_offset),
                end_offset=maybe(frame.end_offset),
            ),
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Each row of the input, with a column for each call over the rows of equal keys.

    The whole row breaks ties. Where a query names one relation several times, all must see the
    same choice: what is `shared` keeps its columns and rows, whatever one of them needs.
    """

    input: "Relational"
    keys: tuple[Scalar, ...]
    calls: tuple[WindowCall, ...]
    names: tuple[str, ...]
    shared: bool = False


@dataclass(frozen=True, slots=True)
class TopK:
    """For each key, the rows at [offset, offset + limit) in order.

    The whole row breaks ties; `shared` as of Window. `limit` is None for all the rest; where
    `percent` is set it is that share of the group's rows instead.
    """

    input: "Relational"
    keys: tuple[Scalar, ...]
    orders: tuple[Order, ...]
    offset: int
    limit: int | None
    percent: float | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once."""

    input: "Relational"


@dataclass(frozen=True, slots=True)
class Union:
    """UNION ALL of inputs with equal types."""

    inputs: tuple["Relational", ...]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Each row as often as the rule says, given how often it is in inputs of equal types."""

    inputs: tuple["Relational", ...]
    rule: Rule


@dataclass(frozen=True, slots=True)
class Unnest:
    """A row for each element of the lists in the columns `lists`, the elements behind it."""

    input: "Relational"
    lists: tuple[int, ...]
    elements: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Negate:
    """Every row as often as in the input, negated: a Union makes the counts whole again."""

    input: "Relational"


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of a Loop's binding, by number, in the previous iteration; initially empty.

    `loop` tells the loops of a query apart.
    """

    loop: str
    binding: int
    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum of iterations of a recursion, and whether needing more is an error."""

    iterations: int
    fails: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """Every binding recomputed, in order, until none changes; the last value of `result`.

    `values` have Variables for what the iteration before left; a later value contains an
    earlier one where it reads that of its own iteration.
    """

    loop: str
    names: tuple[str, ...]
    values: tuple["Relational", ...]
    result: int
    limit: Limit


Relational = (
    Get
    | Values
    | Project
    | Filter
    | Product
    | Join
    | DeltaJoin
    | Match
    | Group
    | Window
    | TopK
    | Distinct
    | Union
    | Threshold
    | Unnest
    | Negate
    | Variable
    | Loop
)

_MARKED = Column("mark", "BOOLEAN")


def columns(  # noqa: C901, PLR0911, PLR0912 - one case a node
    node: Relational,
) -> tuple[Column, ...]:
    """The columns of the node's rows."""
    match node:
        case Get() | Values() | Variable():
            return node.columns
        case Loop():
            return columns(node.values[node.result])
        case Project():
            return _named(node.names, tuple(output.type for output in node.outputs))
        case Group():
            types = tuple(key.type for key in node.keys)
            return _named(node.names, types + tuple(call.type for call in node.calls))
        case Window():
            added = _named(node.names, tuple(call.type for call in node.calls))
            return columns(node.input) + added
        case Filter() | Distinct() | TopK() | Negate():
            return columns(node.input)
        case Product():
            return tuple(column for part in node.inputs for column in columns(part))
        case Join():
            return columns(node.left) + columns(node.right)
        case DeltaJoin():
            every = tuple(column for part in node.inputs for column in columns(part))
            return tuple(every[place] for place in node.outputs)
        case Match() if node.kind in PAIRED:
            return columns(node.left) + columns(node.right)
        case Match():
            return columns(node.left) + ((_MARKED,) if node.kind is JoinKind.MARK else ())
        case Threshold(rule=Rule.MARK | Rule.SINGLE):
            return (*columns(node.inputs[0]), _MARKED)
        case Union() | Threshold():
            return columns(node.inputs[0])
        case Unnest():
            return columns(node.input) + node.elements


def _named(names: tuple[str, ...], types: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(Column(n, t) for n, t in zip(names, types, strict=True))


def children(node: Relational) -> tuple[Relational, ...]:
    """The node's inputs in order; the body of a Loop is not among them."""
    match node:
        case Get() | Values() | Variable() | Loop():
            return ()
        case Project() | Filter() | Group() | Window() | TopK() | Distinct() | Unnest():
            return (node.input,)
        case Negate():
            return (node.input,)
        case Product() | DeltaJoin() | Union() | Threshold():
            return node.inputs
        case Join() | Match():
            return (node.left, node.right)


def with_children(node: Relational, inputs: tuple[Relational, ...]) -> Relational:
    """The same node over other inputs; itself if they are equal."""
    if inputs == children(node):
        return node
    match node:
        case Get() | Values() | Variable() | Loop():
            return node
        case Project() | Filter() | Group() | Window() | TopK() | Distinct() | Unnest():
            return replace(node, input=inputs[0])
        case Negate():
            return replace(node, input=inputs[0])
        case Product() | DeltaJoin() | Union() | Threshold():
            return replace(node, inputs=inputs)
        case Join() | Match():
            return replace(node, left=inputs[0], right=inputs[1])


def shared(node: Relational) -> Relational:
    """The tree for several readers, who must see one choice among ties."""
    node = with_children(node, tuple(shared(child) for child in children(node)))
    return replace(node, shared=True) if isinstance(node, Window | TopK) else node


def parts(node: Relational) -> tuple[Relational, ...]:
    """The parts of the node: its inputs, or the values of a loop's body."""
    return node.values if isinstance(node, Loop) else children(node)


def with_parts(node: Relational, new: tuple[Relational, ...]) -> Relational:
    """The same node with other parts."""
    return replace(node, values=new) if isinstance(node, Loop) else with_children(node, new)


def gets(node: Relational) -> tuple[Get, ...]:
    """The collections the tree reads, each once, in order of first appearance."""
    if isinstance(node, Get):
        return (node,)
    unique_gets = dict.fromkeys(get for part in parts(node) for get in gets(part))
    return tuple(unique_gets)


def variables(node: Relational) -> frozenset[str]:
    """The loops around the tree whose iteration it depends on."""
    own = frozenset({node.loop}) if isinstance(node, Variable) else frozenset()
    inside = own.union(*map(variables, parts(node)))
    return inside - {node.loop} if isinstance(node, Loop) else inside
