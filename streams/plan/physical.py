"""The physical plan of a dataflow, which every engine steps.

A `Dataflow` is data: immutable, in JSON on the command topic, the same for the Spark replica
and for the in-process engine. It is a list of nodes in topological order; node i may only
refer to nodes before it.

**Collections between nodes** have columns `c0 .. cn` of the types in `Dataflow.types[i]`
(DuckDB's names of types), and every update of theirs carries `time` and `diff`. Expressions
are DuckDB SQL over `c0 .. cn` of the node's input, already bound and with explicit casts.

**Levels** place the exchanges. Level 0 runs where the imports are read, without any
partitioning. A node at level k >= 1 runs on bucket b of `buckets`, in round k. An edge from a
lower level to a higher one is an exchange: by the hash of the consumer's key where it has one,
otherwise the updates stay in the bucket of the task that produced them. An edge inside a level
is a plain call: the planner ensures that the rows are already partitioned by the key.

**Errors** are not in the columns. A row whose expression fails becomes an update of the
dataflow's error collection with the row's time and diff, in whichever node it fails, and is
sent directly to the output, as are errors of the imports.
"""

from dataclasses import dataclass
from enum import StrEnum

from streams.ids import CollectionId
from streams.plan.window_frames import Reach
from streams.trace.kernel.functions import Function

NodeId = int


@dataclass(frozen=True, slots=True)
class Column:
    """A named column of a relation and its DuckDB type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar expression in DuckDB SQL over `c0 .. cn`, and the type of its value.

    `label` is the expression as a person would write it, used in error rows: it is part of an
    error's identity and so must be a function of the plan alone (rule 38).
    """

    sql: str
    type: str
    label: str


@dataclass(frozen=True, slots=True)
class Import:
    """A collection that the dataflow reads, and its columns in order."""

    collection: CollectionId
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SortKey:
    """A term of the order of an answer: the position of a column of the plan's output."""

    position: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Source:
    """The updates of one import. Level 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Constant:
    """Rows that are there from the dataflow's as_of on: SQL text of a VALUES list or SELECT.

    Level 1 or above, because nothing tells the tasks of level 0 apart: the step at as_of emits
    the rows from exactly one bucket, that of no key, though no update arrives (as rule 42
    does).
    """

    sql: str


@dataclass(frozen=True, slots=True)
class Linear:
    """Keep the rows for which every predicate is true, then compute the outputs."""

    input: NodeId
    predicates: tuple[Expression, ...]
    outputs: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison (`<`, `<=`, `=`, `>=`, `>`) of the logical time with a value of the row.

    The value is a timestamp, or a BIGINT in milliseconds since 1970. NULL: never true.
    """

    comparison: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Temporal:
    """Like Linear, while the logical time is within all bounds: rows appear and expire.

    A row that fails in a predicate, a bound or an output is an error as long as nothing else
    says that it is not there. With `keys` rows are brought together by these outputs; else they
    are spread evenly.
    """

    input: NodeId
    predicates: tuple[Expression, ...]
    bounds: tuple[Bound, ...]
    outputs: tuple[Expression, ...]
    keys: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EmitOnClose:
    """The input's rows once their windows have closed: each appears once, never retracted.

    The input is filtered by `mz_now() <` the end in column `end`, so a row leaves it at the end
    of its window, and appears in the output then. Windows that had ended by `born`, the first
    time of the dataflow, leave the input at `born` + 1, and are in the output from `born` on;
    without it nothing is. Of the input's columns the first ones come out.
    """

    input: NodeId
    end: int
    born: int | None


