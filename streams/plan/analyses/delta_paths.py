"""The paths of a delta join: for each input, how its changes find the rows of the others.

    d(A x B x C) = dA x B x C  +  A' x dB x C  +  A' x B' x dC

On its path a change looks up the other inputs one after the other, each in an arrangement by
the columns that connect it with those before. It sees inputs after its own in the order up to
and including its time, and inputs before its own only up to just before its time (A', B'): so
every combination of changes is produced once, on the path of the latest change, or of the first
input among changes at one time. So the contents at as_of take the first path.

Inputs that read the same *share*: one arrangement by the same columns serves them all, as the
edges of a graph by source and by target do on paths of any length.

Source: F. McSherry, "Delta Joins", Materialize's documentation of its optimizer; K. Ammar,
F. McSherry, S. Salihoglu, M. Joglekar, Distributed Evaluation of Subgraph Queries Using
Worst-case Optimal Low-Memory Dataflows, VLDB 2018, section 3.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streams.plan.analyses.fallible import can_fail
from streams.plan.ir import DeltaJoin, Project, Relational, columns
from streams.plan.scalar import Equality, Ref, Scalar, equality, substitute


@dataclass(frozen=True, slots=True)
class SharedRelation:
    """The shared relation that an input reads, and the positions of its columns there."""

    node: Relational
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """An arrangement: what is kept, by which columns, and in which of these NULL is a value."""

    node: Relational
    keys: tuple[int, ...]
    null_equal: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class LookupStep:
    """An input that a path looks up, in which arrangement, and by what.

    `known` are the columns of the row of all inputs that hold the keys; `settled` the
    predicates of which the lookup makes sure.
    """

    input: int
    arranged: Arrangement
    known: tuple[int, ...]
    settled: frozenset[Scalar]


@dataclass(frozen=True, slots=True)
class ColumnEquality:
    """A predicate that equates columns of two inputs, seen from one of them.

    `column` is its own, `other` that of the input numbered `to`, in the row of all.
    """

    predicate: Scalar
    column: int
    to: int
    other: int
    null_equal: bool


def first_columns(inputs: Sequence[Relational]) -> list[int]:
    """The first column of each input in the row of all, and the number of columns."""
    offsets = [0]
    for part in inputs:
        offsets.append(offsets[-1] + len(columns(part)))
    return offsets


def equals(node: DeltaJoin) -> tuple[tuple[ColumnEquality, ...], ...]:
    """For each input the predicates that connect it."""
    cuts = first_columns(node.inputs)
    homes = [n for n, part in enumerate(node.inputs) for _ in columns(part)]
    by_input: list[list[ColumnEquality]] = [[] for _ in cuts[1:]]
    for predicate in node.predicates:
        match equality(predicate):
            case Equality(Ref(index=first), Ref(index=second), null_equal):
                for a, b in ((first, second), (second, first)):
                    if homes[a] != homes[b]:
                        by_input[homes[a]].append(
                            ColumnEquality(predicate, a, homes[b], b, null_equal)
                        )
            case _:
                pass
    return tuple(map(tuple, by_input))


def shared_relations(inputs: Sequence[Relational]) -> tuple[SharedRelation, ...]:
    """The shared relation of each input: inputs over one relation share all its columns."""
    opened = [_opened(part) for part in inputs]
    wanted: dict[Relational, dict[Scalar, None]] = {}
    for base, outputs in opened:
        wanted.setdefault(base, {}).update(dict.fromkeys(outputs))
    nodes = {base: _projected(base, tuple(outputs)) for base, outputs in wanted.items()}
    places = {base: list(outputs) for base, outputs in wanted.items()}
    return tuple(
        SharedRelation(nodes[base], tuple(map(places[base].index, outputs)))
        for base, outputs in opened
    )


def _projected(base: Relational, outputs: tuple[Scalar, ...]) -> Relational:
    if outputs == _refs(base):
        return base
    names = (output.name if isinstance(output, Ref) else "key" for output in outputs)
    return Project(base, outputs, tuple(names))


def _opened(node: Relational) -> tuple[Relational, tuple[Scalar, ...]]:
    """The relation under a projection, and its outputs, unless an output can fail."""
    if isinstance(node, Project) and not any(map(can_fail, node.outputs)):
        base, inside = _opened(node.input)
        return base, tuple(substitute(output, inside) for output in node.outputs)
    return node, _refs(node)


def _refs(node: Relational) -> tuple[Ref, ...]:
    return tuple(Ref(i, c.type, c.name) for i, c in enumerate(columns(node)))


def paths(node: DeltaJoin) -> tuple[tuple[LookupStep, ...], ...] | None:
    """The path of each input; None if predicates do not connect them all.

    A path goes on with an arrangement that there is already, if there is one, in the order of
    the inputs.
    """
    arranged: dict[Arrangement, None] = {}
    paths_ = [tuple(_path(node, first, arranged)) for first in range(len(node.inputs))]
    complete = all(len(path) == len(node.inputs) - 1 for path in paths_)
    return tuple(paths_) if complete else None


def _path(
    node: DeltaJoin, first: int, arranged: dict[Arrangement, None]
) -> Iterator[LookupStep]:
    connected, reads, cuts = (
        equals(node),
        shared_relations(node.inputs),
        first_columns(node.inputs),
    )
    bound_inputs = {first}
    while True:
        nexts = [
            visit
            for number in range(len(node.inputs))
            if number not in bound_inputs
            and (
                visit := _visit(
                    number, reads[number], cuts[number], connected[number], bound_inputs
                )
            )
        ]
        if not nexts:
            return
        chosen = min(nexts, key=lambda visit: visit.arranged not in arranged)
        arranged[chosen.arranged] = None
        bound_inputs.add(chosen.input)
        yield chosen


def _visit(
    number: int,
    read: SharedRelation,
    start: int,
    connected: Sequence[ColumnEquality],
    bound_inputs: set[int],
) -> LookupStep | None:
    """The lookup of an input from those that are known, if anything connects it with them."""
    by: dict[int, ColumnEquality] = {}
    for equal in connected:
        if equal.to in bound_inputs:
            by.setdefault(read.places[equal.column - start], equal)
    if not by:
        return None
    keys = tuple(sorted(by))
    return LookupStep(
        number,
        Arrangement(read.node, keys, tuple(by[key].null_equal for key in keys)),
        tuple(by[key].other for key in keys),
        frozenset(equal.predicate for equal in by.values()),
    )
