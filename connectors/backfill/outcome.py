"""What a job of a backfill says: while it runs, and at its end."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

Progress = Callable[[int, int], None]
"""Takes how many key ranges are committed so far, and how many rows that is."""


class Outcome(NamedTuple):
    """What a job has written: all gaps, of the bindings that have contents."""

    rows: int
    stalls: Mapping[int, str] = {}
    """The numbers of the bindings that have none at the backfill's time, and why."""
