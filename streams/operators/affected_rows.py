"""The unchanged rows near changed ones: all rows that a window frame may need.

Between two touched rows of a group lies a *gap*, in which no change touches anything. Of it the
neighbourhoods of any time see at most the `back + ahead` first rows and as many last ones, or
as many groups of peers, or the rows whose values are near enough to those at its ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.frame_visibility import keys, peers_of, upper_bound_of_prefix
from streams.operators.interesting_times import InterestingTimes
from streams.operators.min_max import AffectedValues
from streams.operators.ordered_groups import ChangedRows, UnchangedRows
from streams.plan.physical import Reach, Span
from streams.trace.arrange import order
from streams.trace.arrange.first_rows import Gaps, Leading, concatenate, first_rows_in_ranges
from streams.trace.arrange.runs import Run
from streams.trace.columns import Flags, Ints, group
from streams.trace.kernel.kernel import Kernel

_ALL = 1 << 40
"""More rows than a group can have."""
_GROWTH = 4


def unchanged_rows(
    reach: Reach, runs: Sequence[Run], changed: ChangedRows, whole: Flags, kernel: Kernel
) -> list[UnchangedRows]:
    """The rows in the gaps that a neighbourhood may need; of `whole` groups all."""
    if not runs:
        return []
    touched, width = changed.touched, len(changed.moments.keys)
    columns = changed.rows.take(pa.array(touched.place)).columns[:-2]
    between = _between(touched, changed.moments)
    search = _Search(reach, runs, columns, changed.types, width, whole, kernel)
    nearby = [search.near(between, last=last) for last in (False, True)]
    return [
        UnchangedRows(between.owner[s.which], s.rows, s.counts) for s in nearby if s is not None
    ]


@dataclass(frozen=True, slots=True)
class _Between:
    """The gaps, whose each is, and the numbers of the touched rows at its ends, or NULL."""

    gaps: Gaps
    owner: Ints
    before: pa.Array
    behind: pa.Array


def _between(touched: AffectedValues, moments: InterestingTimes) -> _Between:
    """The rows before, between and after the touched rows of each group."""
    sizes = np.bincount(touched.owner, minlength=len(moments.hashes)) + 1
    owner = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes)
    begins, stops = np.ones(len(owner), np.bool_), np.ones(len(owner), np.bool_)
    begins[ends - sizes] = False
    stops[ends - 1] = False
    place = np.arange(len(owner)) - owner
    values = touched.compared.take(pa.array(touched.place))
    keys_ = [form.take(pa.array(owner)) for form in moments.forms]
    before = pa.array(place - 1, mask=~begins)
    behind = pa.array(place, mask=~stops)
    gaps = Gaps(keys_, moments.hashes[owner], values.take(before), values.take(behind))
    return _Between(gaps, owner, before, behind)


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

    def near(self, between: _Between, *, last: bool) -> Leading | None:
        """For each gap, the rows after its beginning, or for `last` those before its end."""
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
        elif reach.peers:
            return self._of_peers(gaps, np.where(is_anchored, wanted + 1, wanted), last=last)
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

    def _of_peers(self, gaps: Gaps, wanted: Ints, *, last: bool) -> Leading | None:
        """The first groups of peers in the gaps, or the last: `wanted` ones with all of theirs.

        The first peers count though they may be those of the row at the end of the gap.
        """
        todo, enough = np.flatnonzero(wanted > 0), wanted
        leading: list[Leading] = []
        while len(todo):
            some = first_rows_in_ranges(
                self.runs, gaps.choose(todo), enough[todo], self.kernel, last=last
            )
            if some is None:
                break
            done = self._complete(some, wanted[todo], enough[todo])
            unfinished = np.flatnonzero(done[some.which])
            leading.append(some.choose(unfinished, todo[some.which[unfinished]]))
            todo, enough = todo[~done], enough * _GROWTH
        return concatenate(leading)

    def _complete(self, some: Leading, wanted: Ints, enough: Ints) -> Flags:
        """Whether nothing is left of a gap, or a group of peers begins that is not wanted."""
        rows = np.bincount(some.which, minlength=len(wanted))
        data = some.rows.columns[2 + self.width : -1]
        (own,) = keys([peers_of(self.reach)], data, self.types, self.kernel)
        first = group([some.which, order.ranks(own)], len(own)).first
        groups = np.bincount(some.which[first], minlength=len(wanted))
        complete: Flags = (rows < enough) | (groups > wanted)
        return complete
