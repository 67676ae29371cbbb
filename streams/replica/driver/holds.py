"""This replica's holds on the imports of its dataflows: times and chunks (rules 10, 17, 21).

Each import of a dataflow has two holds. The dataflow's own is critical, and all replicas move
it, for a view never past the since of the export: what can be read of it can be computed again.
A replica's own keeps the times that its oldest checkpoint needs, and has a *plan*, the
oldest log offset whose chunks its reads need: chunks that a merge removes at or after it stay
until the plan is beyond. It is leased, because a replica may never return.

The plan is the offset of the folded state at which the current micro-batch was planned, or the
present offset, because later decisions see that state or a later one. During a build the plan
stays at the offset at which its slices were chosen.

A move is a record in the log, so it is made only if it releases something, or if half of the
lease is over.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from streams.compute import rebasing
from streams.compute.description import ImportDescription
from streams.compute.stepping import holds
from streams.errors import SlackwaterError
from streams.ids import MINIMUM_TIME, CapabilityId, Offset
from streams.progress import EMPTY, Antichain, frontier
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.scheduler import Scheduler
from streams.storage.log.events import Acquire, Body, Downgrade, Right
from streams.storage.log.state import Capability, State

LEASE_MS = 900_000
"""Lease of a replica's holds."""

GroupState = Callable[[str], State]


@dataclass(slots=True)
class HoldMover:
    """Moves the holds of all flows; one thread."""

    scheduler: Scheduler

    def move(self) -> None:
        """Release what no restart and no read needs any more. Errors: as `Shards.submit`."""
        scheduler = self.scheduler
        with scheduler.lock:
            events = [
                event
                for flow in scheduler.flows.values()
                for event in moves(
                    flow,
                    self._desired_since(flow),
                    self._states(flow),
                    may_write=scheduler.may_write,
                )
            ]
        if events:
            scheduler.shards.submit(events)

    def _states(self, flow: Dataflow) -> Mapping[str, State]:
        """Return the states of its imports' groups, as far as they can be followed."""
        states = {}
        for imported in flow.description.imports:
            try:
                states[imported.group] = self.scheduler.shards.group_state(imported.group)
            except (
                SlackwaterError
            ):  # this flow fails by itself; the leases of others are renewed
                continue
        return states

    def _desired_since(self, flow: Dataflow) -> Antichain | None:
        """The earliest time that a restart could need (rule 17); None: leave the holds."""
        if flow.own is None or flow.phase is Phase.STARTING or flow.build is not None:
            return None  # holds do not move before a hydration is done
        upper = self.scheduler.upper(flow)
        if upper is None:
            return None
        if flow.is_rebase:
            return rebasing.hold(self.scheduler.shards.state(flow.id).source or {})
        return holds([record.checkpoint for record in flow.records], upper)


def moves(
    flow: Dataflow,
    desired_since: Antichain | None,
    groups: Mapping[str, State],
    *,
    may_write: bool = True,
) -> list[tuple[str, Body]]:
    """Return the events for the flow's holds on its imports.

    Before writes are allowed only this replica's own holds move, which are leased.
    """
    events: list[tuple[str, Body]] = []
    for imported in flow.description.imports:
        group = groups.get(imported.group)
        if group is None or imported.collection not in group.collections:
            continue
        body = own_move(flow, imported, desired_since, group)
        if body is not None:
            events.append((imported.group, body))
        shared = group.collections[imported.collection].capabilities.get(imported.hold)
        if not may_write or shared is None or desired_since is None:
            continue
        kept = desired_since.meet(needed_since(flow))
        if gains(shared, kept):
            events.append((imported.group, downgrade(imported, imported.hold, kept)))
    return events


def needed_since(flow: Dataflow) -> Antichain:
    """Return the since of a view's export, at which its imports stay readable; else EMPTY.

    Of another dataflow the export has times of its own, or nothing is computed again.
    """
    return frontier(flow.description.as_of) if flow.description.is_computed else EMPTY


def own_move(
    flow: Dataflow, read: ImportDescription, desired_since: Antichain | None, group: State
) -> Acquire | Downgrade | None:
    """The move of this replica's hold on an import; None while there is little to gain."""
    name = flow.holds[read.collection]
    hold = group.collections[read.collection].capabilities.get(name)
    if hold is None:
        return acquire(flow, read, group.upto, desired_since)
    plan = later(hold, plan_of(flow, read, group))
    moved = desired_since is not None and gains(hold, desired_since)
    if not (moved or frees(hold, plan, group) or is_due(hold, group)):
        return None
    return downgrade(read, name, desired_since or frontier(MINIMUM_TIME), plan)


def downgrade(
    read: ImportDescription, hold: CapabilityId, to: Antichain, plan: Offset | None = None
) -> Downgrade:
    """Return a downgrade of a hold on an import."""
    return Downgrade(collection=read.collection, capability=hold, frontier=to, plan=plan)


def acquire(
    flow: Dataflow,
    read: ImportDescription,
    plan: Offset,
    desired_since: Antichain | None = None,
) -> Acquire:
    """Return the event that acquires this replica's hold on an import."""
    return Acquire(
        collection=read.collection,
        capability=flow.holds[read.collection],
        right=Right.READ,
        frontier=None if desired_since is None else desired_since.time,
        lease_ms=LEASE_MS,
        plan=plan,
    )


def plan_of(flow: Dataflow, read: ImportDescription, group: State) -> Offset | None:
    """Return the oldest offset that the flow's reads need; None: leave it unchanged."""
    if flow.build is not None or flow.phase is Phase.STARTING:
        return None
    return flow.read_from.get(read.collection) if flow.busy else group.upto


def later(hold: Capability, plan: Offset | None) -> Offset | None:
    """Return the plan after a move, which only goes forward."""
    offsets = [plan_offset for plan_offset in (hold.plan, plan) if plan_offset is not None]
    return max(offsets, default=None)


def gains(hold: Capability, desired_since: Antichain) -> bool:
    """Whether the move releases times."""
    return hold.frontier.strictly_precedes(desired_since)


def frees(hold: Capability, plan: Offset | None, group: State) -> bool:
    """Whether the move releases chunks that a merge removed."""
    if plan is None:
        return False
    if hold.plan is None:
        return True
    first = bisect_left(group.superseded, hold.plan, key=attrgetter("offset"))  # in their order
    return first < len(group.superseded) and group.superseded[first].offset < plan


def is_due(hold: Capability, group: State) -> bool:
    """Whether half of the lease is over."""
    if hold.expires_ms is None or hold.lease_ms is None:
        return False
    return hold.expires_ms - group.clock_ms < hold.lease_ms // 2
