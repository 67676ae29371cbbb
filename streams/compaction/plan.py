"""Plans merges: which contiguous batches of a collection to replace by one. Pure.

Only batches below upper are considered (rule 2). A run of neighbours is *settled* if all of its
times are at or before since: merged, it is a snapshot at one time, and no later merge can
shrink it. A run of S bytes is worth merging when

    it is settled       and S >= 2 x its largest batch
                        or  S >= 1.3 x its largest batch, and its gain is at least S
    it is not           and S >= 4 x its largest batch

and a merged batch that since has passed in the meantime is rewritten once more, to settle it.
The *gain* of a merge is the amount by which it reduces the potential

    sum of s log2(T / s)    over the batches there are, of s bytes each, T in all

that is the sum of s log2(S / s) over those that it merges.

Cost. A merge rewrites S bytes. Where no batch has more than half of them each s log2(S / s) is
at least s, so the gain is S or more; where none has more than a quarter it is 2 S, of which one
half pays for settling the batch later, which happens at most once. So the bytes rewritten are
at most the potential of the n batches that were written, of s1 .. sn bytes:

    bytes rewritten  <=  sum of si log2(T / si)  <=  T log2 n

(the sum is T times the entropy of the shares, which is greatest when they are equal). Updates
that cancel make batches smaller than the sum of their parts; each of them disappears only once.

Space. Old batches stay until the merged one is linked, so a large batch that waited for one of
its size would temporarily take three times its bytes. It waits for a third of its size, as long
as that comes in several batches and thus pays for rewriting it.

Batches without chunks cost nothing: runs of them are merged, and join any other run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2
from operator import attrgetter

from streams.compaction import chunk_sizes
from streams.ids import Timestamp
from streams.progress import END, Antichain, frontier
from streams.storage.log.batches import Batch
from streams.storage.log.state import CollectionState

SETTLED_FACTOR, EARLY_FACTOR, OPEN_FACTOR = 2, 1.3, 4

LEAST_EMPTY = 8
"""Minimum of neighbouring empty batches for a merge."""

MOST_BATCHES = 100_000
"""Maximum of batches in one merge: an event names each of them, in about thirty bytes."""

NOWHERE = frontier(0)


@dataclass(frozen=True, slots=True)
class Merge:
    """Contiguous batches in order of time, and the time to which theirs are advanced."""

    batches: tuple[Batch, ...]
    since: Timestamp

    @property
    def lower(self) -> Timestamp:
        """The lower of the union."""
        return self.batches[0].lower

    @property
    def upper(self) -> Antichain:
        """The upper of the union."""
        upper = self.batches[0].upper
        for batch in self.batches[1:]:
            upper = upper.join(batch.upper)
        return upper

    @property
    def advance_to(self) -> Timestamp:
        """min(since, upper - 1): times stay inside the new batch (rule 9)."""
        upper = self.upper
        return self.since if upper.is_empty else Timestamp(min(self.since, upper.time - 1))

    @property
    def size(self) -> int:
        """The bytes to read."""
        return sum(map(size, self.batches))

    @property
    def rows(self) -> int:
        """An upper bound on the updates to read."""
        return sum(
            chunk_sizes.rows_of(chunk) for batch in self.batches for chunk in batch.chunks
        )


def size(batch: Batch) -> int:
    """Return the bytes of a batch's chunks."""
    return chunk_sizes.total(batch.chunks)


def geometric(collection: CollectionState) -> tuple[Merge, ...]:
    """Return the merges that are worth their cost, by the rules in the module's header."""
    if collection.since.is_empty:
        return ()
    since = collection.since.time
    runs_ = [run for stretch in stretches(collection) for run in runs(stretch, since)]
    return tuple(Merge(run, since) for run in runs_ if is_worthwhile(run, since))


def whole(collection: CollectionState) -> tuple[Merge, ...]:
    """Return one merge of everything below upper, whatever it costs, on a user's request."""
    if collection.since.is_empty:
        return ()
    since = collection.since.time
    pieces = [
        piece
        for stretch in stretches(collection)
        for start in range(0, len(stretch), MOST_BATCHES)
        for piece in contiguous(stretch[start : start + MOST_BATCHES])
    ]
    return tuple(
        Merge(tuple(stretch), since)
        for stretch in pieces
        if len(stretch) > 1 or may_shrink(stretch[0], since)
    )


def stretches(collection: CollectionState) -> list[list[Batch]]:
    """Return the batches below upper in order of time, cut at gaps."""
    below = [batch for batch in collection.batches if batch.upper.precedes(collection.upper)]
    return contiguous(sorted(below, key=attrgetter("lower", "offset", "part")))


