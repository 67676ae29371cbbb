"""Which groups are quiet: nothing was folded into them for a while. Clocks are arguments."""

import math
from collections.abc import Iterable

QUIET_S = 3.0
"""So long after its last record a group is quiet."""


class Quiet:
    """The groups that moved and were not looked at since, those that moved first in front."""

    def __init__(self) -> None:
        self._moved_s: dict[str, float] = {}

    def moved(self, groups: Iterable[str], now_s: float) -> None:
        """Something was folded into these groups, or they are followed from now on."""
        for name in groups:
            self._moved_s.pop(name, None)
            self._moved_s[name] = now_s

    def due(self, now_s: float) -> str | None:
        """A group that has fallen quiet, once; None when there is none."""
        name = next(iter(self._moved_s), None)
        if name is None or now_s - self._moved_s[name] < QUIET_S:
            return None
        del self._moved_s[name]
        return name

    def again(self, group: str) -> None:
        """More is to be done with a group that was due: it comes next, unless it moved."""
        if group not in self._moved_s:
            self._moved_s = {group: -math.inf, **self._moved_s}
