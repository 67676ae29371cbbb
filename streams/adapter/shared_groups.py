"""Chooses the groups that views share. Pure.

The Appends of all views of a group go to one log and their chunks to one topic, so a
micro-batch of many views writes to few topics, and a process follows few logs. A group is named
after the number of its first view. It takes the views of one cluster that are created while
numbers are less than `SPAN` beyond that, so its state and its Rollups are bounded.

A view enters a group with a live view, or begins one. So nothing enters a group after the drop
of its last view, and its topics may be deleted.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

SPAN = 256
"""Number of consecutive objects whose views share a group."""


class Member(Protocol):
    """An object of the catalog; `shared_group` is empty if it shares none."""

    @property
    def number(self) -> int:
        """The number in its id."""

    @property
    def cluster(self) -> str:
        """The cluster that it is in."""

    @property
    def shared_group(self) -> str:
        """The name of the group that it shares."""


def group_for(
    number: int,
    cluster: str,
    live: Iterable[Member],
    is_healthy: Callable[[str], bool] = lambda _: True,
) -> str:
    """Return the group of the next view: none whose log cannot be followed."""
    groups = {item.shared_group for item in live if item.cluster == cluster} - {""}
    healthy = [int(group[1:]) for group in groups if is_healthy(group)]
    latest = max(healthy, default=number)
    return f"g{latest if number - latest < SPAN else number}"


def may_enter(new: Member, live: Iterable[Member]) -> bool:
    """Whether a new object begins its group, or finds a live one of its cluster there."""
    return new.shared_group == f"g{new.number}" or any(
        item.shared_group == new.shared_group and item.cluster == new.cluster for item in live
    )


def is_alone(item: Member, others: Iterable[Member]) -> bool:
    """Whether an object has its group to itself, now that it is dropped."""
    return not item.shared_group or all(
        other is item or other.shared_group != item.shared_group for other in others
    )
