"""Frontiers of progress in time. Pure.

A *frontier* is a lower bound on the times that may still appear. The empty frontier bounds
nothing: no time can appear any more.
"""

from streams.progress.antichain import EMPTY, Antichain, frontier, meet_all
from streams.progress.interval import END, Interval, end_of, interval_of

__all__ = [
    "EMPTY",
    "END",
    "Antichain",
    "Interval",
    "end_of",
    "frontier",
    "interval_of",
    "meet_all",
]
