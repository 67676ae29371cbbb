"""Predicates that are true of every row of a relation, as its filters and joins say."""

from collections.abc import Iterator

from streams.plan.ir import Filter, Product, Project, Relational, columns
from streams.plan.scalar import Ref, Scalar, refs, remap, shift


def known_predicates(node: Relational) -> tuple[Scalar, ...]:
    """Predicates over the columns of a relation that are true of each of its rows.

    Those of an outer join are not among them, since they are not of rows without a match.
    """
    return tuple(_known(node))


def _known(node: Relational) -> Iterator[Scalar]:
    match node:
        case Filter():
            yield from node.predicates
            yield from _known(node.input)
        case Product():
            yield from node.predicates
            start = 0
            for part in node.inputs:
                yield from (shift(predicate, start) for predicate in _known(part))
                start += len(columns(part))
        case Project():
            places = {
                output.index: place
                for place, output in enumerate(node.outputs)
                if isinstance(output, Ref)
            }
            for predicate in _known(node.input):
                if refs(predicate) <= places.keys():
                    yield remap(predicate, places)
        case _:
            return
