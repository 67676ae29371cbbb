"""Status reports: the responses of a replica to its controller about each dataflow.

Frontiers are reported when they move, at a limited rate; conditions when they change. At a new
iteration of the protocol everything is reported again. A replica without reports writes a
heartbeat.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streams.compute import event_time, idleness
from streams.compute.parameters import DEFAULTS, ComputeParameters
from streams.compute.protocol import Alive, Frontiers, Hydration, Reconciled, Response, Status
from streams.compute.reclocking import MAX_SKEW_MS
from streams.compute.replica_responses import STANDBY
from streams.compute.writer import ResponseWriter
from streams.ids import CollectionId, Offset, Topic
from streams.progress import EMPTY, Antichain, frontier
from streams.replica.driver import hydration_progress
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.hydration_progress import HydrationPace
from streams.replica.driver.import_state import input_frontier
from streams.replica.driver.scheduler import Scheduler

log = logging.getLogger(__name__)

BLOCKED_MS = 10_000

MOST_SKIPPED = 32
"""The number of skipped commands that are reported when the next iteration has begun."""

MOST_HELD = 8
"""The number of partitions that are named."""

LOOK_EVERY_S = 1.0
"""How often a dataflow is looked at whose state stays: its condition depends on clocks, too."""

Told = tuple[Antichain | None, Antichain | None, Antichain | None]
"""What was reported of write, output and input."""


@dataclass(slots=True)
class StatusReporter:
    """Writes the responses for the flows of one scheduler."""

    writer: ResponseWriter
    nonce: str = ""
    clock: Callable[[], float] = time.monotonic
    frontiers: dict[CollectionId, Told] = field(default_factory=dict)
    status: dict[CollectionId, Status] = field(default_factory=dict)
    hydrations: dict[CollectionId, Hydration] = field(default_factory=dict)
    paces: dict[CollectionId, HydrationPace] = field(default_factory=dict)
    next_frontiers: float = 0.0
    next_alive: float = 0.0
    seen: dict[CollectionId, Dataflow] = field(default_factory=dict)
    next_look: float = 0.0
    ownership: tuple[bool, str] = False, ""
    skipped: list[Status] = field(default_factory=list)
    parameters: ComputeParameters = DEFAULTS

    def pause(self) -> None:
        """Report nothing until an iteration has begun; what was skipped is kept till then."""
        self.nonce = ""

    def set_parameters(self, parameters: ComputeParameters) -> None:
        """Report as often as these say."""
        self.parameters = parameters
        self.next_frontiers = self.next_alive = 0.0

    def begin(self, nonce: str) -> None:
        """Start an iteration: forget what was reported."""
        self.nonce = nonce
        self.frontiers.clear()
        self.status.clear()
        self.hydrations.clear()
        self.next_look = 0.0
        skipped, self.skipped = self.skipped, []
        self._write(skipped)

    def reconciled(self, answer: Reconciled) -> None:
        """Answer InitializationComplete."""
        self._write([answer])

    def dropped(self, export: CollectionId) -> None:
        """Report that a dataflow no longer runs."""
        self.frontiers.pop(export, None)
        self.status.pop(export, None)
        self._write([Frontiers(export, EMPTY, EMPTY, EMPTY)])

    def refused(self, export: CollectionId, message: str) -> None:
        """Report that a dataflow cannot run here: its plan is not understood."""
        self._write([Status(export, Phase.FAILED.value, message)])

    def passed_over(self, topic: Topic, offset: Offset, reason: str) -> None:
        """Report a command that was skipped, under the name of the command topic."""
        log.error("command skipped", extra={"offset": offset, "why": reason})
        message = f"command at offset {offset} is skipped: {reason}"
        self._say(Status(CollectionId(topic), Phase.FAILED.value, message))

    def taken_in_part(self, topic: Topic, offset: Offset, reason: str) -> None:
        """Report a command of which not all is in effect, as `passed_over`."""
        log.warning("command taken in part", extra={"offset": offset, "why": reason})
        message = f"command at offset {offset}: {reason}"
        self._say(Status(CollectionId(topic), Phase.RUNNING.value, message))

    def _say(self, status: Status) -> None:
        """Write what concerns no dataflow, as soon as an iteration lets it."""
        if self.nonce:
            self._write([status])
        else:
            self.skipped = [*self.skipped[1 - MOST_SKIPPED :], status]

    def tell(self, scheduler: Scheduler, of_sinks: Sequence[Response]) -> None:
        """Write what is new."""
        if not self.nonce:
            return
        with scheduler.lock:
            flows = list(scheduler.flows.values())
            responses: list[Response] = [
                *of_sinks,
                *self._conditions(flows, scheduler),
                *self._hydrating([flow for flow in flows if _hydrates(flow, scheduler)]),
            ]
            if self.clock() >= self.next_frontiers:
                self.next_frontiers = self.clock() + self.parameters.frontiers_ms / 1000
                responses.extend(self._moved(flows, scheduler))
        self._write(responses)

    def add(self, responses: Sequence[Response]) -> None:
        """Write what others have to say."""
        self._write(responses)

    def alive(self) -> None:
        """Write a heartbeat if nothing was written for a while; from any thread."""
        if self.nonce and self.clock() >= self.next_alive:
            self._write([Alive()])

    def _write(self, responses: Sequence[Response]) -> None:
        self.writer.write(self.nonce, responses)
        if responses:
            self.next_alive = self.clock() + self.parameters.heartbeat_ms / 1000

    def _conditions(self, flows: list[Dataflow], scheduler: Scheduler) -> list[Status]:
        now_ms, elapsed_ms = scheduler.now_ms(), scheduler.elapsed_ms()
        conditions = [
            standby(flow, scheduler.obstacle)
            if flow.binds and not scheduler.is_owner
            else condition(flow, now_ms, scheduler.skew, elapsed_ms=elapsed_ms)
            for flow in self._to_look_at(flows, (scheduler.is_owner, scheduler.obstacle))
        ]
        new = [status for status in conditions if self.status.get(status.id) != status]
        self.status.update({status.id: status for status in new})
        return new

    def _to_look_at(self, flows: list[Dataflow], ownership: tuple[bool, str]) -> list[Dataflow]:
        """Return the flows with another state than at the last look; at times all of them."""
        seen, self.seen = self.seen, {flow.id: flow for flow in flows}
        if self.clock() < self.next_look and ownership == self.ownership:
            return [flow for flow in flows if seen.get(flow.id) is not flow]
        self.next_look, self.ownership = self.clock() + LOOK_EVERY_S, ownership
        return flows

    def _hydrating(self, flows: list[Dataflow]) -> list[Hydration]:
        """Return the progress of builds that have advanced."""
        building = {flow.id: flow.build for flow in flows if flow.build is not None}
        now_s = self.clock()
        self.paces = {
            id_: hydration_progress.follow(self.paces.get(id_), build, now_s)
            for id_, build in building.items()
        }
        hydrations = {
            id_: Hydration(id_, pace.done, pace.total, pace.seconds_left)
            for id_, pace in self.paces.items()
        }
        new = [
            hydration
            for id_, hydration in hydrations.items()
            if self.hydrations.get(id_) != hydration
        ]
        self.hydrations = hydrations
        return new

    def _moved(self, flows: list[Dataflow], scheduler: Scheduler) -> list[Frontiers]:
        moved = []
        for flow in flows:
            if flow.phase is Phase.STARTING or flow.own is None:
                continue
            upper = scheduler.upper(flow)
            if upper is None:
                continue
            before = self.frontiers.get(flow.id, (None, None, None))
            # state may begin or restart at a checkpoint before the as_of: no frontier does
            least = frontier(flow.description.as_of)
            reached = before[1] or least
            read = input_frontier(flow, scheduler.shards)
            now = (
                upper.join(least),
                reached.join(flow.own.frontier).join(least),
                before[2] if read is None else read.join(least),
            )
            if now != before:
                write, output, input_ = (
                    new if new != old else None for new, old in zip(now, before, strict=True)
                )
                moved.append(Frontiers(flow.id, write, output, input_))
                self.frontiers[flow.id] = now
        return moved


def _hydrates(flow: Dataflow, scheduler: Scheduler) -> bool:
    """Whether a hydration is this replica's to report: that of a source is its owner's."""
    return flow.build is not None and (scheduler.is_owner or not flow.binds)


def standby(flow: Dataflow, obstacle: str) -> Status:
    """Return the condition of a source or rebase on a replica that is not the owner."""
    return Status(flow.id, "stalled" if obstacle else STANDBY, obstacle)


def condition(flow: Dataflow, now_ms: int, skew: Skew, *, elapsed_ms: int) -> Status:
    """Return the condition of a flow, for display.

    `skew` is that of the replica's clock; `elapsed_ms` is of one that nobody sets.
    """
    if _is_blocked(flow, now_ms):
        message = f"waits for {', '.join(sorted(flow.blocked_by))}"
        return Status(flow.id, "stalled", message)
    build, trouble = flow.build, flow.trouble
    if flow.binds and trouble is None and skew.is_wrong:
        return Status(flow.id, "stalled", _of_clock(skew))
    progress = _waiting(flow, elapsed_ms)
    if build is not None:
        progress = f"{build.done} of {len(build.slices)} slices"
    loads = flow.binds and build is not None and flow.phase is Phase.RUNNING
    state = (Phase.BUILDING if loads else flow.phase).value
    if trouble is not None and flow.phase is not Phase.FAILED:
        state = "stalled" if flow.binds else "failed"
    return Status(flow.id, state, "" if trouble is None else trouble.message, progress)


def _waiting(flow: Dataflow, elapsed_ms: int) -> str:
    """Say what a source with a watermark waits for; empty if it waits for nothing.

    That is how many refused messages wait for upper, and for which partitions upper waits.
    """
    own, source = flow.own, flow.description.source
    if own is None or own.progress is None or source is None or source.watermark is None:
        return ""
    count = event_time.waiting(own.progress, elapsed_ms)
    upper, held = 0 if own.frontier.is_empty else own.frontier.time, ""
    numbers = idleness.holding(own.progress, upper, elapsed_ms, source.watermark)
    if numbers:
        first = f"partition{'s' if len(numbers) > 1 else ''} "
        said = ", ".join(str(number) for number in numbers[:MOST_HELD])
        more = f" and {len(numbers) - MOST_HELD:,} more" if len(numbers) > MOST_HELD else ""
        held = f"{first}{said}{more} hold{'' if len(numbers) > 1 else 's'} the watermark back"
    refused = f"{count:,} refused message{'s wait' if count > 1 else ' waits'} for upper"
    return "; ".join(filter(None, [refused if count else "", held]))


def _of_clock(skew: Skew) -> str:
    """Return the text about sources that do not tick because of clock skew (rule 27).

    In whole seconds, so that it does not change at each measurement.
    """
    assert skew.last_ms is not None
    seconds = round(abs(skew.last_ms) / 1000)
    side = "ahead of" if skew.last_ms > 0 else "behind"
    return (
        f"expected clocks within {MAX_SKEW_MS // 1000} s of each other, this replica's is"
        f" {seconds:,} s {side} the broker's: its time moves with messages only; set the clocks"
    )


def _is_blocked(flow: Dataflow, now_ms: int) -> bool:
    """Whether a view does not advance because an import does not (rule 26)."""
    if flow.binds or flow.own is None or flow.trouble or flow.phase is not Phase.RUNNING:
        return False
    if flow.own.frontier.is_empty or not flow.blocked_by:
        return False
    return now_ms - flow.own.frontier.time > BLOCKED_MS
