"""How far this machine's clock is from the broker's (rule 27).

An Append gives a bound on either side: it was sent after `before_ms` and read back before
`after_ms`, both by our clock, and `append_ms` lies between by the broker's. Of the skews that
this allows the least is taken, so that a slow answer is not mistaken for a wrong clock.
"""

from dataclasses import dataclass

FORGET_MS = 30_000
"""A measurement this old is forgotten, so that a clock that was set right is noticed."""


@dataclass(slots=True)
class Skew:
    """The last measurement."""

    skew_ms: int = 0
    at_ms: int = 0

    def measure(self, before_ms: int, append_ms: int, after_ms: int) -> None:
        """Take note of one Append."""
        lowest, highest = before_ms - append_ms, after_ms - append_ms
        self.skew_ms = max(lowest, min(0, highest))
        self.at_ms = after_ms

    def known(self, now_ms: int) -> int:
        """Our clock less the broker's; 0 when nothing recent is known."""
        return self.skew_ms if abs(now_ms - self.at_ms) < FORGET_MS else 0
