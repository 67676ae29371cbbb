"""How much each part of `slackwater bench compute` does."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComputeScale:
    """Units: events and peeks a second; seconds of each measurement; rows of state.

    `dataflows` counts the source too.
    """

    events: int = 10_000
    rate: int = 200
    seconds: float = 20.0
    rows: int = 200_000
    dataflows: int = 100
