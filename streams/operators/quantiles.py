"""Quantiles by search: finds the value at a rank, starting from the rank of a stored anchor.

For each argument the operator stores (key, value) -> count in order (`operators.min_max`). For
each group and quantile it stores an *anchor*: a value, mostly the last result, with the number
of rows of the group, and the number of them below the anchor:

    below(t) = the sum of the counts, at t, of the group's values that are less than the anchor

Both numbers follow from the changes alone. The wanted rank is then a number of rows away from
the anchor, at most the number of changed rows, since one row moves a rank by less than one. So
only that many rows of the *core* (the values that no change touches) are read on either side.
These and the touched values are the *candidates*. All ranks are looked up among them at all
moments at once: as in a wavelet tree, queries and changes are partitioned into the upper and
the lower half of the values, in the order of their moments, until each query has one value
left.

While some value has a negative count the result is an error. The anchor is kept meanwhile and
`below` stays exact, so the result is correct again as soon as the count is.

State: `anchor`, `below`, `count` and `negatives` (values of negative count) for each group.
Cost: O(changes * log(changes)), and O(log n) places of each run for each touched value.
Source: Grossi, Gupta, Vitter: High-order entropy-compressed text indexes (SODA 2003), for the
wavelet tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from streams.operators import min_max
from streams.operators.group_contents import GroupTimes, pairs_of
from streams.operators.interesting_times import InterestingTimes
from streams.operators.interpolation import InterpolationPoints, interpolate
from streams.operators.min_max import AffectedValues
from streams.plan.physical import Aggregate
from streams.trace.arrange import order, ordered
from streams.trace.arrange.first_rows import first_rows
from streams.trace.arrange.keyed import Found
from streams.trace.arrange.runs import Run
from streams.trace.columns import Flags, Ints, int64
from streams.trace.exact.diffs import LARGEST, largest, running_values, sum_at
from streams.trace.kernel.kernel import Kernel, arrow_type

INTERPOLATED = "quantile_cont"
_NOWHERE = -1


def fields(index: int, kind: pa.DataType) -> list[pa.Field]:
    """The stored columns of a quantile of an argument of this type."""
    numbers = [f"{name}{index}" for name in ("below", "count", "negatives")]
    anchor = pa.field(f"anchor{index}", min_max.stored_type(kind))
    return [anchor, *(pa.field(name, pa.int64()) for name in numbers)]


@dataclass(frozen=True, slots=True)
class QuantileValues:
    """A quantile for each group before the interval, then at each moment.

    `negative` says where a value has a negative count; `state` are the stored columns of each
    group after the interval.
    """

    column: pa.Array
    negative: Flags
    state: list[pa.Array]


@dataclass(frozen=True, slots=True)
class QuantileState:
    """The rows of state of the groups that changed, and the runs before the interval."""

    found: Found
    moments: InterestingTimes
    runs: Sequence[Run]
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class QuantileSearch:
    """A search for one quantile; `base` are the entries' counts before."""

    call: Aggregate
    index: int
    base: Ints
    state: QuantileState


@dataclass(frozen=True, slots=True)
class _Anchored:
    """The numbers of each pair (a group and a time), and each group's anchor.

    `lower` flags the touched entries below their group's anchor. Ranks count from 0; `low` to
    `high` are wanted. They are defined only for pairs that are `answered`.
    """

    pairs: GroupTimes
    anchor: pa.Array
    lower: Flags
    below: Ints
    count: Ints
    negatives: Ints
    low: Ints
    high: Ints
    share: "np.ndarray[tuple[int], np.dtype[np.float64]]"

    @property
    def answered(self) -> Flags:
        """The pairs that have rows and no negative counts."""
        answered: Flags = (self.negatives == 0) & (self.count > 0)
        return answered