def contiguous(batches: Iterable[Batch]) -> list[list[Batch]]:
    """Return batches in order of time, cut at gaps."""
    cut: list[list[Batch]] = []
    reach = NOWHERE
    for batch in batches:
        if not cut or not (reach.is_empty or batch.lower <= reach.time):
            cut.append([])
            reach = batch.upper
        cut[-1].append(batch)
        reach = reach.join(batch.upper)
    return cut


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours to merge into one, with the sums that decide about extending the run.

    `weight` is the sum of s log2 s over the batches' bytes. The batches cover all times from
    where the first begins to `reach`.
    """

    batches: tuple[Batch, ...]
    total: int
    largest: int
    weight: float
    reach: int


def runs(stretch: Sequence[Batch], since: Timestamp) -> list[tuple[Batch, ...]]:
    """Cut contiguous batches into runs; most runs have one batch, which stays unchanged.

    Like carrying in a binary counter: each batch joins as long a run to its left as the factor
    allows. The sizes of remaining runs fall off geometrically, so the search to the left is
    short. A run has no gaps: a batch that covers a gap of its neighbours has to be included, or
    the run ends.
    """
    stack: list[Run] = []
    passed = 0
    for batch in stretch:
        bytes_ = size(batch)
        stack.append(Run((batch,), bytes_, bytes_, weight(bytes_), top(batch)))
        passed = max(passed, top(batch))
        start = longest(stack, is_settled=passed <= since + 1)
        if start < len(stack) - 1:
            stack[start:] = [joined(stack[start:])]
    return [run.batches for run in stack]


def top(batch: Batch) -> int:
    """Return the upper of a batch as a time; beyond all times if it is empty."""
    return END + 1 if batch.upper.is_empty else batch.upper.time


def weight(bytes_: int) -> float:
    """Return the bytes times their logarithm."""
    return bytes_ * log2(bytes_) if bytes_ else 0.0


def longest(stack: Sequence[Run], *, is_settled: bool) -> int:
    """Return where the longest run at the end of the stack that is worth merging begins."""
    begin, total, largest, heavy = len(stack) - 1, 0, 0, 0.0
    covered: list[tuple[int, int]] = []
    count = 0
    for place in range(len(stack) - 1, -1, -1):
        count += len(stack[place].batches)
        if count > MOST_BATCHES:
            break
        total += stack[place].total
        largest = max(largest, stack[place].largest)
        heavy += stack[place].weight
        cover(covered, stack[place])
        is_whole = len(covered) == 1
        if is_whole and pays(total, largest, weight(total) - heavy, is_settled=is_settled):
            begin = place
    return begin


def cover(covered: list[tuple[int, int]], run: Run) -> None:
    """Add a run's interval to disjoint ones, the earliest last; it begins before all of them.

    Overlapping writers (rule 2) make runs whose gaps only an earlier batch covers.
    """
    reach = run.reach
    while covered and covered[-1][0] <= reach:
        reach = max(reach, covered.pop()[1])
    covered.append((run.batches[0].lower, reach))


def pays(total: int, largest: int, gain: float, *, is_settled: bool) -> bool:
    """Whether a run is worth merging, by the rules in the module's header."""
    if not is_settled:
        return total >= OPEN_FACTOR * largest
    early = total >= EARLY_FACTOR * largest and gain >= total
    return total >= SETTLED_FACTOR * largest or early


def joined(parts: Iterable[Run]) -> Run:
    """Return the concatenation of runs."""
    every = tuple(parts)
    return Run(
        tuple(batch for run in every for batch in run.batches),
        sum(run.total for run in every),
        max(run.largest for run in every),
        sum(run.weight for run in every),
        max(run.reach for run in every),
    )


def is_worthwhile(run: Sequence[Batch], since: Timestamp) -> bool:
    """Whether a run becomes a merge: it has several batches, or one to settle."""
    if len(run) == 1:
        return needs_settling(run[0], since)
    return any(batch.chunks for batch in run) or len(run) >= LEAST_EMPTY


def needs_settling(batch: Batch, since: Timestamp) -> bool:
    """Whether a merged batch has several times, and since has passed all of them."""
    return bool(batch.chunks) and 0 < batch.since < top(batch) - 1 <= since


def may_shrink(batch: Batch, since: Timestamp) -> bool:
    """Whether a batch has times before since that were not advanced yet."""
    to = min(since, top(batch) - 1)
    return bool(batch.chunks) and max(batch.since, batch.lower) < to
