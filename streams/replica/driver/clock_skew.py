"""The skew between this machine's clock and the broker's (rule 27).

A record gives a bound on either side: it was sent after `before_ms` and read back before
`after_ms`, both by our clock, and `append_ms` lies between by the broker's. The smallest skew
within these bounds is used, so that a slow answer is not mistaken for a wrong clock.
"""

from dataclasses import dataclass

from streams.compute.reclocking import MAX_SKEW_MS

FORGET_MS = 30_000
"""Age at which a measurement is discarded, so that a corrected clock is noticed."""


@dataclass(slots=True)
class Skew:
    """The last measurement: our clock less the broker's, None before the first."""

    last_ms: int | None = None
    at_ms: int = 0

    @property
    def is_wrong(self) -> bool:
        """Whether our clock was too far from the broker's at the last measurement."""
        return self.last_ms is not None and abs(self.last_ms) > MAX_SKEW_MS

    def measure(self, before_ms: int, append_ms: int, after_ms: int) -> None:
        """Record the measurement from one record.

        The measurement dates from the sending of the record: a clock change while it was in
        flight is not covered.
        """
        lowest, highest = before_ms - append_ms, after_ms - append_ms
        self.last_ms = max(lowest, min(0, highest))
        self.at_ms = before_ms

    def known(self, now_ms: int) -> int | None:
        """Return our clock less the broker's; None if there is no recent measurement.

        None also if our clock was set by `FORGET_MS` or more since.
        """
        return self.last_ms if abs(now_ms - self.at_ms) < FORGET_MS else None
