"""Timelines: what the times of a collection mean. Pure.

    wall     the time at which messages are ingested, in milliseconds by the clock
    event    the event times that messages hold, of sources with a watermark

Times of the two are not comparable: the upper of a source with a watermark may be years behind
the clock, or stand still for a day, and a read of both at one time would wait until they meet.
So a view, a query and a materialization read one timeline. A source and its dead letters have
the same one, a view has that of its inputs, and constants alone have the clock's. So has a
rebase, whose input has event times (`streams.compute.rebasing`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from streams.adapter.catalog import LETTERS, Item
from streams.errors import InvalidStatement
from streams.ids import CollectionId, Timestamp
from streams.storage.policy import LagBehindUpper, RetainHistory, Retention

Timeline = Literal["wall", "event"]

EVENT_BIRTH = Timestamp(0)
"""The first time of a source with a watermark: rows may be as old as 1970."""

_MEANING: Mapping[Timeline, str] = {
    "wall": "has times of ingestion",
    "event": "has event times",
}


def timeline(item: Item, items: Mapping[CollectionId, Item]) -> Timeline:
    """Return an object's timeline. `items` has all that it depends on."""
    while item.inputs and item.kind != "rebase":
        item = items[item.inputs[0]]
    if item.kind == "errors":
        item = items[CollectionId(f"{LETTERS['source']}{item.number}")]
    return "wall" if item.source is None or item.source.watermark is None else "event"


def common(read: Sequence[Item], items: Mapping[CollectionId, Item]) -> Timeline:
    """Return the timeline of objects that are read together.

    Errors: InvalidStatement if they have two, with a relation of each.
    """
    by_timeline: dict[Timeline, Item] = {}
    for item in read:
        by_timeline.setdefault(timeline(item, items), item)
    if len(by_timeline) > 1:
        (one, first), (other, second) = by_timeline.items()
        raise InvalidStatement(
            f"{first.name} and {second.name} cannot be read together: they have different"
            " timelines",
            f"{first.name} {_MEANING[one]}, {second.name} {_MEANING[other]}",
            f"CREATE REBASE name OF {by_timeline['event'].name}, and read that in its place:"
            " it has each update at the time of the clock at which it became final. Or declare"
            " a WATERMARK in the sources of both, or in none: then the event time is a column"
            " like any other",
        )
    return next(iter(by_timeline), "wall")


def retained(policy: Retention, timeline: Timeline) -> Retention:
    """Return a read policy as it is applied: event times are not compared with the clock.

    The history of the last hour is that of the last hour before upper then.
    """
    if timeline == "event" and isinstance(policy, RetainHistory):
        return LagBehindUpper(policy.duration_ms)
    return policy
