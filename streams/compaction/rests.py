"""What failed rests, for longer each time, and is due again when its pause is over. Pure.

A cause that lasts must not fill the log nor take the time of what works; one that goes away is
found gone within the pause. What worked once is forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_PAUSE_MS = 30_000
LONGEST_PAUSE_MS = 1_800_000


@dataclass(frozen=True, slots=True)
class Rest:
    """So many failures in a row; due again at `until_ms`."""

    failures: int
    until_ms: int


@dataclass(slots=True)
class Rests:
    """The rests of whatever has a name. Units: `now_ms` in milliseconds of any clock."""

    now_ms: Callable[[], int]
    _resting: dict[str, Rest] = field(default_factory=dict)

    def is_due(self, name: str) -> bool:
        """Whether to try it: it has not failed, or its pause is over."""
        rest = self._resting.get(name)
        if rest is None:
            return True
        left_ms = rest.until_ms - self.now_ms()
        return left_ms <= 0 or left_ms > LONGEST_PAUSE_MS  # more: the clock was set back

    def failed(self, name: str) -> None:
        """Let it rest, twice as long as the last time."""
        before = self._resting.get(name, Rest(0, 0)).failures
        pause_ms = min(FIRST_PAUSE_MS << min(before, 16), LONGEST_PAUSE_MS)
        self._resting[name] = Rest(before + 1, self.now_ms() + pause_ms)

    def worked(self, name: str) -> None:
        """Forget its failures."""
        self._resting.pop(name, None)
