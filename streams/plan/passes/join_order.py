"""Put the inputs of every Product into the order in which to join them.

A join of n inputs is maintained as n - 1 joins in sequence, each of which stores the result of
the previous one. The chosen order has the smallest estimate of its largest intermediate result,
then of the second largest, and so on; among equals it is the query's (`analyses.cardinality`
has the estimates). An input that no key connects to the inputs joined so far comes last: no
cross product is added to the query. A single row is never the first input.

An input that refers to another's key is estimated as the larger one of the two. An input that
is more than columns and filters of a collection is joined last: it is available some exchanges
later; and for a decorrelated subquery the other inputs occur twice in the plan, so they are
computed once.

Up to `EVERY_ORDER` inputs all orders are compared; with more, only those that begin with any
input and continue with the one that gives the smallest result. Leaves behind: the same
products, with inputs in the order in which `binary_joins` joins them.

Source: P. G. Selinger et al., Access path selection in a relational database management system,
SIGMOD 1979, section 5 (the best order ends with the best order of one input less).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from streams.plan.analyses.cardinality import (
    Decibels,
    is_guess,
    looks_unique,
    rows,
    rows_without_predicates,
    selectivity,
    values,
)
from streams.plan.analyses.keys import is_one_row, same_column
from streams.plan.ir import (
    Filter,
    Get,
    Product,
    Project,
    Relational,
    Values,
    children,
    columns,
    with_children,
)
from streams.plan.passes.prune_columns import pick_columns
from streams.plan.scalar import Scalar, equality, refs, remap

EVERY_ORDER = 8
_REFERS: Decibels = 5

Cost = tuple[Decibels, ...]
"""The sizes of the intermediate results, the largest first: less is less state."""


def order(node: Relational) -> Relational:
    """Order every product in the tree."""
    node = with_children(node, tuple(order(child) for child in children(node)))
    if not isinstance(node, Product) or len(node.inputs) < 3:  # noqa: PLR2004 - two make no intermediate result
        return node
    best = _best(_Inputs(node)).order
    return node if best == tuple(range(len(best))) else _reordered(node, best)


def sizes(node: Product) -> tuple[Decibels, list[Decibels]]:
    """The guessed number of rows of a product, and of each of its inputs."""
    inputs = _Inputs(node)
    return _best(inputs).size, inputs.sizes


def _reordered(node: Product, places: Sequence[int]) -> Relational:
    starts = _starts(node)
    moved = dict[int, int]()
    for place in places:
        for column in range(len(columns(node.inputs[place]))):
            moved[starts[place] + column] = len(moved)
    inputs = tuple(node.inputs[place] for place in places)
    predicates = tuple(remap(predicate, moved) for predicate in node.predicates)
    return pick_columns(Product(inputs, predicates), [moved[i] for i in range(len(moved))])


def _starts(node: Product) -> list[int]:
    """The first column of each input in the product's row."""
    starts, start = [], 0
    for part in node.inputs:
        starts.append(start)
        start += len(columns(part))
    return starts


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression over some inputs, and the column of one of them that it is, if any."""

    inputs: frozenset[int]
    column: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A predicate: the inputs that it reads, its selectivity, and its equalities."""

    inputs: frozenset[int]
    kept: Decibels
    sides: tuple[_Term, _Term] | None


@dataclass(frozen=True, slots=True)
class _Joined:
    """Inputs in the order in which they were joined."""

    order: tuple[int, ...]
    size: Decibels
    cost: Cost

    @property
    def rank(self) -> tuple[Cost, tuple[int, ...]]:
        """The sort key of a candidate."""
        return self.cost, self.order


