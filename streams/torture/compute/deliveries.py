"""Compares what subscribers received with the contents of each view at each time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from streams.compute.arrow_rows import answered_updates
from streams.compute.subscribes import (
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeOutcome,
)
from streams.errors import Corrupt, SlackwaterError
from streams.progress import end_of
from streams.torture.compute.objects import Maintained
from streams.torture.compute.truth import (
    MOST_ROWS_SHOWN,
    Changes,
    Rows,
    Truth,
    different,
)

LOOKS = 3
"""Number of times at which the contents are compared with the orders, beside the last one."""


class WrongDelivery(SlackwaterError):
    """A delivery differs from the expected one."""


@dataclass(slots=True)
class AskedSubscribe:
    """A subscribe of a view, its deliveries and its outcome.

    `by` says who reads: `replicas`, `one replica`, or `a coordinator`, as that reads by itself.
    `is_killed` says that its controller was before it ended.
    """

    subscribe: Subscribe
    view: Maintained
    where: str
    by: str
    delivered: list[SubscribeOutcome] = field(default_factory=list)
    is_canceled: bool = False
    is_killed: bool = False

    @property
    def reached(self) -> int:
        """The upper of what was delivered; the end of time after the last interval."""
        last = self.delivered[-1] if self.delivered else None
        return end_of(last.upper) if isinstance(last, SubscribeBatch) else self.subscribe.first

    @property
    def is_over(self) -> bool:
        """Whether nothing follows, or nobody waits for it."""
        last = self.delivered[-1] if self.delivered else None
        is_last = isinstance(last, SubscribeBatch) and last.upper.is_empty
        is_left = self.is_canceled or self.is_killed
        return is_last or is_left or isinstance(last, SubscribeError)

    def wrong(self, truth: Truth) -> str:
        """What is wrong with it; empty if nothing is."""
        asked = self.subscribe
        until = "" if asked.until is None else f" up to {asked.until}"
        what = f"{self.by}: {self.view.name} from {asked.first} on{until} where {self.where}"
        try:
            changes, reached = self._folded()
            self._compare(changes, reached, truth)
        except (WrongDelivery, Corrupt) as fault:
            return f"subscribe {asked.uuid} by {what}: {fault}"
        return ""

    def _folded(self) -> tuple[Changes, int]:
        """Return the changes before the time that was reached. Errors: WrongDelivery."""
        changes: Changes = {}
        reached, is_ended = int(self.subscribe.first), False
        for outcome in self.delivered:
            if is_ended:
                raise WrongDelivery("something follows the end")
            if not isinstance(outcome, SubscribeBatch):
                raise WrongDelivery(f"expected intervals, actual {outcome}")
            if outcome.lower != reached or end_of(outcome.upper) <= reached:
                to = (outcome.lower, outcome.upper)
                raise WrongDelivery(f"expected an interval from {reached} on, actual {to}")
            for key, diff in self._updates(outcome):
                if key in changes:
                    raise WrongDelivery(f"two changes of {key}")
                changes[key] = diff
            reached, is_ended = end_of(outcome.upper), outcome.upper.is_empty
        return changes, self._last(reached, is_ended=is_ended)

    def _last(self, reached: int, *, is_ended: bool) -> int:
        """Return the frontier that was reached. Errors: WrongDelivery for a wrong end."""
        until, is_left = self.subscribe.until, self.is_canceled or self.is_killed
        if is_ended and until is None:
            raise WrongDelivery("it ended, and the view goes on")
        if until is None:
            return reached
        if not is_ended and (reached >= until or not is_left):
            raise WrongDelivery(f"it is at {reached}, and has no end")
        return until if is_ended else reached

    def _updates(
        self, batch: SubscribeBatch
    ) -> Iterator[tuple[tuple[tuple[object, ...], int], int]]:
        """Yield row, time and diff of each update in the interval. Errors: WrongDelivery."""
        types = [column.type for column in self.view.flow.columns]
        updates = answered_updates(batch.updates, batch.count, types)
        upper = min(end_of(batch.upper), self.subscribe.until or end_of(batch.upper))
        columns = (column.to_pylist() for column in updates.columns)
        for *row, time, diff in zip(*columns, strict=True):
            if time >= upper:
                raise WrongDelivery(f"expected times before {upper}, actual {time}")
            if time >= batch.lower:  # another replica delivered what lies before
                yield (tuple(row), time), diff

    def _compare(self, changes: Changes, reached: int, truth: Truth) -> None:
        """Errors: WrongDelivery if there is another change, or other contents at some times."""
        asked = self.subscribe
        if reached <= asked.first:
            return
        expected = truth.changes(self.view, asked, reached, self.where)
        if expected != changes:
            missing, surplus = (
                expected.items() - changes.items(),
                changes.items() - expected.items(),
            )
            few = [sorted(some, key=str)[:MOST_ROWS_SHOWN] for some in (missing, surplus)]
            raise WrongDelivery(f"changes missing {few[0]}, too much {few[1]}")
        base = Rows() if asked.snapshot else truth.rows(self.view, asked.as_of, self.where)
        for time in {reached - 1, *looks([time for _, time in changes])}:
            held = Counter(base)
            for (row, at), diff in changes.items():
                if at <= time:
                    held[row] += diff
            fault = different(truth.rows(self.view, time, self.where), +held)
            if fault:
                raise WrongDelivery(f"at {time}: {fault}")


def looks(times: Sequence[int]) -> Sequence[int]:
    """Return a few times, evenly spread."""
    distinct = sorted(set(times))
    return distinct[:: max(1, len(distinct) // LOOKS)]
