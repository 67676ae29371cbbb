"""The neighbourhoods of changes in ordered groups, at every moment, side by side.

A *cell* is a candidate (`ranked.Candidates`) at a moment. At moment j the cells of a group in
order are its rows just before j and from j on; where the counts of the two differ there is a
change. Around each change lie

    wanted     the `ahead` rows before it and the `back` rows behind it: they see the change
    shown      and `back` rows before these, `ahead` rows behind: what the wanted ones see

each counted among the rows that are there, on both sides of the moment. A *piece* is a run of
cells that are shown, on one side of a moment: it can be evaluated as a partition of its own.

A group with many moments is cut into blocks of some, whose cells are only the candidates near
to what changes within the block: for n candidates and c changes a moment, of which each makes
r candidates cells, blocks of sqrt(n / (c r)) moments cost the least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streams.operators.moments import Moments
from streams.operators.ranked import Candidates
from streams.plan.physical import Reach
from streams.trace.columns import Flags, Ints, spans

MOST_CELLS = 1 << 18
"""Cells that are looked at together, unless one moment has more."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces: `moment` has the moment of each, `after` whether it is as from then on.

    For each cell shown there are its piece, its candidate, how often that is there and whether
    it is wanted.
    """

    moment: Ints
    after: Flags
    piece: Ints
    entry: Ints
    counts: Ints
    wanted: Flags


@dataclass(frozen=True, slots=True)
class _Segments:
    """Stretches of a long array: where each begins and ends, and which an element is of."""

    start: Ints
    end: Ints
    which: Ints

    def around(self, there: Flags, places: Ints, before: int, behind: int) -> tuple[Ints, Ints]:
        """From each place as far as so many elements that are there on either side."""
        upto = np.cumsum(there)
        own = self.which[places]
        first = np.searchsorted(upto, upto[places] - there[places] - before + 1)
        last = np.searchsorted(upto, upto[places] + behind)
        low: Ints = np.maximum(np.minimum(first, places), self.start[own])
        high: Ints = np.minimum(np.maximum(last, places), self.end[own] - 1)
        return low, high

    def marked(self, low: Ints, high: Ints) -> Flags:
        """The elements of the ranges [low, high]."""
        edges = np.zeros(len(self.which) + 1, np.int64)
        np.add.at(edges, low, 1)
        np.add.at(edges, high + 1, -1)
        return np.cumsum(edges[:-1]) > 0


def _segments(sizes: Ints) -> _Segments:
    ends = np.cumsum(sizes)
    return _Segments(ends - sizes, ends, np.repeat(np.arange(len(sizes)), sizes))


@dataclass(frozen=True, slots=True)
class Neighbourhoods:
    """See the module. Groups that are `whole` are one neighbourhood."""

    held: Candidates
    moments: Moments
    reach: Reach
    whole: Flags
    by_moment: Ints
    """The changes in the order of their moments."""

    def part(self, first: Ints, last: Ints) -> Part:
        """The pieces of blocks: the moments [first, last) of each, one block after another."""
        blocks, entry = self._near(first, last)
        times = last - first
        block = np.repeat(np.arange(len(first)), times)
        sizes = (blocks.end - blocks.start)[block]
        cells = _segments(sizes)
        entry = entry[spans(blocks.start[block], sizes)]
        moment = np.arange(int(first[0]), int(last[-1]))
        both = [self.held.counts(entry, moment[cells.which] - 1 + side) for side in (0, 1)]
        changed = np.flatnonzero(both[0] != both[1])  # from below 0 to 0 too: the group heals
        counts = [np.maximum(each, 0) for each in both]
        whole = self.whole[self.moments.owner[moment]]
        ends = self._ends(cells, counts, changed, whole[cells.which[changed]])
        wanted = cells.marked(*ends)
        shown = [self._shown(cells, side > 0, ends) for side in counts]
        return _joined(cells, entry, moment, counts, (wanted, shown))

    def _ends(
        self, cells: _Segments, counts: Sequence[Ints], changed: Ints, whole: Flags
    ) -> tuple[Ints, Ints]:
        """Of each change the first and the last cell that sees it."""
        ahead, back = self.reach.ahead, self.reach.back
        sides = [cells.around(side > 0, changed, ahead, back) for side in counts]
        low = np.minimum(sides[0][0], sides[1][0])
        high = np.maximum(sides[0][1], sides[1][1])
        own = cells.which[changed]
        low = np.where(whole, cells.start[own], low)
        return low, np.where(whole, cells.end[own] - 1, high)

    def _shown(self, cells: _Segments, there: Flags, ends: tuple[Ints, Ints]) -> Flags:
        """The cells that the wanted ones see on one side of their moment."""
        low, _ = cells.around(there, ends[0], self.reach.back, 0)
        _, high = cells.around(there, ends[1], 0, self.reach.ahead)
        return cells.marked(low, high)

    def _near(self, first: Ints, last: Ints) -> tuple[_Segments, Ints]:
        """For each block the candidates near to its changes."""
        held, reach = self.held, self.reach
        owner = self.moments.owner[first]
        begin = np.searchsorted(held.owner, owner)
        sizes = np.searchsorted(held.owner, owner, "right") - begin
        all_ = _segments(sizes)
        entry = spans(begin, sizes)
        changed = np.zeros(len(entry), np.bool_)
        low, high = np.searchsorted(held.moment[self.by_moment], [first[0], last[-1]])
        mine = self.by_moment[low:high]
        block = np.searchsorted(first, held.moment[mine], "right") - 1
        changed[all_.start[block] + held.entry[mine] - begin[block]] = True
        still = ~changed & (held.counts(entry, first[all_.which] - 1) > 0)
        places, far = np.flatnonzero(changed), reach.back + reach.ahead
        ends = all_.around(still, places, far, far)
        near = all_.marked(*ends) | self.whole[owner][all_.which]
        kept = np.flatnonzero(near & (changed | still))
        counts = np.bincount(all_.which[kept], minlength=len(first))
        return _segments(counts), entry[kept]


def _joined(
    cells: _Segments,
    entry: Ints,
    moment: Ints,
    counts: Sequence[Ints],
    marks: tuple[Flags, Sequence[Flags]],
) -> Part:
    """The pieces of both sides of the moments, one side after the other."""
    wanted, shown = marks
    moments: list[Ints] = []
    pieces, kept, count = [], [], 0
    for side, own in zip(counts, shown, strict=True):
        begins = own.copy()
        begins[1:] &= ~own[:-1] | (cells.which[1:] != cells.which[:-1])
        piece = np.cumsum(begins) - 1 + count
        some = np.flatnonzero(own & (side > 0))
        moments.append(moment[cells.which[begins]])
        count += len(moments[-1])
        pieces.append(piece[some])
        kept.append(some)
    after = np.repeat(np.array([False, True]), [len(each) for each in moments])
    both = np.concatenate(kept)
    there = [side[some] for side, some in zip(counts, kept, strict=True)]
    return Part(
        np.concatenate(moments),
        after,
        np.concatenate(pieces),
        entry[both],
        np.concatenate(there),
        wanted[both],
    )


def neighbourhoods(
    held: Candidates, moments: Moments, reach: Reach, whole: Flags
) -> Iterator[Part]:
    """The neighbourhoods of all changes, some at a time.

    Args:
        held: the candidates of the changed groups.
        moments: the moments.
        reach: how far outputs look.
        whole: the groups of which everything is one neighbourhood.
    """
    by_moment = np.argsort(held.moment, kind="stable")
    found = Neighbourhoods(held, moments, reach, whole, by_moment)
    first, last, cells = _blocks(held, moments, reach, whole)
    ends, start = np.cumsum(cells), 0
    while start < len(first):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + MOST_CELLS, "right")), start + 1)
        yield found.part(first[start:end], last[start:end])
        start = end


def _blocks(
    held: Candidates, moments: Moments, reach: Reach, whole: Flags
) -> tuple[Ints, Ints, Ints]:
    """The first moment of each block and the one after its last, and its cost in cells."""
    first, end = moments.bounds
    times, groups = end - first, len(first)
    sizes = np.bincount(held.owner, minlength=groups)
    changes = np.bincount(held.owner[held.entry], minlength=groups) / times
    each = np.where(whole, sizes, changes * (1 + 2 * (reach.back + reach.ahead)))
    best = np.clip(np.sqrt(sizes / np.maximum(each, 1)).astype(np.int64), 1, times)
    counts = -(-times // best)
    owner = np.repeat(np.arange(groups), counts)
    begins = first[owner] + spans(np.zeros(groups, np.int64), counts) * best[owner]
    ends = np.minimum(begins + best[owner], end[owner])
    near = np.minimum(sizes[owner], each[owner] * (ends - begins))
    return begins, ends, (sizes[owner] + (ends - begins) * near).astype(np.int64)