@dataclass(frozen=True)
class _Inputs:
    """The statistics of the inputs of a product."""

    product: Product

    @cached_property
    def every(self) -> list[Decibels]:
        """The guessed number of rows of each before it was filtered."""
        inputs = self.product.inputs
        unfiltered_inputs = [rows_without_predicates(part) for part in inputs]
        references = list(self._references())
        for _ in inputs:  # as long as a chain of them can be
            for first, second in references:
                unfiltered_inputs[first] = max(
                    unfiltered_inputs[first],
                    min(
                        unfiltered_inputs[second] + _REFERS, unfiltered_inputs[first] + _REFERS
                    ),
                )
        return unfiltered_inputs

    def _references(self) -> Iterator[tuple[int, int]]:
        """Pairs of inputs of which the first one refers to a key of the second."""
        inputs, equal = self.product.inputs, dict[tuple[int, int], set[tuple[int, int]]]()
        for predicate in self.asked:
            if predicate.sides is None:
                continue
            (first, second) = (term.column for term in predicate.sides)
            if first is not None and second is not None:
                equal.setdefault((first[0], second[0]), set()).add((first[1], second[1]))
                equal.setdefault((second[0], first[0]), set()).add((second[1], first[1]))
        for (refers, referred), pairs in equal.items():
            by, to = frozenset(at for at, _ in pairs), frozenset(at for _, at in pairs)
            if looks_unique(inputs[referred], to) and not looks_unique(inputs[refers], by):
                yield refers, referred

    @cached_property
    def sizes(self) -> list[Decibels]:
        """The guessed number of rows of each."""
        pairs = zip(self.product.inputs, self.every, strict=True)
        return [
            max(rows(part) + every - rows_without_predicates(part), 0) for part, every in pairs
        ]

    @cached_property
    def plain(self) -> frozenset[int]:
        """The inputs that are collections, but for columns and filters."""
        return frozenset(n for n, part in enumerate(self.product.inputs) if _is_plain(part))

    @cached_property
    def single(self) -> frozenset[int]:
        """The inputs that are one row."""
        nodes = self.product.inputs
        return frozenset(n for n, part in enumerate(nodes) if is_one_row(part))

    @cached_property
    def asked(self) -> list[_Asked]:
        """The predicates."""
        starts = _starts(self.product)
        return [_asked(predicate, starts) for predicate in self.product.predicates]

    def connected(self, joined: frozenset[int]) -> list[int]:
        """The inputs to join next: those that an equality connects, or else all the others."""
        others = [n for n in range(len(self.sizes)) if n not in joined]
        candidates = [n for n in others if self._keys(joined, n)] or others
        return [n for n in candidates if n in self.plain] or candidates

    def _keys(self, joined: frozenset[int], new: int) -> list[tuple[_Term, _Term]]:
        keys = []
        for predicate in self.asked:
            if predicate.sides is None or new not in predicate.inputs:
                continue
            first, second = predicate.sides
            if second.inputs != {new}:
                first, second = second, first
            if second.inputs == {new} and first.inputs and first.inputs <= joined:
                keys.append((first, second))
        return keys

    def join(self, joined: _Joined, new: int) -> _Joined:
        """The inputs with one more behind them."""
        inputs_joined = frozenset(joined.order)
        keys = self._keys(inputs_joined, new)
        size = joined.size + self.sizes[new] - self._values(keys, new)
        for predicate in self.asked:
            if (
                predicate.sides is None
                and new in predicate.inputs
                and predicate.inputs <= inputs_joined | {new}
            ):
                size -= predicate.kept
        size = max(size, 0)
        last = len(joined.order) + 1 == len(self.sizes)
        cost = joined.cost if last else tuple(sorted((*joined.cost, size), reverse=True))
        return _Joined((*joined.order, new), size, cost)

    def _values(self, keys: Sequence[tuple[_Term, _Term]], new: int) -> Decibels:
        """The distinct values of the keys, on the side that has more."""
        if not keys:
            return 0
        by_input: dict[int, set[int]] = {new: set()}
        for term in (term for pair in keys for term in pair):
            if term.column is not None:
                by_input.setdefault(term.column[0], set()).add(term.column[1])
        pairs = [(n, frozenset(places)) for n, places in by_input.items()]
        inputs, every = self.product.inputs, self.every
        if all(is_guess(inputs[n], places) for n, places in pairs):
            return min(every[n] for n, _ in pairs)  # one of them is no key
        return max(values(inputs[n], places, every[n]) for n, places in pairs)


def _asked(predicate: Scalar, starts: Sequence[int]) -> _Asked:
    inputs = _inputs(predicate, starts)
    sides = None
    equated = equality(predicate)
    if equated is not None:
        first, second = _term(equated.one, starts), _term(equated.other, starts)
        if first.inputs and second.inputs and not first.inputs & second.inputs:
            sides = (first, second)
    return _Asked(inputs, selectivity(predicate), sides)


def _term(scalar: Scalar, starts: Sequence[int]) -> _Term:
    column = same_column(scalar)
    if column is None:
        return _Term(_inputs(scalar, starts), None)
    home = _home(column, starts)
    return _Term(frozenset({home}), (home, column - starts[home]))


def _inputs(scalar: Scalar, starts: Sequence[int]) -> frozenset[int]:
    return frozenset(_home(column, starts) for column in refs(scalar))


def _home(column: int, starts: Sequence[int]) -> int:
    return max(n for n, start in enumerate(starts) if start <= column)


def _is_plain(node: Relational) -> bool:
    while isinstance(node, Project | Filter):
        node = node.input
    return isinstance(node, Get | Values)


def _best(inputs: _Inputs) -> _Joined:
    count = len(inputs.sizes)
    many = [n for n in range(count) if n not in inputs.single] or range(count)
    first = [_Joined((n,), inputs.sizes[n], ()) for n in many]
    first = [start for start in first if start.order[0] in inputs.plain] or first
    if count > EVERY_ORDER:
        return min((_greedy(inputs, start) for start in first), key=lambda order: order.rank)
    best = {frozenset(start.order): start for start in first}
    for _ in range(count - 1):
        longer: dict[frozenset[int], _Joined] = {}
        for chosen, prefix in best.items():
            for new in inputs.connected(chosen):
                joined = inputs.join(prefix, new)
                best_so_far = longer.get(chosen | {new})
                if best_so_far is None or joined.rank < best_so_far.rank:
                    longer[chosen | {new}] = joined
        best = longer
    (joined,) = best.values()
    return joined


def _greedy(inputs: _Inputs, joined: _Joined) -> _Joined:
    while len(joined.order) < len(inputs.sizes):
        candidates = [
            inputs.join(joined, new) for new in inputs.connected(frozenset(joined.order))
        ]
        joined = min(candidates, key=lambda joined: (joined.size, joined.order))
    return joined
