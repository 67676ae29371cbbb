"""Frontiers of progress in time. Pure.

A *frontier* is a lower bound on the times that may still appear. The empty frontier bounds
nothing: no time can appear any more.
"""

from streams.progress.antichain import EMPTY, Antichain, frontier, meet_all

__all__ = ["EMPTY", "Antichain", "frontier", "meet_all"]