def of_argument(
    of: AffectedValues, calls: Sequence[tuple[int, Aggregate]], state: QuantileState
) -> dict[int, QuantileValues]:
    """The quantiles of an argument, by their numbers."""
    if not calls:
        return {}
    base = ordered.counts(state.runs, of.entries(state.moments), state.kernel)
    return {
        index: quantile(of, QuantileSearch(call, index, base, state)) for index, call in calls
    }


def quantile(of: AffectedValues, search: QuantileSearch) -> QuantileValues:
    """The quantile at every moment, and the state after the interval."""
    anchored = _anchored(of, search)
    among = _candidates(of, anchored, search)
    answered = np.flatnonzero(anchored.answered)
    apart = answered[anchored.high[answered] > anchored.low[answered]]
    places, rest = _nth(among, anchored, np.concatenate((answered, apart)), len(answered))
    low = np.full(len(anchored.count), _NOWHERE)
    low[answered] = places[: len(answered)]
    high = low.copy()
    high[apart] = places[len(answered) :]
    at = anchored.pairs.places
    share = np.where(high > low, anchored.share, 0.0)
    share[apart] = anchored.share[apart]
    column = _column(among.values, InterpolationPoints(low[at], high[at], share[at]), search)
    passed = np.full(len(anchored.count), 0)
    passed[answered] = rest[: len(answered)]
    return QuantileValues(
        column, anchored.negatives[at] > 0, _state(anchored, among, low, passed, search)
    )


def _anchored(of: AffectedValues, search: QuantileSearch) -> _Anchored:
    moments, index = search.state.moments, search.index
    pairs = pairs_of(moments)
    anchor = _anchors(of, search)
    before = [_stored(search, f"{name}{index}") for name in ("below", "count", "negatives")]
    after = of.counts(search.base)
    turned = (after < 0).astype(np.int64) - ((after - of.diff) < 0)
    lower = _lower(of, anchor, search.state.kernel)
    changes = [np.where(lower[of.entry], of.diff, 0), of.diff, turned]
    below, count, negatives = (
        _running(start, change, of.moment, pairs)
        for start, change in zip(before, changes, strict=True)
    )
    low, high, share = _ranks(search.call, count)
    return _Anchored(pairs, anchor, lower, below, count, negatives, low, high, share)


def _anchors(of: AffectedValues, search: QuantileSearch) -> pa.Array:
    """The anchor of each group: a group without one has no core, and any value will do."""
    anchors = search.state.found.rows_or_null(f"anchor{search.index}")
    first = np.searchsorted(of.owner, np.arange(len(anchors)))
    met = first < len(of.owner)
    met[met] = of.owner[first[met]] == np.flatnonzero(met)
    new = anchors.is_null().to_numpy(zero_copy_only=False)
    touched = of.values.take(pa.array(of.place))
    places = np.where(new, len(anchors) + first, np.arange(len(anchors)))
    return pa.concat_arrays([anchors, touched]).take(pa.array(places, mask=new & ~met))


def _stored(search: QuantileSearch, name: str) -> Ints:
    return int64(search.state.found.rows_or_null(name).fill_null(0))


def _lower(of: AffectedValues, anchor: pa.Array, kernel: Kernel) -> Flags:
    """The touched entries that are below their group's anchor; each such group has one."""
    own = np.cumsum(anchor.is_valid().to_numpy(zero_copy_only=False)) - 1
    there = order.comparable(anchor.drop_null(), kernel)
    both = pa.concat_arrays([of.compared.take(pa.array(of.place)), there])
    ranks = order.ranks(both)
    lower: Flags = ranks[: len(of.place)] < ranks[len(of.place) + own[of.owner]]
    return lower


def _running(start: Ints, change: Ints, moment: Ints, pairs: GroupTimes) -> Ints:
    """A number at each pair: that of its group before the interval, and the changes since."""
    size, at = len(start), pairs.places
    steps = sum_at(at[size + moment], len(pairs.owner), change)
    return running_values(steps, at[:size], start)


