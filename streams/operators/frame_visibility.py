"""Window frames: rows in each row's frame, and rows whose frames contain it.

A row *sees* the rows of its frame. *Peers* are candidates that are equal in the query's ORDER
BY; in a ROWS frame each candidate is its own only peer. A frame is one of two kinds:

    by number   a row sees its own peers, the `back` groups of peers before it and the `ahead`
                groups of peers behind it, counting only rows that exist at the time
    by value    (`plan.window_frames.Span`) a row sees the rows between two values; this does
                not depend on which rows exist, so it is looked up once for each candidate
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.operators.linear import source_of
from streams.operators.ordered_groups import CandidateRows
from streams.operators.running_extremes import deciding_values, ranks
from streams.operators.running_sums import Sums, weights
from streams.plan.window_frames import Reach, Span
from streams.trace.arrange import order
from streams.trace.columns import Ints, one_array
from streams.trace.kernel.kernel import Kernel, arrow_schema

_SUFFIX = 2
"""Bytes of the sort key of an empty text, which makes a BLOB of any key."""


@dataclass(frozen=True, slots=True)
class VisibleRanges:
    """Ranges [first, end) of candidates: those that each candidate sees, and that see it.

    Each array has one entry a candidate: the number of a candidate.
    """

    sees: tuple[Ints, Ints]
    seen: tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class FrameVisibility:
    """Which rows the frame of each candidate contains; the module describes the two kinds.

    `peer` numbers the groups of peers in order; None: each candidate is its own peer.
    `weights` is what each candidate adds to the running sums: all rows behind it see it.
    `extremes` are the ranks of its values for running extremes: the rows behind it see it up to
    the next row with the same or a greater rank.
    """

    back: int
    ahead: int
    peer: Ints | None = None
    ranges: VisibleRanges | None = None
    weights: Sums | None = None
    extremes: tuple[Ints, ...] = ()


def visibility(
    reach: Reach, candidates: CandidateRows, types: Sequence[str], kernel: Kernel
) -> FrameVisibility:
    """The visibility of the candidates, whose columns have these types."""
    if reach.before or reach.extremes:
        return _running(reach, candidates, types, kernel)
    if reach.span is not None:
        return FrameVisibility(0, 0, ranges=_ranges(reach.span, candidates, types, kernel))
    if not reach.peers:
        return FrameVisibility(reach.back, reach.ahead)
    (own,) = keys([peers_of(reach)], candidates.rows.columns, types, kernel)
    begins = np.zeros(len(own), np.int64)
    begins[order.starts([candidates.owner, order.ranks(own)])] = 1
    return FrameVisibility(reach.back, reach.ahead, np.cumsum(begins) - 1)


def _running(
    reach: Reach, candidates: CandidateRows, types: Sequence[str], kernel: Kernel
) -> FrameVisibility:
    columns, amounts = candidates.rows.columns, None
    if reach.before:
        amounts = weights(reach.before, columns, len(candidates.owner)) * ~candidates.apart
    extremes = tuple(
        ranks(extreme, deciding_values(extreme, columns, candidates.values), kernel)
        for extreme in reach.extremes
    )
    plain = visibility(replace(reach, before=(), extremes=()), candidates, types, kernel)
    return replace(plain, weights=amounts, extremes=extremes)


def _ranges(
    span: Span, candidates: CandidateRows, types: Sequence[str], kernel: Kernel
) -> VisibleRanges:
    texts = [*span.sees, *span.seen]
    values = keys(texts, candidates.rows.columns, types, kernel)
    low = np.searchsorted(candidates.owner, candidates.owner)
    high = np.searchsorted(candidates.owner, candidates.owner, "right")
    read = order.reader(candidates.values)
    ends = [
        order.bound(
            read, low, high, upper_bound_of_prefix(key) if last else key, after=bool(last)
        )
        for key, last in zip(values, (0, 1, 0, 1), strict=True)
    ]
    return VisibleRanges((ends[0], ends[1]), (ends[2], ends[3]))


def peers_of(reach: Reach) -> str:
    """Expressions that are equal exactly for peers, as `keys` takes them."""
    return f"create_sort_key({reach.peers}, '', 'ASC NULLS LAST')"


def keys(
    texts: Sequence[str], columns: Sequence[pa.Array], types: Sequence[str], kernel: Kernel
) -> list[pa.Array]:
    """Sort keys of rows without the empty text behind them: what begins all keys of rows."""
    results = evaluated(texts, columns, types, kernel)
    return [pc.binary_slice(key.cast(pa.binary()), 0, -_SUFFIX) for key in results]


def evaluated(
    texts: Sequence[str], columns: Sequence[pa.Array], types: Sequence[str], kernel: Kernel
) -> list[pa.Array]:
    """SQL over the columns `c0 .. cn` of rows, which have these types."""
    size = len(columns[0])
    nothing = pa.array(np.zeros(size, np.int64))
    rows = pa.RecordBatch.from_arrays([*columns, nothing, nothing], schema=arrow_schema(types))
    named = ", ".join(f"{text} AS v{index}" for index, text in enumerate(texts))
    statement = kernel.prepare(f"SELECT {named} FROM {source_of(types)}", t=rows.schema)
    results = statement.run(rows)
    return [one_array(results[f"v{index}"]) for index in range(len(texts))]


def upper_bound_of_prefix(prefix: pa.Array) -> pa.Array:
    """A bound after all keys with this prefix, and before any greater key."""
    end = pa.scalar(b"\xff", pa.binary())
    return pc.binary_join_element_wise(prefix, end, pa.scalar(b"", pa.binary()))
