"""Decides what a replica keeps of what it runs when a new iteration has begun. Pure.

A running dataflow is kept if the iteration names one of the same export and structure that is
not to be read earlier. Two descriptions have the same structure if only the user's name and the
as_of of a computed dataflow differ: the name is for display, and state that can be read at a
time can be read later. The as_of of a running dataflow is where it can still be read, and that
of a wanted one is where it has to be; an as_of that goes back would promise what was compacted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streams.compute.description import DataflowDescription
from streams.ids import MINIMUM_TIME, CollectionId

Dataflows = Mapping[CollectionId, DataflowDescription]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What is dropped first, then created, and what is kept.

    `compacted` is what is kept and cannot be read as early any more.
    """

    dropped: Sequence[CollectionId]
    created: Sequence[DataflowDescription]
    kept: Sequence[CollectionId]
    compacted: Sequence[DataflowDescription]


def reconcile(running: Dataflows, wanted: Dataflows) -> Reconciliation:
    """Compare what runs with what the iteration wants; each in the order of its creation."""
    kept = {
        key: wanted[key]
        for key, flow in running.items()
        if _can_continue(flow, wanted.get(key))
    }
    return Reconciliation(
        dropped=[key for key in running if key not in kept],
        created=[flow for key, flow in wanted.items() if key not in kept],
        kept=tuple(kept),
        compacted=[flow for key, flow in kept.items() if running[key].as_of < flow.as_of],
    )


def _can_continue(running: DataflowDescription, wanted: DataflowDescription | None) -> bool:
    """Whether the running dataflow is the wanted one."""
    return (
        wanted is not None
        and structure(running) == structure(wanted)
        and running.as_of <= wanted.as_of
    )


def structure(flow: DataflowDescription) -> DataflowDescription:
    """Return the description without what does not matter to state."""
    return replace(flow, name="", as_of=MINIMUM_TIME if flow.is_computed else flow.as_of)
