"""Exponential backoff for failed work items. Pure.

A lasting cause must not flood the log or take time from work that succeeds; the end of a cause
is noticed within the pause. A success resets the item.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_PAUSE_MS = 30_000
LONGEST_PAUSE_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """The number of failures in a row; due again at `until_ms`."""

    failures: int
    until_ms: int


@dataclass(slots=True)
class Backoffs:
    """Waits after failures, by name. Units: `now_ms` in milliseconds of any clock."""

    now_ms: Callable[[], int]
    _resting: dict[str, Backoff] = field(default_factory=dict)

    def is_due(self, name: str) -> bool:
        """Whether to try it: it has not failed, or its pause is over."""
        rest = self._resting.get(name)
        if rest is None:
            return True
        left_ms = rest.until_ms - self.now_ms()
        return left_ms <= 0 or left_ms > LONGEST_PAUSE_MS  # more: the clock was set back

    def failed(self, name: str) -> None:
        """Record a failure: the pause doubles."""
        before = self._resting.get(name, Backoff(0, 0)).failures
        pause_ms = min(FIRST_PAUSE_MS << min(before, 16), LONGEST_PAUSE_MS)
        self._resting[name] = Backoff(before + 1, self.now_ms() + pause_ms)

    def worked(self, name: str) -> None:
        """Record a success: its failures are forgotten."""
        self._resting.pop(name, None)
