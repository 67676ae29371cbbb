"""Factors common conjuncts out of a disjunction.

`(a AND b) OR (a AND c)` is `a AND (b OR c)`, with NULL too. So a key
equality in every part becomes a join key, and conditions of every part on one input alone are
also a filter of that input before the join.
"""

from collections.abc import Sequence

from streams.plan.analyses.fallible import can_fail
from streams.plan.scalar import Call, Form, Scalar, conjunction, conjuncts, disjunction, refs


def factor(predicate: Scalar) -> tuple[Scalar, ...]:
    """The conjuncts of a predicate, with those in front that all parts of an OR share.

    What may fail stays where it is: its part alone may ask for it.
    """
    return tuple(scalar for part in conjuncts(predicate) for scalar in _factored(part))


def implied_predicate(predicate: Scalar, places: frozenset[int]) -> Scalar | None:
    """The predicate on the columns at `places` that a disjunction implies; None for none.

    It holds for every row for which the predicate does, and cannot fail.
    """
    parts = _parts(predicate)
    own = [
        [
            scalar
            for scalar in part
            if refs(scalar) and refs(scalar) <= places and not can_fail(scalar)
        ]
        for part in parts
    ]
    return _any(own) if len(own) > 1 and all(own) else None


def _parts(predicate: Scalar) -> list[tuple[Scalar, ...]]:
    """The parts of a disjunction, each as its conjuncts."""
    if not isinstance(predicate, Call) or predicate.form is not Form.OR:
        return [conjuncts(predicate)]
    return [part for argument in predicate.arguments for part in _parts(argument)]


def _factored(predicate: Scalar) -> tuple[Scalar, ...]:
    parts = _parts(predicate)
    common = [
        scalar
        for scalar in dict.fromkeys(parts[0])
        if not can_fail(scalar) and all(scalar in part for part in parts)
    ]
    if not common or len(parts) == 1:
        return (predicate,)
    rest = [[scalar for scalar in part if scalar not in common] for part in parts]
    return (*common, _any(rest)) if all(rest) else tuple(common)


def _any(parts: Sequence[Sequence[Scalar]]) -> Scalar:
    return disjunction([conjunction(part) for part in parts])
