"""Finds quiet groups: no record was folded for a while. Clocks are arguments."""

import math
from collections import OrderedDict
from collections.abc import Iterable

QUIET_S = 3.0
"""Time after its last record at which a group becomes quiet."""


class QuietGroups:
    """The groups that moved and were not handled since, in the order of their last move.

    All operations cost O(1): a plain dict is copied to put a name first, and is searched for
    its first name behind all that were removed.
    """

    def __init__(self) -> None:
        self._moved_s: OrderedDict[str, float] = OrderedDict()

    def moved(self, groups: Iterable[str], now_s: float) -> None:
        """Record that these groups folded a record, or are newly followed."""
        for name in groups:
            self._moved_s.pop(name, None)
            self._moved_s[name] = now_s

    def due(self, now_s: float) -> str | None:
        """Return a group that has become quiet, once; None if there is none."""
        name = next(iter(self._moved_s), None)
        if name is None or now_s - self._moved_s[name] < QUIET_S:
            return None
        del self._moved_s[name]
        return name

    def again(self, group: str) -> None:
        """Return a due group to the front of the queue, unless it moved."""
        if group not in self._moved_s:
            self._moved_s[group] = -math.inf
            self._moved_s.move_to_end(group, last=False)
