"""The unchanged rows near changed ones: all rows that a window frame may need.

The unchanged rows between two touched rows of a group are a *gap*. At any time, the
neighbourhoods contain at most the first `back + ahead` rows of a gap and as many of its last
rows, or as many groups of peers, or the rows whose values are within the frame's distance of
the rows at its ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.frame_visibility import keys, peers_of, upper_bound_of_prefix
from streams.operators.min_max import AffectedValues
from streams.operators.ordered_groups import ChangedRows, UnchangedRows
from streams.operators.running_extremes import (
    FeltGaps,
    Influence,
    deciding_before,
    numbers_within,
)
from streams.plan.window_frames import Reach, Span
from streams.trace.arrange import order
from streams.trace.arrange.first_rows import Gaps, Leading, concatenate, first_rows_in_ranges
from streams.trace.arrange.runs import Run
from streams.trace.columns import Flags, Ints, group, int64
from streams.trace.kernel.kernel import Kernel

_ALL = 1 << 40
"""More rows than a group can have."""
_GROWTH = 4


def unchanged_rows(
    reach: Reach,
    runs: Sequence[Run],
    records: Sequence[Sequence[Run]],
    changed: ChangedRows,
    whole: Flags,
    kernel: Kernel,
) -> list[UnchangedRows]:
    """The rows in the gaps that a neighbourhood may need, and the records before it.

    Of `whole` groups all rows. `records` are the runs of the records of each extreme
    (`running_extremes`).
    """
    if not runs:
        return []
    touched, width = changed.touched, len(changed.moments.keys)
    columns = changed.rows.take(pa.array(touched.place)).columns[:-2]
    between = _between(changed)
    search = _Search(reach, runs, columns, changed.types, width, whole, kernel)
    before = search.near(between, last=True)
    starts = _starts(touched, between, before)
    steady = touched.steady(changed.base)
    deciding = [deciding_before(some, changed, starts, steady, kernel) for some in records]
    begins = np.flatnonzero(between.before.is_valid().to_numpy(zero_copy_only=False))
    influence = Influence(
        reach.extremes, changed, between.owner, begins, steady, deciding, kernel
    )
    behind = search.near(between, (influence, before), last=False)
    near = [(between.owner, some, False) for some in (before, behind) if some]
    apart = [(touched.owner, some, True) for some in deciding]
    return [
        UnchangedRows(owner[some.which], some.rows, some.counts, is_apart)
        for owner, some, is_apart in (*near, *apart)
    ]


@dataclass(frozen=True, slots=True)
class _Between:
    """The gaps, the group of each, and the numbers of the touched rows at its ends, or NULL."""

    gaps: Gaps
    owner: Ints
    before: pa.Array
    behind: pa.Array


def _between(changed: ChangedRows) -> _Between:
    """The rows before, between and after the touched rows of each group."""
    touched, moments = changed.touched, changed.moments
    sizes = np.bincount(touched.owner, minlength=len(moments.hashes)) + 1
    owner = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes)
    begins, stops = np.ones(len(owner), np.bool_), np.ones(len(owner), np.bool_)
    begins[ends - sizes] = False
    stops[ends - 1] = False
    place = np.arange(len(owner)) - owner
    before, behind = pa.array(place - 1, mask=~begins), pa.array(place, mask=~stops)
    keys_ = [form.take(pa.array(owner)) for form in moments.forms]
    first, last = np.maximum(place - 1, 0), np.minimum(place, len(touched.owner) - 1)
    within = [
        (
            np.where(begins, at.end[first], at.low[last]),
            np.where(stops, at.first[last], at.high[first]),
        )
        for at in changed.places
    ]
    nothing = pa.nulls(len(owner), touched.compared.type)
    gaps = Gaps(keys_, moments.hashes[owner], nothing, nothing, within)
    return _Between(gaps, owner, before, behind)


def _starts(touched: AffectedValues, between: _Between, before: Leading | None) -> pa.Array:
    """For each touched row the sort key of the first row that is known of those before it."""
    own = touched.values.take(pa.array(touched.place))
    if before is None:
        return own
    place = np.arange(len(own))
    ending = between.behind.take(pa.array(before.which))
    some = np.flatnonzero(ending.is_valid().to_numpy(zero_copy_only=False))
    place[int64(ending.take(pa.array(some)))] = len(own) + some  # the last is the farthest
    return pa.concat_arrays([own, before.rows.column("v")]).take(pa.array(place))


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches of the runs; `columns` are those of the touched rows, in these types.

    Runs have `width` columns of keys.
    """

    reach: Reach
    runs: Sequence[Run]
    columns: Sequence[pa.Array]
    types: Sequence[str]
    width: int
    whole: Flags
    kernel: Kernel

    def near(
        self,
        between: _Between,
        felt: tuple[Influence, Leading | None] | None = None,
        *,
        last: bool,
    ) -> Leading | None:
        """For each gap, the rows after its beginning, or for `last` those before its end.

        Those after its beginning go as far as an influence is `felt`, given rows at its end.
        """
        reach, whole = self.reach, self.whole[between.owner]
        anchors = between.behind if last else between.before
        is_anchored = anchors.is_valid().to_numpy(zero_copy_only=False)
        number = _ALL if reach.span else reach.back + reach.ahead
        if reach.before:  # all behind the first touched row, and of those before it as usual
            is_anchored &= between.before.is_null().to_numpy(zero_copy_only=False) | (not last)
            number = number if last else _ALL
        wanted = np.where(whole, 0 if last else _ALL, np.where(is_anchored, number, 0))
        gaps = between.gaps
        if reach.span is not None:
            gaps = self._clipped(gaps, anchors, reach.span, whole, last=last)
        elif reach.peers or (reach.extremes and felt):
            wanted = np.where(is_anchored & bool(reach.peers), wanted + 1, wanted)
            return self._until_complete(gaps, wanted, felt, last=last)
        return first_rows_in_ranges(self.runs, gaps, wanted, self.kernel, last=last)

    def _clipped(
        self, gaps: Gaps, anchors: pa.Array, span: Span, whole: Flags, *, last: bool
    ) -> Gaps:
        """The gaps as far as their values may matter to the touched rows at one end."""
        (needed,) = keys([span.needed[not last]], self.columns, self.types, self.kernel)
        limit = pc.if_else(pa.array(whole), pa.scalar(None, pa.binary()), needed.take(anchors))
        if last:
            return replace(gaps, low=pc.max_element_wise(gaps.low, limit))
        return replace(gaps, high=pc.min_element_wise(gaps.high, upper_bound_of_prefix(limit)))

    def _until_complete(
        self,
        gaps: Gaps,
        wanted: Ints,
        felt: tuple[Influence, Leading | None] | None,
        *,
        last: bool,
    ) -> Leading | None:
        """The first rows in the gaps, or the last: `wanted` ones behind the affected rows.

        If groups of peers are counted, `wanted` whole groups. The first group counts even if
        its rows are peers of the row at the end of the gap.
        """
        leading: list[Leading] = []
        ahead = _felt(felt, leading, len(wanted))
        todo = np.flatnonzero((wanted > 0) | ahead.felt)
        enough = wanted + 1  # one more tells that the wanted ones are complete
        while len(todo):
            some = first_rows_in_ranges(
                self.runs, gaps.choose(todo), enough[todo], self.kernel, last=last
            )
            if some is None:
                break
            some = replace(some, which=todo[some.which])
            ahead = _felt(felt, [*leading, some], len(wanted))
            done = self._complete(some, ahead, wanted, enough)
            chosen = np.flatnonzero(done[some.which])
            leading.append(some.choose(chosen, some.which[chosen]))
            todo, enough = todo[~done[todo]], enough * _GROWTH
        return concatenate(leading)

    def _complete(self, some: Leading, ahead: FeltGaps, wanted: Ints, enough: Ints) -> Flags:
        """Whether all rows of each gap were read, or enough to have all wanted ones."""
        rows = np.bincount(some.which, minlength=len(wanted))
        if self.reach.peers:
            groups = self._groups(some, ahead)
            complete: Flags = (rows < enough) | (groups > wanted)
        else:
            complete = (rows < enough) | (rows - ahead.first >= wanted + ahead.felt)
        return complete

    def _groups(self, some: Leading, ahead: FeltGaps) -> Ints:
        """For each gap the number of groups of peers among its rows that feel no change."""
        which, data = some.which, some.rows.columns[2 + self.width : -1]
        (own,) = keys([peers_of(self.reach)], data, self.types, self.kernel)
        if ahead.felt.any():
            kept = np.flatnonzero(numbers_within(which) >= ahead.first[which])
            which, own = which[kept], own.take(pa.array(kept))
        first = group([which, order.ranks(own)], len(own)).first
        return np.bincount(which[first], minlength=len(ahead.felt))


def _felt(
    felt: tuple[Influence, Leading | None] | None, ahead: Sequence[Leading], gaps: int
) -> FeltGaps:
    """The gaps that feel the influence, given the rows at their ends and those ahead."""
    if felt is None:
        return FeltGaps(np.zeros(gaps, np.bool_), np.zeros(gaps, np.int64))
    influence, near = felt
    return influence.felt([near] if near else [], ahead)