def _ranks(
    call: Aggregate, count: Ints
) -> "tuple[Ints, Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]":
    """The ranks around the quantile of `count` rows, and its distance from the lower one."""
    share = Decimal(call.share)
    if call.function == INTERPOLATED:
        exact = (count - 1) * float(share)
        low = np.floor(exact)
        return low.astype(np.int64), np.ceil(exact).astype(np.int64), exact - low
    scale = -min(int(share.as_tuple().exponent), 0)
    whole, unit = int(share.scaleb(scale)), 10**scale
    if largest(count) * unit > LARGEST:
        count = count.astype(object)  # Python's integers
    rank = np.maximum(count - count * (unit - whole) // unit, 1).astype(np.int64) - 1
    return rank, rank, np.zeros(len(rank))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Values among which the ranks are looked up: those of group g from `begin[g]` on.

    Within a group they ascend. A change i adds `weight[i]` to the count of value `place[i]` at
    pair `pair[i]`; counts before the interval are changes at the group's first pair. `outside`
    is the number of rows of each group's core below the part that was read.
    """

    values: pa.Array
    begin: Ints
    place: Ints
    pair: Ints
    weight: Ints
    outside: Ints


def _candidates(of: AffectedValues, anchored: _Anchored, search: QuantileSearch) -> _Candidates:
    down, up = _core(of, anchored, search)
    size, entries = len(anchored.anchor), len(of.owner)
    owner = np.concatenate((of.owner, down.owner, up.owner))
    base = np.concatenate((search.base, down.counts, up.counts))
    touched = pa.array(of.place)
    values = pa.concat_arrays([of.values.take(touched), down.values, up.values])
    compared = pa.concat_arrays([of.compared.take(touched), down.compared, up.compared])
    by_value, _ = order.sort([owner, order.ranks(compared)], nearly=True)
    place = np.empty(len(by_value), np.int64)
    place[by_value] = np.arange(len(by_value))
    at, there = anchored.pairs.places, np.flatnonzero(base)
    outside = anchored.below[at[:size]].copy()
    np.subtract.at(outside, down.owner, down.counts)
    np.subtract.at(outside, of.owner[anchored.lower], search.base[anchored.lower])
    return _Candidates(
        values.take(pa.array(by_value)),
        np.searchsorted(owner[by_value], np.arange(size + 1)),
        np.concatenate((place[there], place[:entries][of.entry])),
        np.concatenate((at[owner[there]], at[size + of.moment])),
        np.concatenate((base[there], of.diff)),
        outside,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """Values of the core on one side of the anchors, with the group and count of each."""

    owner: Ints
    counts: Ints
    values: pa.Array
    compared: pa.Array


def _core(
    of: AffectedValues, anchored: _Anchored, search: QuantileSearch
) -> tuple[_Side, _Side]:
    """The core below the anchors, and from them on, as far as a wanted rank may be."""
    moments, kernel = search.state.moments, search.state.kernel
    groups = np.flatnonzero(anchored.anchor.is_valid().to_numpy(zero_copy_only=False))
    values = anchored.anchor.drop_null()
    hashes, compared = moments.hashes[groups], order.comparable(values, kernel)
    start = ordered.Entries(moments.forms, groups, hashes, values, compared)
    passed = of.entries(moments)
    sides = []
    for last in (True, False):
        reach = anchored.below - anchored.low if last else anchored.high - anchored.below + 1
        most = np.where(anchored.answered, reach, 0)
        first = anchored.pairs.places[: len(anchored.anchor)]
        wanted = np.maximum.reduceat(most, first)[groups]
        but = _both(passed, start) if last else passed
        candidates = first_rows(search.state.runs, start, but, wanted, kernel, last=last)
        if candidates is None:
            none = np.empty(0, np.int64)
            sides.append(_Side(none, none, values.slice(0, 0), compared.slice(0, 0)))
            continue
        rows = candidates.rows
        column = ordered.order_column(rows)
        sides.append(
            _Side(groups[candidates.which], candidates.counts, rows.column("v"), column)
        )
    return sides[0], sides[1]


def _both(left: ordered.Entries, right: ordered.Entries) -> ordered.Entries:
    return ordered.Entries(
        left.keys,
        np.concatenate((left.owner, right.owner)),
        np.concatenate((left.hashes, right.hashes)),
        pa.concat_arrays([left.values, right.values]),
        pa.concat_arrays([left.compared, right.compared]),
    )


def _nth(
    among: _Candidates, anchored: _Anchored, questions: Ints, lows: int
) -> tuple[Ints, Ints]:
    """For each queried pair the place of the value at its rank, and the rank among equals.

    The first `lows` queries are for the lower rank of their pair, the others for the higher.
    """
    owner = anchored.pairs.owner
    rank = np.where(
        np.arange(len(questions)) < lows, anchored.low[questions], anchored.high[questions]
    )
    rank -= among.outside[owner[questions]]
    pair = np.concatenate((among.pair, questions))
    question = np.repeat([False, True], [len(among.pair), len(questions)])
    sorting = np.argsort(pair * 2 + question, kind="stable")
    begin = among.begin[owner[pair]]
    within = np.concatenate((among.place, begin[len(among.pair) :])) - begin
    values, rest = _descend(
        owner[pair[sorting]],
        within[sorting],
        np.concatenate((among.weight, rank))[sorting],
        question[sorting],
        int(np.diff(among.begin).max(initial=1)).bit_length(),
    )
    number = np.empty(len(sorting), np.int64)
    number[sorting] = np.arange(len(sorting))
    mine = number[len(among.pair) :]
    return values[mine] + begin[len(among.pair) :], rest[mine]


def _descend(
    node: Ints, value: Ints, weight: Ints, question: Flags, height: int
) -> tuple[Ints, Ints]:
    """The value that each query finds, and the rest of its rank; aligned.

    An item is a change of a value's count by its weight, or a question for the value at the
    rank that is its weight, given the changes of its node that come before it. Items come node
    by node; a node's values have `height` bits.
    """
    place = np.arange(len(node))
    for bit in reversed(range(height)):
        right = (value >> bit & 1) == 1
        running = np.cumsum(np.where(question | right, 0, weight))
        begin = order.starts([node])
        sizes = np.diff(np.append(begin, len(node)))
        before = np.repeat(np.append([0], running)[begin], sizes)
        left = running - before
        further = question & (weight >= left)
        right |= further
        value = np.where(further, value | 1 << bit, value)
        weight = np.where(further, weight - left, weight)
        node = node * 2 + right
        parted = np.concatenate((np.flatnonzero(~right), np.flatnonzero(right)))
        node, value, weight = node[parted], value[parted], weight[parted]
        question, place = question[parted], place[parted]
    values, rest = np.empty_like(value), np.empty_like(weight)
    values[place], rest[place] = value, weight
    return values, rest


def _column(values: pa.Array, places: InterpolationPoints, search: QuantileSearch) -> pa.Array:
    kind = arrow_type(search.call.type)
    low = values.take(pa.array(places.low, mask=places.low < 0))
    if search.call.function != INTERPOLATED:
        return low.cast(kind) if pa.types.is_boolean(kind) else low
    return interpolate(values, places, search.call.type, search.state.kernel)


def _state(
    anchored: _Anchored, among: _Candidates, low: Ints, rest: Ints, search: QuantileSearch
) -> list[pa.Array]:
    """The stored columns: where there is an answer, the value found is the new anchor."""
    size = len(anchored.anchor)
    last = anchored.pairs.places[size + search.state.moments.last]
    answered = anchored.answered[last]
    empty = (anchored.count[last] == 0) & (anchored.negatives[last] == 0)
    pool = pa.concat_arrays([anchored.anchor, among.values])
    places = np.where(answered, size + low[last], np.arange(size))
    anchor = pool.take(pa.array(places, mask=empty))
    below = np.where(answered, anchored.low[last] - rest[last], anchored.below[last])
    return [anchor, *map(pa.array, (below, anchored.count[last], anchored.negatives[last]))]
