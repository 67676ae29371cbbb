"""When to cancel a micro-batch whose tasks run, and what that says of its dataflows. Pure.

One that is over its deadline hangs, as far as we know: that is a failure of its dataflows. Two
others are cancelled because they are in the way, and done again as they were: one that holds up
the dropping of a dataflow, and one of a convict, whose deadline grows with each conviction, in
front of a dataflow that was convicted less often.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streams.replica import causes
from streams.replica.scheduler import MicroBatch
from streams.replica.trouble import Failure, Kind

DROP_S = 5.0
"""After so long a micro-batch is given up for the sake of a dataflow of it that was dropped."""


@dataclass(slots=True)
class Watched:
    """A micro-batch whose tasks run, since when, and when it was cancelled, if it was.

    Times are of the monotonic clock, in seconds.
    """

    batch: MicroBatch
    began: float
    cancelled: float | None = None

    def is_over(self, now: float, is_in_the_way: Callable[[MicroBatch], bool]) -> bool:
        """Whether to cancel it."""
        took_s, deadline = now - self.began, self.batch.deadline
        if took_s > deadline.own_s:
            return True
        if took_s > DROP_S and any(flow.gone for flow in self.batch.flows()):
            return True
        return took_s > deadline.common_s and is_in_the_way(self.batch)

    def failure(self, error: Exception) -> Failure | None:
        """What its failure means; None when it may be done again as it was."""
        if self.cancelled is None:
            return None if causes.is_cancelled(error) else causes.failure_of(error)
        took_s = self.cancelled - self.began
        if took_s <= self.batch.deadline.own_s:
            return None
        return Failure(f"took longer than {took_s:.0f} s", Kind.HUNG, round(took_s * 1000))
