"""Decides which relations are append-only.

A collection is *append-only* if no row that is in it at some time is missing at a later one.
Sources with ENVELOPE NONE are, and what operators make of them stays so as long as none answers
for rows that are not there, or for the last ones of a group.

It is shown by EXPLAIN and lets nothing be left out. An operator over such an input could forget
all rows but the winners; but a source may still retract: when an upgrade decodes its topic
otherwise, its shard is corrected by the difference (rule 24). Who has forgotten the runner-up
then has a wrong answer and no error.
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
