"""The first rows of groups in a sorted arrangement, from a lower bound on (rule 37).

The arrangement is that of `trace.ordered`, whose runs here have the columns of a row between
the value that orders it and its multiplicity. Cost: O(log n) places of each run for each group,
and what is read from there until the rows wanted are found, whatever the group's size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streams.trace import order, ordered
from streams.trace.columns import Flags, Ints, group
from streams.trace.kernel import Kernel
from streams.trace.ordered import Cursor, Entries, Read
from streams.trace.runs import Run


@dataclass(frozen=True, slots=True)
class Leading:
    """Rows found: which of the groups asked for, the rows as runs have them, their counts.

    For each group in order of value; as many as were wanted, or all there are.
    """

    which: Ints
    rows: pa.RecordBatch
    counts: Ints


def leading(
    runs: Sequence[Run], start: Entries, touched: Entries, wanted: int, kernel: Kernel
) -> Leading | None:
    """For each entry of `start` the first rows of its key from its value on; None for none.

    Rows are counted with their multiplicity until there are `wanted`, or a few more. Values
    among the `touched` are passed over. `start` has a key at most once.
    """
    cursors = [ordered.cursor_at(run, start, largest=False) for run in runs]
    weight = np.zeros(len(start.owner), np.int64)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    reach = max(4, wanted)
    while True:
        left = sum((cursor.left for cursor in cursors), np.zeros(len(weight), np.int64))
        todo = np.flatnonzero((weight < wanted) & (left > 0))
        if not len(todo):
            break
        read = ordered.read_on(cursors, start, todo, reach, kernel)
        live, counts = _judged(cursors, read, start, touched, todo)
        which = todo[read.which[live]]
        np.add.at(weight, which, counts)
        found.append((which, read.cursor[live], read.places[live], counts))
        reach *= 2
    return _gathered(runs, found)


def _judged(
    cursors: Sequence[Cursor], read: Read, start: Entries, touched: Entries, todo: Ints
) -> tuple[Ints, Ints]:
    """The rows read that are there, one of each, and their counts; the cursors move on."""
    number = np.full(int(max(start.owner.max(), touched.owner.max(initial=0))) + 1, -1)
    number[start.owner[todo]] = np.arange(len(todo))
    passed = np.flatnonzero(number[touched.owner] >= 0)
    skipped = touched.compared.take(pa.array(passed))
    ranks = order.ranks(pa.concat_arrays([read.compared, skipped]))
    rank, size = ranks[: len(read.which)], len(read.which)
    judged: Flags = rank < ordered.horizon(cursors, read, rank, todo)[read.which]
    whose = np.concatenate((read.which, number[touched.owner[passed]]))
    ids = group([whose, ranks], len(whose)).ids
    counts = np.zeros(int(ids.max()) + 1, np.int64)
    np.add.at(counts, ids[:size], np.where(read.same, read.counts, 0))
    counts[ids[size:]] = 0
    live = np.flatnonzero(judged & read.same & (counts[ids[:size]] > 0))
    live = live[np.unique(ids[live], return_index=True)[1]]
    live = live[np.lexsort((rank[live], read.which[live]))]
    ordered.move(cursors, read, judged, todo)
    return live, counts[ids[live]]


def _gathered(
    runs: Sequence[Run], found: Sequence[tuple[Ints, Ints, Ints, Ints]]
) -> Leading | None:
    if not found:
        return None
    which, cursor, places, counts = (
        np.concatenate([part[i] for part in found]) for i in range(4)
    )
    parts, order_of = [], np.empty(len(which), np.int64)
    done = 0
    for index, run in enumerate(runs):
        mine = np.flatnonzero(cursor == index)
        order_of[mine] = done + np.arange(len(mine))
        parts.append(run.rows.take(pa.array(places[mine])))
        done += len(mine)
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return Leading(which, rows.take(pa.array(order_of)), counts)
