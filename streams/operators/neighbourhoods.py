"""The rows around changes in ordered groups, at every interesting time, as arrays.

A *cell* is a candidate (`ordered_groups.CandidateRows`) at a moment. At moment j the cells of a
group in order are its rows just before j and from j on; where the counts of the two differ
there is a change. Around each change lie

    wanted     the rows that see the change: by number the `ahead` rows before it and the
               `back` rows behind it, or as many groups of peers; by value those of
               `frame_visibility`; for a running extreme the rows behind it up to the one from
               which on the extreme is unchanged
    shown      the wanted rows and the rows that they see

on both sides of the moment, counting only rows that exist there. A *piece* is a sequence of
adjacent shown cells on one side of a moment: it can be evaluated as its own partition.

A group with many moments is bisected: the cells of a block of moments are the candidates that
change in it, and as many of the others as these changes may need. Each half selects its cells
from those of the whole block, until every block is one moment. So c changes that need r
candidates each visit O(c r log(times)) cells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streams.operators.frame_visibility import FrameVisibility
from streams.operators.interesting_times import InterestingTimes
from streams.operators.ordered_groups import CandidateRows
from streams.operators.running_extremes import RunningRanks, running_ranks
from streams.operators.running_sums import Sums, summed
from streams.trace.columns import Flags, Ints, spans
from streams.trace.exact.diffs import add_diffs, products

MOST_CELLS = 1 << 18
"""Cells that are looked at together, unless one moment has more."""


@dataclass(frozen=True, slots=True)
class NeighbourhoodRows:
    """Pieces: `moment` has the moment of each, `after` whether it has the rows from then on.

    For each shown cell there are its piece, its candidate (`entry`), the count of that and
    whether it is wanted. `before` has the sums over the rows before each piece, and `deciding`
    the candidates that determine extremes there, or -1: a row for each sum or extreme.
    """

    moment: Ints
    after: Flags
    piece: Ints
    entry: Ints
    counts: Ints
    wanted: Flags
    before: Sums
    deciding: Ints


@dataclass(frozen=True, slots=True)
class _Segments:
    """Segments of an array: the start and end of each, and the segment of each element."""

    start: Ints
    end: Ints
    which: Ints

    def around(self, there: Flags, places: Ints, before: int, behind: int) -> tuple[Ints, Ints]:
        """The range from each place over this many present elements on either side."""
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
class _Cells:
    """Cells in segments, each with its candidate (ascending in a segment), and their frames.

    `peers` are segments over the peers of each segment, whose cells begin at `first`; cell i
    is one of the peers `peer[i]`.
    """

    of: _Segments
    entry: Ints
    sight: FrameVisibility
    peers: _Segments
    first: Ints
    peer: Ints

    def seen(self, there: Flags, places: Ints) -> tuple[Ints, Ints]:
        """The first and the last cell that see each of these, or are its peers."""
        ranges, sight = self.sight.ranges, self.sight
        if ranges is not None:
            return self._valued(ranges.seen, places, places)
        low, high = self._counted(there, (places, places), sight.ahead, sight.back)
        if sight.weights is not None:
            high = self.of.end[self.of.which[places]] - 1
        return low, high

    def sees(self, there: Flags, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The first cell that those at `low` see, and the last that those at `high` do."""
        ranges, sight = self.sight.ranges, self.sight
        if ranges is None:
            return self._counted(there, (low, high), sight.back, sight.ahead)
        return self._valued(ranges.sees, low, high)

    def deciding(self, there: Flags) -> list[RunningRanks]:
        """For each extreme the greatest rank so far at each cell, over the cells `there`."""
        which, entry = self.of.which, self.entry
        return [running_ranks(which, rank[entry], there) for rank in self.sight.extremes]

    def before(self, there: Flags, places: Ints) -> Ints:
        """For each extreme the candidate that determines it before each place, or -1."""
        cells = [running.before(places) for running in self.deciding(there)]
        some = np.stack(cells) if cells else np.empty((0, len(places)), np.int64)
        return np.where(some < 0, -1, self.entry[some])

    def felt(self, there: Flags, high: Ints, places: Ints) -> Ints:
        """The last cell that feels these, which come and go; at least that at `high`."""
        for running, rank in zip(self.deciding(there), self.sight.extremes, strict=True):
            reached = running.reaching(places, rank[self.entry[places]])
            end = np.minimum(reached, self.of.end[self.of.which[places]])
            high = np.maximum(high, end - 1)
        return high

    def decisive(self, there: Flags, low: Ints, places: Ints) -> Ints:
        """The cells that decide before those at `low`, and the first that feel no `places`."""
        some = [np.empty(0, np.int64)]
        for running, rank in zip(self.deciding(there), self.sight.extremes, strict=True):
            reached = running.reaching(places, rank[self.entry[places]])
            inside = reached < self.of.end[self.of.which[places]]
            before = running.before(low)
            some += [reached[inside], before[before >= 0]]
        return np.concatenate(some)

    def places(self, which: Ints, entry: Ints, side: Literal["left", "right"] = "left") -> Ints:
        """The positions of candidates in segments, present or not."""
        size = int(self.entry.max(initial=0)) + 2
        codes = self.of.which * size + self.entry
        return np.searchsorted(codes, which * size + np.minimum(entry, size - 1), side)

    def _counted(
        self, there: Flags, ends: tuple[Ints, Ints], before: int, behind: int
    ) -> tuple[Ints, Ints]:
        """The range over this many present peers before and after."""
        if len(self.first) == len(there):  # each is alone
            low, _ = self.of.around(there, ends[0], before, 0)
            return low, self.of.around(there, ends[1], 0, behind)[1]
        some = np.logical_or.reduceat(there, self.first)
        low, _ = self.peers.around(some, self.peer[ends[0]], before, 0)
        _, high = self.peers.around(some, self.peer[ends[1]], 0, behind)
        return self.first[low], np.append(self.first, len(there))[high + 1] - 1

    def _valued(self, ends: tuple[Ints, Ints], low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The cells of the candidates from the first one's `ends` to the other's."""
        which, entry = self.of.which, self.entry
        begin = self.places(which[low], ends[0][entry[low]])
        end = self.places(which[high], ends[1][entry[high]]) - 1
        return np.minimum(begin, low), np.maximum(end, high)


def _cells(sizes: Ints, entry: Ints, sight: FrameVisibility) -> _Cells:
    of = _segments(sizes)
    if sight.peer is None:
        entries = np.arange(len(entry))
        return _Cells(of, entry, sight, of, entries, entries)
    peer = sight.peer[entry]
    begins = np.ones(len(entry), np.bool_)
    begins[1:] = (peer[1:] != peer[:-1]) | (of.which[1:] != of.which[:-1])
    first = np.flatnonzero(begins)
    peers = _segments(np.bincount(of.which[first], minlength=len(sizes)))
    return _Cells(of, entry, sight, peers, first, np.cumsum(begins) - 1)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The moments [first, last) of each block, and its cells, of which it has `sizes` many.

    `before` are the numbers over the rows of its group before the cells, a column a block.
    """

    first: Ints
    last: Ints
    sizes: Ints
    entry: Ints
    before: Sums

    def choose(self, places: Ints) -> "_Blocks":
        """Only these blocks."""
        begin = (np.cumsum(self.sizes) - self.sizes)[places]
        entry = self.entry[spans(begin, self.sizes[places])]
        return _Blocks(
            self.first[places],
            self.last[places],
            self.sizes[places],
            entry,
            self.before[:, places],
        )

    def halved(self) -> "_Blocks":
        """The halves of each block, with the cells of the whole."""
        twice = self.choose(np.repeat(np.arange(len(self.first)), 2))
        middle = (self.first + self.last) >> 1
        first = np.column_stack((self.first, middle)).ravel()
        last = np.column_stack((middle, self.last)).ravel()
        return _Blocks(first, last, twice.sizes, twice.entry, twice.before)


@dataclass(frozen=True, slots=True)
class Neighbourhoods:
    """Computes the pieces of all moments. Groups that are `whole` are one neighbourhood."""

    candidates: CandidateRows
    moments: InterestingTimes
    sight: FrameVisibility
    whole: Flags
    by_moment: Ints
    """The changes in the order of their moments."""
    before: Sums
    """The numbers over the rows of each group before its candidates."""

    def part(self, blocks: _Blocks) -> NeighbourhoodRows:
        """The pieces of blocks of one moment each."""
        cells, moment = _cells(blocks.sizes, blocks.entry, self.sight), blocks.first
        own = cells.of.which
        both = [self.candidates.counts(cells.entry, moment[own] - 1 + side) for side in (0, 1)]
        changed = np.flatnonzero(both[0] != both[1])  # from below 0 to 0 too: the group heals
        counts = [np.maximum(bound, 0) for bound in both]
        whole = self.whole[self.moments.owner[moment]]
        low, high = _ends(cells, counts, changed, whole[own[changed]])
        steady = self.candidates.steady[cells.entry]
        still = ((both[0] == both[1]) | steady) & (counts[0] > 0)
        high = np.where(steady[changed], high, cells.felt(still, high, changed))
        wanted = cells.of.marked(low, high)
        shown = [cells.of.marked(*cells.sees(side > 0, low, high)) for side in counts]
        if self.sight.weights is not None:
            shown = [~self.candidates.apart[cells.entry]] * 2
        return _joined(cells, blocks, counts, (wanted, shown))

    def all_(self) -> _Blocks:
        """A block for each group, of all its candidates."""
        first, last = self.moments.bounds
        sizes = np.bincount(self.candidates.owner, minlength=len(first))
        return _Blocks(first, last, sizes, np.arange(len(self.candidates.owner)), self.before)

    def near(self, blocks: _Blocks) -> _Blocks:
        """The blocks with only the cells that are near to their changes."""
        cells = _cells(blocks.sizes, blocks.entry, self.sight)
        own = cells.of.which
        changed = np.zeros(len(cells.entry), np.bool_)
        changed[self._changed(blocks, cells)] = True
        there = self.candidates.counts(cells.entry, blocks.first[own] - 1) > 0
        still, steady = ~changed & there, self.candidates.steady[cells.entry]
        places = np.flatnonzero(changed)
        low, high = cells.seen(still, places)
        lasting = (still | steady) & there
        high = np.where(steady[places], high, cells.felt(lasting, high, places))
        low, high = cells.sees(still, low, high)
        near = cells.of.marked(low, high) | self.whole[self.moments.owner[blocks.first]][own]
        near[cells.decisive(lasting, low, places)] = True
        affected = np.flatnonzero(near & (changed | still))
        sizes = np.bincount(own[affected], minlength=len(blocks.first))
        before = blocks.before
        if self.sight.weights is not None:  # what is left out is before all that is kept
            left = np.flatnonzero(still & ~near)
            counts = self.candidates.counts(cells.entry[left], blocks.first[own[left]] - 1)
            amounts = products(self.sight.weights[:, cells.entry[left]], counts)
            before = add_diffs(before, summed(amounts, own[left], len(blocks.first)))
        return _Blocks(blocks.first, blocks.last, sizes, cells.entry[affected], before)

    def _changed(self, blocks: _Blocks, cells: _Cells) -> Ints:
        """The cells whose count changes within their block."""
        candidates, ends = self.candidates, [blocks.first[0], blocks.last[-1]]
        low, high = np.searchsorted(candidates.moment[self.by_moment], ends)
        mine = self.by_moment[low:high]
        block = np.searchsorted(blocks.first, candidates.moment[mine], "right") - 1
        inside = candidates.moment[mine] < blocks.last[block]
        return cells.places(block[inside], candidates.entry[mine][inside])


def _ends(
    cells: _Cells, counts: Sequence[Ints], changed: Ints, whole: Flags
) -> tuple[Ints, Ints]:
    """For each change, the first and the last cell that sees it."""
    sides = [cells.seen(side > 0, changed) for side in counts]
    low = np.minimum(sides[0][0], sides[1][0])
    high = np.maximum(sides[0][1], sides[1][1])
    own = cells.of.which[changed]
    low = np.where(whole, cells.of.start[own], low)
    return low, np.where(whole, cells.of.end[own] - 1, high)


def _joined(
    of: _Cells,
    blocks: _Blocks,
    counts: Sequence[Ints],
    marks: tuple[Flags, Sequence[Flags]],
) -> NeighbourhoodRows:
    """The pieces of both sides of the moments, one side after the other."""
    (wanted, shown), cells = marks, of.of
    place_lists: list[Ints] = []
    deciding: list[Ints] = []
    pieces, candidate_lists, count = [], [], 0
    for side, own in zip(counts, shown, strict=True):
        begins = own.copy()
        begins[1:] &= ~own[:-1] | (cells.which[1:] != cells.which[:-1])
        piece = np.cumsum(begins) - 1 + count
        some = np.flatnonzero(own & (side > 0))
        place_lists.append(cells.which[begins])
        deciding.append(of.before(side > 0, np.flatnonzero(begins)))
        count += len(place_lists[-1])
        pieces.append(piece[some])
        candidate_lists.append(some)
    after = np.repeat(np.array([False, True]), [len(places) for places in place_lists])
    both = np.concatenate(candidate_lists)
    there = [side[some] for side, some in zip(counts, candidate_lists, strict=True)]
    block = np.concatenate(place_lists)
    return NeighbourhoodRows(
        blocks.first[block],
        after,
        np.concatenate(pieces),
        of.entry[both],
        np.concatenate(there),
        wanted[both],
        blocks.before[:, block],
        np.concatenate(deciding, axis=1),
    )


def neighbourhoods(
    candidates: CandidateRows,
    moments: InterestingTimes,
    sight: FrameVisibility,
    whole: Flags,
    before: Sums,
) -> Iterator[NeighbourhoodRows]:
    """The neighbourhoods of all changes, some at a time.

    Args:
        candidates: the candidates of the changed groups.
        moments: the moments.
        sight: how far the candidates see.
        whole: the groups of which everything is one neighbourhood.
        before: the numbers over the rows of each group before its candidates.
    """
    by_moment = np.argsort(candidates.moment, kind="stable")
    result = Neighbourhoods(candidates, moments, sight, whole, by_moment, before)
    todo = [result.all_()]
    while todo:
        blocks = todo.pop()
        middle = _middle(blocks.sizes)
        if middle:
            todo += [blocks.choose(np.arange(middle, len(blocks.first)))]
            todo += [blocks.choose(np.arange(middle))]
            continue
        single = blocks.last - blocks.first == 1
        if single.any():
            yield result.part(blocks.choose(np.flatnonzero(single)))
        if not single.all():
            todo.append(result.near(blocks.choose(np.flatnonzero(~single)).halved()))


def _middle(sizes: Ints) -> int:
    """The positions at which to split blocks with too many cells; 0 to keep them together."""
    ends = np.cumsum(sizes)
    if ends[-1] <= MOST_CELLS:
        return 0
    return min(max(int(np.searchsorted(ends, ends[-1] // 2)), 1), len(sizes) - 1)
