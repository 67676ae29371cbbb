"""Merges sorted runs one piece at a time, in bounded memory.

The rows of sorted parts that lie in one range of the order can be merged independently of the
other rows; the results of the ranges, in order, are the whole merge:

    merge(p, q) = merge(p | range 1, q | range 1), merge(p | range 2, q | range 2), ...

The ranges end at values sampled from the `n` parts. Between two adjacent samples, each part has
fewer rows than between two adjacent samples of its own. With `4 n` samples a piece, every piece
is filled to at least three quarters of the limit and never exceeds it, except that equal rows
stay in one piece, however many they are. (A row's bytes are the average of its part.)

Cost: O(s n log m) for s samples of parts of m rows, beside the merge itself.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streams.trace.columns import Ints, ascending, uint64

_SAMPLES = 4


def by_hash(parts: Sequence[pa.RecordBatch], limit: int) -> Iterator[list[pa.RecordBatch]]:
    """The parts in pieces of at most `limit` bytes, or of one hash; hashes ascend.

    The first column of a part is its hashes; a part in any order is sorted by them first,
    stably, when there is more than one piece. The parts of a piece come in the order given.
    """
    if buffer_bytes(parts) <= limit:
        yield list(parts)
        return
    parts = [_sorted(part) for part in parts]
    columns = [uint64(part.column(0)) for part in parts]
    at = sample_positions(parts, limit)
    samples = np.unique(np.concatenate([c[i] for c, i in zip(columns, at, strict=True)]))
    places = [
        np.concatenate([np.searchsorted(column, samples, side) for side in ("left", "right")])
        for column in columns
    ]
    yield from cut(parts, places, limit)


def sample_positions(parts: Sequence[pa.RecordBatch], limit: int) -> list[Ints]:
    """The places of each part to take samples from, as dense as pieces of `limit` bytes ask."""
    result = []
    for part in parts:
        step = int(limit / (_SAMPLES * len(parts) * _width(part)))
        result.append(np.arange(0, part.num_rows, max(step, 1)))
    return result


def cut(
    parts: Sequence[pa.RecordBatch], places: Sequence[Ints], limit: int
) -> Iterator[list[pa.RecordBatch]]:
    """The parts in pieces that end at some of the possible cuts: as few as fit the limit.

    `places` says of each part how many of its rows come before each cut. The cuts come in any
    order: one that is before another has nowhere more rows before it.
    """
    before = np.zeros(len(places[0]))
    for part, at in zip(parts, places, strict=True):
        before += at * _width(part)
    order = np.argsort(before, kind="stable")
    before = before[order]
    starts, done = [0] * len(parts), 0
    while done < len(order):
        filled = before[done - 1] if done else 0.0
        done = max(int(np.searchsorted(before, filled + limit, "right")), done + 1)
        ends = [int(at[order[done - 1]]) for at in places]
        yield from _between(parts, starts, ends)
        starts = ends
    yield from _between(parts, starts, [part.num_rows for part in parts])


def _between(
    parts: Sequence[pa.RecordBatch], starts: Sequence[int], ends: Sequence[int]
) -> Iterator[list[pa.RecordBatch]]:
    """The rows between two cuts, if there are any."""
    piece = [
        part.slice(start, end - start)
        for part, start, end in zip(parts, starts, ends, strict=True)
        if start < end
    ]
    if piece:
        yield piece


def coalesce(pieces: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of at least half of `limit` bytes, except the last.

    So there are few of them, though most of what was merged may have gone.
    """
    waiting: list[pa.RecordBatch] = []
    for piece in pieces:
        if piece.num_rows:
            waiting.append(piece)
        if 2 * buffer_bytes(waiting) >= limit:
            yield _together(waiting)
            waiting = []
    if waiting:
        yield _together(waiting)


def size_of(parts: Sequence[pa.RecordBatch]) -> int:
    """The bytes of these rows."""
    return sum(part.nbytes for part in parts)


def buffer_bytes(parts: Sequence[pa.RecordBatch]) -> int:
    """The bytes of the buffers that rows lie in: told in no time, and more than a slice's."""
    return sum(part.get_total_buffer_size() for part in parts)


def _together(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _width(part: pa.RecordBatch) -> float:
    """The bytes of a row, on average."""
    return max(float(part.nbytes) / max(int(part.num_rows), 1), 1.0)


def _sorted(part: pa.RecordBatch) -> pa.RecordBatch:
    hashes = uint64(part.column(0))
    return part if (hashes[1:] >= hashes[:-1]).all() else part.take(pa.array(ascending(hashes)))
