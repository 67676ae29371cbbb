"""Decides which relations are append-only.

A collection is *append-only* if no row that is in it at some time is missing at a later one.
Sources with ENVELOPE NONE are append-only. The output of an operator over append-only inputs is
too, unless it depends on missing rows or on the last rows of a group.

EXPLAIN shows it; no operator omits state because of it. An operator over such an input could
keep only the current result of each group; but a source may still retract: when an upgrade
decodes its topic differently, its shard is corrected by the difference (rule 24). An operator
without the other rows would then give a wrong result and no error.
"""

from streams.plan.analyses.temporal import is_temporal
from streams.plan.ir import (
    DeltaJoin,
    Distinct,
    Filter,
    Get,
    Group,
    Join,
    JoinKind,
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
    children,
)
from streams.plan.physical import Rule


def is_monotone(node: Relational) -> bool:
    """Tell whether no row ever leaves; False only means that nothing is known."""
    return _adds_only(node) and all(map(is_monotone, children(node)))


def _adds_only(node: Relational) -> bool:  # noqa: PLR0911 - one case a node
    """Whether rows that come to the inputs make none of the output's leave."""
    match node:
        case Get():
            return node.monotone
        case Filter():
            return not any(map(is_temporal, node.predicates))
        case Group():
            return not node.calls
        case Match():
            return node.kind is JoinKind.SEMI
        case Threshold():
            return node.rule in {Rule.INTERSECT, Rule.INTERSECT_ALL}
        case (
            Values()
            | Project()
            | Product()
            | Join()
            | DeltaJoin()
            | (Union() | Unnest() | Distinct())
        ):
            return True
        case Window() | TopK() | Negate() | Variable() | Loop():
            return False
