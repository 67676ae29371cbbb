"""Decides when to cancel a micro-batch or restart a lane, and who is to blame. Pure.

A micro-batch beyond its deadline is assumed to hang: that is a failure of its dataflows. Two
others are cancelled because they block, and are repeated unchanged: one that delays the drop of
a dataflow, and one of a convicted dataflow, whose deadline grows with each conviction, while a
dataflow with fewer convictions waits.

Before its tasks run a micro-batch is with Spark: it was given out, and Spark calls back with
its frame at an unknown time. A lane in which Spark neither calls back nor asks for work is
silent.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streams.replica.driver import error_causes
from streams.replica.driver.micro_batch import MicroBatch
from streams.replica.driver.retry_policy import Failure, Kind

SILENT_S = 60.0
"""Silence after which a lane is restarted.

Spark usually calls ten times a second; a query that starts on a busy machine calls after some
seconds.
"""

LOOK_S = 5.0
"""Longest silence counted between two checks: the whole process may have been suspended."""

DROP_S = 5.0
"""Time after which a micro-batch is cancelled because one of its dataflows was dropped."""


@dataclass(slots=True)
class RunningBatch:
    """A micro-batch whose tasks run: since when, and when it was cancelled, if it was.

    Times are of the monotonic clock, in seconds.
    """

    batch: MicroBatch
    began: float
    cancelled: float | None = None

    def is_over(
        self,
        now: float,
        has_dropped: Callable[[MicroBatch], bool],
        is_in_the_way: Callable[[MicroBatch], bool],
    ) -> bool:
        """Whether to cancel it."""
        took_s, deadline = now - self.began, self.batch.deadline
        if took_s > deadline.own_s:
            return True
        if took_s > DROP_S and has_dropped(self.batch):
            return True
        return took_s > deadline.common_s and is_in_the_way(self.batch)

    def failure(self, error: Exception) -> Failure | None:
        """Return what its failure means; None if it may be repeated unchanged."""
        if self.cancelled is None:
            return None if error_causes.is_cancelled(error) else error_causes.failure_of(error)
        took_s = self.cancelled - self.began
        if took_s <= self.batch.deadline.own_s:
            return None
        return Failure(f"took longer than {took_s:.0f} s", Kind.HUNG, round(took_s * 1000))


@dataclass(slots=True)
class QuerySilence:
    """Seconds since Spark last called a lane, and how often the lane was restarted."""

    seconds: float = 0.0
    given_up: int = 0
    calls: int = 0
    looked: float | None = None

    def look(self, now: float, calls: int, *, is_at_work: bool) -> bool:
        """Return whether to restart the lane.

        Args:
            now: the time, by the monotonic clock.
            calls: how often Spark has called so far.
            is_at_work: whether a micro-batch is with us, whose deadline is its own.
        """
        passed = 0.0 if self.looked is None else now - self.looked
        self.looked = now
        if is_at_work or calls != self.calls:
            self.calls, self.seconds, self.given_up = calls, 0.0, 0
            return False
        self.seconds += min(passed, LOOK_S)
        return self.seconds > SILENT_S

    def give_up(self) -> Failure:
        """Reset the count; return what the silence means for the micro-batch given out."""
        failure = Failure(
            f"Spark did not begin it in {SILENT_S:.0f} s", Kind.HUNG, round(SILENT_S * 1000)
        )
        self.seconds, self.looked = 0.0, None
        self.given_up += 1
        return failure
