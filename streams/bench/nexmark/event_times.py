"""Event times of a case with EMIT ON CLOSE: which rows are due in a micro-batch, and its upper.

As a source with a watermark does it: the watermark is the greatest event time, the least one of
the workers, less the delay. A row at or beyond it is pending, and comes in a later micro-batch.
The last one closes all windows, as the end of its input does for a peer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import SynchronizedArray
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from streams.progress import Interval, interval_of
from streams.trace.columns import Ints, int64, one_array

DELAY_MS = 1_000
HORIZON_MS = 86_400_000
"""How far beyond the last event time the last micro-batch goes."""

Greatest: TypeAlias = "SynchronizedArray[int]"
"""The greatest event time that each worker has read, in shared memory."""


@dataclass(slots=True)
class EventTimes:
    """One worker's rows that are pending, and the time before which all are out."""

    number: int
    greatest: Greatest
    meet: Callable[[], None]
    """Returns when all workers have called it."""
    upper: int = 1
    pending: list[pa.Table] = field(default_factory=list)

    def due(self, rows: pa.Table, *, is_last: bool) -> tuple[Interval, pa.Table]:
        """Return the next interval, and the rows in it. Shape: `rows` have time and diff."""
        times = int64(one_array(rows.column("time")))
        lower, self.upper = self.upper, self._watermark(times, is_last=is_last)
        assert lower < self.upper, "events come in the order of their times"
        events = pa.concat_tables([*self.pending, rows])
        is_due = pa.array(int64(one_array(events.column("time"))) < self.upper)
        self.pending = [events.filter(pa.compute.invert(is_due))]
        return interval_of(lower, self.upper), events.filter(is_due)

    def _watermark(self, times: Ints, *, is_last: bool) -> int:
        self.greatest[self.number] = int(times.max(initial=self.upper))
        self.meet()
        of_all: Sequence[int] = self.greatest[:]
        self.meet()  # before the next ones are written
        return max(of_all) + HORIZON_MS if is_last else max(self.upper, min(of_all) - DELAY_MS)


def milliseconds(moments: pa.ChunkedArray) -> Ints:
    """Return TIMESTAMP values as event times."""
    whole = moments.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    return np.asarray(int64(one_array(whole)))
