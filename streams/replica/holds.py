"""This replica's holds on what its dataflows read: on times, and on chunks (rules 10, 17, 21).

On each import of a dataflow there are two. The dataflow's own is critical, and all replicas
move it. A replica's own keeps the times that its oldest checkpoint needs, and carries a *plan*,
the log's offset from which its reads go back to chunks: what a merge takes out at or after it
stays until the plan is beyond. It is leased, for a replica may never return.

The plan is where the state stood when the micro-batch under way was decided, or where it stands
now, for what is decided next sees that state or a later one. While a build works through its
slices the plan stays where it was when they were chosen.

A move is a record in the log, so there is one only when it lets something go, or when half of
the lease is over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streams.compute.description import ImportDescription
from streams.compute.stepping import holds
from streams.errors import SlackwaterError
from streams.ids import MINIMUM_TIME, CapabilityId, Offset
from streams.progress import Antichain, frontier
from streams.replica.flow import Flow, Phase
from streams.replica.scheduler import Scheduler
from streams.storage.events import Acquire, Body, Downgrade, Right
from streams.storage.state import Capability, State

LEASE_MS = 900_000
"""How long a replica's holds last without a sign of it."""

GroupState = Callable[[str], State]


@dataclass(slots=True)
class Holder:
    """Moves the holds of all flows; one thread."""

    scheduler: Scheduler

    def move(self) -> None:
        """Let go of what no restart and no read needs any more. Errors: as `Shards.submit`."""
        scheduler = self.scheduler
        with scheduler.lock:
            events = [
                event
                for flow in scheduler.flows.values()
                for event in moves(flow, self._wish(flow), self._states(flow))
            ]
        if events:
            scheduler.shards.submit(events)

    def _states(self, flow: Flow) -> Mapping[str, State]:
        """The groups of its imports, as far as they can be followed."""
        found = {}
        for each in flow.description.imports:
            try:
                found[each.group] = self.scheduler.shards.group_state(each.group)
            except (
                SlackwaterError
            ):  # it is in trouble, and will say so; the leases of others go on
                continue
        return found

    def _wish(self, flow: Flow) -> Antichain | None:
        """Where the times that a restart could need begin (rule 17); None: leave the holds."""
        if flow.own is None or flow.phase is Phase.STARTING or flow.build is not None:
            return None  # nothing moves before a hydration is done
        upper = self.scheduler.upper(flow)
        if upper is None:
            return None
        return holds([each.checkpoint for each in flow.records], upper)


def moves(
    flow: Flow, wish: Antichain | None, groups: Mapping[str, State]
) -> list[tuple[str, Body]]:
    """What to submit for the flow's holds on its imports."""
    events: list[tuple[str, Body]] = []
    for each in flow.description.imports:
        group = groups.get(each.group)
        if group is None or each.collection not in group.collections:
            continue
        body = own_move(flow, each, wish, group)
        if body is not None:
            events.append((each.group, body))
        shared = group.collections[each.collection].capabilities.get(each.hold)
        if shared is not None and wish is not None and gains(shared, wish):
            events.append((each.group, downgrade(each, each.hold, wish)))
    return events


def own_move(
    flow: Flow, read: ImportDescription, wish: Antichain | None, group: State
) -> Acquire | Downgrade | None:
    """How to move this replica's hold on an import; None while there is nothing to gain."""
    name = flow.holds[read.collection]
    held = group.collections[read.collection].capabilities.get(name)
    if held is None:
        return acquire(flow, read, group.upto, wish)
    plan = later(held, plan_of(flow, read, group))
    moved = wish is not None and gains(held, wish)
    if not (moved or frees(held, plan, group) or is_due(held, group)):
        return None
    return downgrade(read, name, wish or frontier(MINIMUM_TIME), plan)


def downgrade(
    read: ImportDescription, hold: CapabilityId, to: Antichain, plan: Offset | None = None
) -> Downgrade:
    """A move of a hold on an import."""
    return Downgrade(collection=read.collection, capability=hold, frontier=to, plan=plan)


def acquire(
    flow: Flow, read: ImportDescription, plan: Offset, wish: Antichain | None = None
) -> Acquire:
    """This replica's hold on an import, made or made anew."""
    return Acquire(
        collection=read.collection,
        capability=flow.holds[read.collection],
        right=Right.READ,
        frontier=None if wish is None else wish.time,
        lease_ms=LEASE_MS,
        plan=plan,
    )


def plan_of(flow: Flow, read: ImportDescription, group: State) -> Offset | None:
    """The oldest offset that the flow's reads go back to; None: leave it where it is."""
    if flow.build is not None or flow.phase is Phase.STARTING:
        return None
    return flow.read_from.get(read.collection) if flow.busy else group.upto


def later(held: Capability, plan: Offset | None) -> Offset | None:
    """The plan after a move: it goes forward only."""
    known = [each for each in (held.plan, plan) if each is not None]
    return max(known, default=None)


def gains(held: Capability, wish: Antichain) -> bool:
    """Whether times are let go."""
    return held.frontier.strictly_precedes(wish)


def frees(held: Capability, plan: Offset | None, group: State) -> bool:
    """Whether chunks are let go that a merge took out."""
    if plan is None:
        return False
    return held.plan is None or any(
        held.plan <= each.offset < plan for each in group.superseded
    )


def is_due(held: Capability, group: State) -> bool:
    """Whether half of the lease is over."""
    if held.expires_ms is None or held.lease_ms is None:
        return False
    return held.expires_ms - group.clock_ms < held.lease_ms // 2