@dataclass(frozen=True, slots=True)
class Join:
    """Inner join on equality of columns: left's columns, then right's.

    `keys` are the positions on either side, pairwise of the same type. A NULL matches nothing,
    except at the positions where `null_equal` is true. Without keys every pair matches, and
    all rows meet in one bucket. Of the pairs that match, those are kept for which every
    expression of `residual`, over the columns of both sides, is true.
    """

    left: NodeId
    right: NodeId
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_equal: tuple[bool, ...]
    residual: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Asof:
    """Left's rows beside the rows of right that agree on the keys and in whose range they are.

    Keys are as of Join. A row on the left has a `point`, one on the right a `start` and an
    `end`: positions of columns, for which `sorts` are SQL of sort keys with an empty text
    behind them. A NULL for an end is behind every other value. The start is within the range
    and the end is not; if it is not `closed`, the other way round. Of right's rows of one key
    no two ranges overlap. `orders` are the arguments of `create_sort_key` that put the rows of
    either side in order: first by point or start, and no two different rows are equal. The end
    is NULL in what comes out.
    """

    left: NodeId
    right: NodeId
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_equal: tuple[bool, ...]
    point: int
    start: int
    end: int
    sorts: tuple[str, str, str]
    orders: tuple[str, str]
    closed: bool


