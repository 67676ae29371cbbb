"""The passes over the logical plan, in the order they run.

A pass is a function from a tree to a tree that means the same, one a file, named like the
file. Each states what it leaves behind, and the next may rely on it.
"""

from collections.abc import Callable

from streams.plan.ir import Loop, Relational, parts, with_parts
from streams.plan.passes.binary_joins import joins
from streams.plan.passes.canonical import canonical
from streams.plan.passes.delta_joins import deltas
from streams.plan.passes.flatten import flatten
from streams.plan.passes.fuse import fuse
from streams.plan.passes.join_order import order
from streams.plan.passes.limit_to_topk import limits
from streams.plan.passes.project_group_inputs import groups
from streams.plan.passes.prune_columns import prune
from streams.plan.passes.pushdown import pushdown
from streams.plan.passes.redundant_by_key import unique
from streams.plan.passes.selfjoins import selfjoins
from streams.plan.passes.semijoins import semijoins

Pass = Callable[[Relational], Relational]

PASSES: tuple[Pass, ...] = (
    pushdown,  # predicates lie where their columns come from; joins are no more than is asked
    limits,  # the first rows of each partition are a TopK, and a window sees no others
    flatten,  # no product is an input of another
    selfjoins,  # no collection is joined with itself on its key
    semijoins,  # a match is asked for before joins make more rows to ask for
    prune,  # no column is carried that is not read
    order,  # a product names its inputs in the order in which to join them
    deltas,  # a product is a delta join where joins would keep more
    joins,  # every other product is a tree of joins on equal columns
    canonical,  # equal keys have equal bits
    unique,  # nothing is made distinct, or grouped, that a key makes so already
    groups,  # what operators over groups compute with are columns; no Group only groups
    prune,  # columns that only a residual predicate read end there
    fuse,  # at most one Project over one Filter between other operators
)


def optimise(node: Relational) -> Relational:
    """Run every pass, also over the body of each Loop, which keeps all its columns."""
    node = _loops(node)
    for step in PASSES:
        node = step(node)
    return node


def _loops(node: Relational) -> Relational:
    change = optimise if isinstance(node, Loop) else _loops
    return with_parts(node, tuple(map(change, parts(node))))