@dataclass(frozen=True, slots=True)
class Arrange:
    """Keep the input's rows by key, for every Lookup that reads them, and hand its updates on.

    Rows with a NULL in a key match nothing and go, except where `null_equal` is true.
    """

    input: NodeId
    keys: tuple[int, ...]
    null_equal: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """One step of a delta join: a stream's updates beside the arranged rows of their key.

    The stream's columns, then those of `arranged`, an Arrange whose keys `keys` of the stream
    stand for. An update at t meets what there was before t, and if not `strict` also what came
    at t; so it happens at t. The state is the Arrange's.
    """

    stream: NodeId
    arranged: NodeId
    keys: tuple[int, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function` over one column of the input (None for count(*)); `type` is the result's.

    `other` is the second column of a function of pairs. A quantile has a `share` between 0 and
    1, a decimal's text. Where `sql` is not empty, DuckDB
    computes the aggregate by that text, over the columns `reads` of the group's rows.
    """

    function: str
    argument: int | None
    type: str
    distinct: bool = False
    other: int | None = None
    sql: str = ""
    reads: tuple[int, ...] = ()
    share: str = ""


@dataclass(frozen=True, slots=True)
class Reduce:
    """GROUP BY the key columns: the keys, then one column for each aggregate.

    Without keys there is one row even over empty input (rule 42).
    """

    input: NodeId
    keys: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True, slots=True)
class Groupwise:
    """For the rows of each group: the outputs over those for which the condition is true.

    Both may be of window functions, whose partition is the group: in SQL `PARTITION BY p`.
    Equal rows are told apart by `i`.
    Where a group changes, what all of it comes to is recomputed, and `why` says for what
    reason; with a `reach`, which goes with no condition and with outputs that fail only as its
    span does, only for the rows that see the change.
    """

    input: NodeId
    keys: tuple[int, ...]
    outputs: tuple[Expression, ...]
    condition: Expression | None = None
    reach: Reach | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class TopK:
    """For each group, the rows at [offset, upto) in order, counting multiplicity.

    `order` is the arguments of DuckDB's `create_sort_key` over all columns of a row: no two
    different rows compare equal.
    """

    input: NodeId
    keys: tuple[int, ...]
    order: str
    offset: int
    upto: int


@dataclass(frozen=True, slots=True)
class Distinct:
    """Every row with a positive count, once. NULLs are equal to each other."""

    input: NodeId


@dataclass(frozen=True, slots=True)
class Union:
    """The sum of the inputs, as multisets (UNION ALL)."""

    inputs: tuple[NodeId, ...]


class Rule(StrEnum):
    """The output multiplicity of a Threshold, given the counts in its inputs.

    From WITH to SINGLE they serve joins: the first input has a side's rows, the others have
    each of them as often as it was matched.
    """

    INTERSECT_ALL = "intersect all"
    EXCEPT_ALL = "except all"
    INTERSECT = "intersect"
    EXCEPT = "except"
    WITH = "with"  # the first count, if the second is not zero
    WITHOUT = "without"  # the first count, if the second is zero
    BUT_ONE = "but one"  # the first count, less one if the second is not zero
    MARK = "mark"  # the first count; a column more: true, else NULL by the third input
    SINGLE = "single"  # beside false if the second is zero; beside NULL, and an error each
    #                    time, if it exceeds the first
    BOUNDED = "bounded"  # the count, unless it is beyond 2^40: then none, and an error


MARKED = frozenset({Rule.MARK, Rule.SINGLE})
"""The rules that give rows a column more, the mark."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Every row as often as the rule says, given how often it is in each of the inputs.

    The inputs have the same columns. Rows are equal when their bits are, NULLs included;
    `keys` are the columns to bring them together by.
    """

    inputs: tuple[NodeId, ...]
    keys: tuple[int, ...]
    rule: Rule


@dataclass(frozen=True, slots=True)
class Unnest:
    """Each row once for each place of its lists, and behind it the elements at that place.

    `lists` are the columns of the lists; of several the longest counts, and the others are
    continued by NULL. A row whose lists are all empty or NULL goes.
    """

    input: NodeId
    lists: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Negate:
    """The input's updates with their diffs negated; the counts need not be positive."""

    input: NodeId


@dataclass(frozen=True, slots=True)
class Loop:
    """Recursion: the body's values, recomputed until none changes, all in one bucket.

    The imports of `body` are `inputs`, and behind them the variables: what the bindings, called
    `names`, held in the iteration before, at first nothing. `values` are the body's nodes with
    the bindings' values; `result` is the number of the one that comes out.
    No levels count in the body, and nothing in it is a Loop. If something still changes after
    `limit` iterations that is an error for each row that does, if it `fails`; otherwise what
    there is then is the result.
    """

    inputs: tuple[NodeId, ...]
    body: "Dataflow"
    names: tuple[str, ...]
    values: tuple[NodeId, ...]
    result: int
    limit: int
    fails: bool


@dataclass(frozen=True, slots=True)
class Upsert:
    """Keep the latest row of each key: the heart of `ENVELOPE UPSERT`.

    The input's columns are: the value's columns, then `position` (BIGINT, the order among
    updates of one key at one time: the highest wins), then `kind` (UTINYINT: 0 value,
    1 deletion, 2 error), then `error` (VARCHAR, for kind 2). `keys` are positions among the
    value's columns. The output has the value's columns alone. An error takes the place of the
    key's row and is retracted when the key is written again.

    If it is `dated`, another column follows: `event_time` (BIGINT), which counts before
    `position`, and beyond one time: an update whose event time is below that of its key's row
    has no effect. A deletion leaves no event time behind. The time of an update is its event
    time, or the lower of an interval.
    """

    input: NodeId
    keys: tuple[int, ...]
    dated: bool = False


Node = (
    Source
    | Constant
    | Linear
    | Temporal
    | EmitOnClose
    | Join
    | Asof
    | Arrange
    | Lookup
    | Reduce
    | Groupwise
    | TopK
    | Distinct
    | Union
    | Threshold
    | Unnest
    | Upsert
    | Negate
    | Loop
)


def inputs(node: Node) -> tuple[NodeId, ...]:
    """The nodes that this one reads, in the order of its ports."""
    match node:
        case Source() | Constant():
            return ()
        case Linear() | Temporal() | EmitOnClose() | Unnest() | Negate():
            return (node.input,)
        case Reduce() | Groupwise() | TopK() | Distinct() | Upsert() | Arrange():
            return (node.input,)
        case Join() | Asof():
            return (node.left, node.right)
        case Lookup():
            return (node.stream, node.arranged)
        case Union() | Threshold() | Loop():
            return node.inputs


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A compiled view: nodes with their types and levels, and what comes out.

    Invariants: `nodes`, `types` and `levels` have one entry a node; inputs refer backwards;
    levels never fall along an edge; the last node is the output, `output` names its columns;
    `functions` are those that expressions call, also in the body of a loop, by their symbols.
    """

    imports: tuple[Import, ...]
    nodes: tuple[Node, ...]
    types: tuple[tuple[str, ...], ...]
    levels: tuple[int, ...]
    output: tuple[Column, ...]
    functions: tuple[Function, ...] = ()

    @property
    def depth(self) -> int:
        """The number of rounds, that is, of exchanges, that a step needs."""
        return max(self.levels, default=0)

    @property
    def emits_on_close(self) -> bool:
        """Whether rows come out once, when their windows close, and stay."""
        return bool(self.nodes) and isinstance(self.nodes[-1], EmitOnClose)
