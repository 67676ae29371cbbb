"""A dataflow's whole life in a replica, as a machine. Pure.

`Dataflow.step(event, at_ms)` returns the dataflow after an event, and effects. Nothing else
changes one: the table (`streams.replica.driver.dataflow_table`) holds the present dataflows and
does the effects; who plans, runs, appends and records tells the table what happened. The
phases:

    STARTING   its stored state has not been looked up yet
    BUILDING   a snapshot, or an interval that it missed, is processed in slices
    RUNNING    its state is at `own.frontier` and is stepped
    FAILED     permanently: only dropping the dataflow helps

    event        in phase             busy   leads to
    Taken        all but FAILED       no     busy
    Released     any                  yes    not busy
    Known        STARTING             yes    its records
    Recovered    STARTING             yes    RUNNING
    Hydrates     STARTING             yes    BUILDING
    Followed     RUNNING              no     own at another position (source)
    Divided      RUNNING              no     BUILDING (source)
    Waits        RUNNING              no     blocked_by
    Ran          RUNNING, BUILDING    yes    cost_ms
    Stepped      RUNNING              yes    own moves; a failure that is passed is over
    Sliced       BUILDING             yes    the build moves; likewise
    Built        BUILDING             yes    RUNNING at the build's upper; likewise
    Void         RUNNING, BUILDING    yes    RUNNING with the state as before; no build
    Reclaimed    RUNNING, BUILDING    yes    the same again
    Superseded   RUNNING, BUILDING    yes    STARTING after a failure
    Unstaged     RUNNING, BUILDING    yes    STARTING; of a source as after Void
    Recorded     RUNNING                     its records
    Failed       any                         a pause; FAILED, or a rebuild, or no build (source)
    BatchLost    any                  yes    isolation, and as after Failed
    Restarted    any                         STARTING without state
    Compacted    any                         cannot be read as early any more
    Dropped      any                         gone

`busy` means that a micro-batch, an idle append or a recovery of it is in progress; nothing else
begins then, as rule 22 requires.
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import assert_never

from streams.compute.checkpoints import retained
from streams.compute.description import DataflowDescription
from streams.ids import CapabilityId, CollectionId, Offset
from streams.operators.engine import next_due
from streams.plan import physical
from streams.progress import Antichain, frontier, meet_all
from streams.replica.driver import retry_policy
from streams.replica.driver.dataflow_state import Build, OwnState, Record
from streams.replica.driver.events import (
    BatchLost,
    Built,
    Compacted,
    Discovery,
    Divided,
    Dropped,
    Effect,
    End,
    Event,
    Failed,
    Followed,
    Forget,
    ForgetBuild,
    ForgetRecords,
    Hydrates,
    Known,
    Log,
    Occupation,
    Ran,
    Reclaimed,
    Recorded,
    Recovered,
    Released,
    Restarted,
    Ring,
    Sliced,
    Stepped,
    Superseded,
    Taken,
    Unstaged,
    Void,
    Waits,
)
from streams.replica.driver.retry_policy import NOWHERE, Failure, FailureState, Isolation, Place


class Phase(Enum):
    """The phase of a dataflow; the values are those of `protocol.Status`."""

    STARTING = "starting"
    BUILDING = "hydrating"
    RUNNING = "running"
    FAILED = "failed"


ANY = frozenset(Phase)
WORKING = frozenset({Phase.RUNNING, Phase.BUILDING})
START, RUN, BUILD = (
    frozenset({phase}) for phase in (Phase.STARTING, Phase.RUNNING, Phase.BUILDING)
)

HAPPENS: Mapping[type[Event], tuple[frozenset[Phase], bool | None]] = {
    Taken: (ANY - {Phase.FAILED}, False),
    Released: (ANY, True),
    Known: (START, True),
    Recovered: (START, True),
    Hydrates: (START, True),
    Followed: (RUN, False),
    Divided: (RUN, False),
    Waits: (RUN, False),
    Ran: (WORKING, True),
    Stepped: (RUN, True),
    Sliced: (BUILD, True),
    Built: (BUILD, True),
    Void: (WORKING, True),
    Reclaimed: (WORKING, True),
    Superseded: (WORKING, True),
    Unstaged: (WORKING, True),
    Recorded: (RUN, None),
    Failed: (ANY, None),
    BatchLost: (ANY, True),
    Restarted: (ANY, None),
    Compacted: (ANY, None),
    Dropped: (ANY, None),
}
"""The phases in which an event is legal, and whether the dataflow is busy; None: either."""


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A dataflow of this replica.

    `blocked_by` names the imports whose uppers it waits for. `isolation` says whether it is
    stepped alone, and `tried` is the last micro-batch in which it was. `cost_ms` is the worker
    time of its last step. `read_from` maps each import to the offset of its log at which the
    current micro-batch was planned. `recorded_ms` is the time of the last record, 0 if there is
    none since its state was found.
    """

    description: DataflowDescription
    plan: physical.Dataflow
    plan_name: str
    fingerprint: str
    holds: Mapping[CollectionId, CapabilityId]
    phase: Phase = Phase.STARTING
    own: OwnState | None = None
    build: Build | None = None
    busy: bool = False
    gone: bool = False
    trouble: FailureState | None = None
    records: tuple[Record, ...] = ()
    recorded_ms: int = 0
    blocked_by: tuple[CollectionId, ...] = ()
    isolation: Isolation = field(default_factory=Isolation)
    tried: int = 0
    read_from: Mapping[CollectionId, Offset] = field(default_factory=dict)
    cost_ms: float = 0.0
    groups: frozenset[str] = field(init=False)
    """The groups that it reads and writes."""

    def __post_init__(self) -> None:
        imports = self.description.imports
        groups = frozenset({self.description.group, *(imported.group for imported in imports)})
        object.__setattr__(self, "groups", groups)

    @property
    def id(self) -> CollectionId:
        """The export's id, which names the dataflow."""
        return self.description.export

    @property
    def binds(self) -> bool:
        """Whether its Appends bind what they take (rule 18): a source or a rebase."""
        return self.description.source is not None or self.is_rebase

    @property
    def is_rebase(self) -> bool:
        """Whether it stamps the updates of its import with times of the clock."""
        return self.description.kind == "rebase"

    @property
    def has_watermark(self) -> bool:
        """Whether it is a source whose updates happen at the event times of its rows."""
        source = self.description.source
        return source is not None and source.watermark is not None

    @property
    def has_own_lane(self) -> bool:
        """Whether a lane of its own steps it: a source with a watermark, but for its builds."""
        return self.has_watermark and self.phase is not Phase.BUILDING

    @property
    def is_keyed(self) -> bool:
        """Whether it is a source whose state has the row of each key."""
        source = self.description.source
        return source is not None and bool(source.keys)

    @property
    def dead_letters(self) -> CollectionId | None:
        """The collection of a source's dead letters, if it has one."""
        source = self.description.source
        return None if source is None else source.dead_letters

    @property
    def scheduled(self) -> Antichain:
        """The least time at which its output changes without new input (rule 44)."""
        runs = () if self.own is None else self.own.runs.values()
        times = [next_due(self.plan, run) for run in runs]
        return meet_all(frontier(time) for time in times if time is not None)

    @property
    def place(self) -> Place:
        """The progress with which failures are compared."""
        if self.own is None:
            return NOWHERE
        at = self.own.frontier
        done = 0 if self.build is None else self.build.done
        return (sys.maxsize if at.is_empty else at.time, done)

    def is_ready(self, phase: Phase, now_ms: int) -> bool:
        """Whether a step may begin in this phase."""
        waiting = self.trouble is not None and now_ms < self.trouble.retry_at_ms
        return self.phase is phase and not (self.busy or self.gone or waiting)

    def step(self, event: Event, at_ms: int) -> "Next":
        """Return the dataflow after an event, and the effects in their order.

        `at_ms` is the replica's clock. An event that cannot happen now is a bug.
        """
        phases, busy = HAPPENS[type(event)]
        at = f"{event} in {self.phase}, busy: {self.busy}"
        assert self.phase in phases, at
        assert busy is None or busy is self.busy, at
        if isinstance(event, Occupation):
            return _occupied(self, event), ()
        if isinstance(event, Discovery):
            return _found(self, event)
        if isinstance(event, End):
            return _ended(self, event, at_ms)
        return _after(self, event, at_ms)


Next = tuple[Dataflow, Sequence[Effect]]
"""A dataflow after an event, and the effects."""


def _occupied(flow: Dataflow, event: Occupation) -> Dataflow:
    match event:
        case Taken(read_from, alone):
            return _taken(flow, read_from, alone)
        case Released():
            return replace(flow, busy=False)
        case Ran(milliseconds):
            return replace(flow, cost_ms=milliseconds)
        case Waits(imports):
            return replace(flow, blocked_by=imports)
        case Compacted(since):
            return replace(flow, description=flow.description.compacted(since))
        case Dropped():
            return replace(flow, gone=True)
        case _:
            assert_never(event)


def _found(flow: Dataflow, event: Discovery) -> Next:
    match event:
        case Known(records):
            return replace(flow, records=records), ()
        case Recovered(own):
            return replace(flow, own=own, phase=Phase.RUNNING), ()
        case Hydrates(own, build):
            return replace(flow, own=own, build=build, phase=Phase.BUILDING), ()
        case Followed(own):
            return replace(flow, own=own), (Ring(),)
        case Divided(build):
            return replace(flow, build=build, phase=Phase.BUILDING), (Ring(),)
        case _:
            assert_never(event)


def _ended(flow: Dataflow, event: End, at_ms: int) -> Next:
    match event:
        case Stepped() | Sliced() | Built():
            return _passed(_counted(flow, event)), ()
        case Void():
            return _without_build(flow), ()
        case Superseded():
            failure = Failure("another version of the dataflow was faster")
            return _then(_failed(flow, failure, at_ms), _restarted)
        case Reclaimed():
            return flow, (Log(logging.INFO, "chunks were reclaimed; writing them again"),)
        case Unstaged():
            return _unstaged(flow)
        case Failed(failure, for_good):
            return _failed(flow, failure, at_ms, for_good=for_good)
        case _:
            assert_never(event)


def _after(flow: Dataflow, event: BatchLost | Restarted | Recorded, at_ms: int) -> Next:
    match event:
        case BatchLost(failure):
            attempts = 1 + (flow.trouble.attempts if flow.trouble else 0)
            suspect = replace(flow, isolation=flow.isolation.after(failure, attempts))
            return _failed(suspect, failure, at_ms)
        case Restarted():
            return _restarted(flow)
        case Recorded():
            return _recorded(flow, event, at_ms)
        case _:
            assert_never(event)


def _taken(
    flow: Dataflow, read_from: Mapping[CollectionId, Offset] | None, alone: int | None
) -> Dataflow:
    return replace(
        flow,
        busy=True,
        read_from=flow.read_from if read_from is None else read_from,
        tried=flow.tried if alone is None else alone,
    )


def _counted(flow: Dataflow, event: Stepped | Sliced | Built) -> Dataflow:
    match event:
        case Stepped(own):
            return replace(flow, own=own)
        case Sliced(build):
            return replace(flow, build=build)
        case Built(build):
            own = OwnState(build.incarnation, frontier(build.upper), build.runs, build.offsets)
            return replace(flow, own=own, build=None, phase=Phase.RUNNING, recorded_ms=0)
        case _:
            assert_never(event)


def _passed(flow: Dataflow) -> Dataflow:
    """A failure is over once its place is passed."""
    if flow.trouble is not None and not flow.trouble.is_over(flow.place):
        return flow
    return replace(flow, trouble=None, isolation=flow.isolation.passed())


def _failed(flow: Dataflow, failure: Failure, at_ms: int, *, for_good: bool = False) -> Next:
    """Retry after a growing pause.

    After a few failures in a row a view's state is dropped, once, if it may be the cause; a
    source's build is, because its input may be gone.
    """
    after = retry_policy.after(flow.trouble, failure, flow.place, at_ms)
    failed = replace(flow, trouble=after)
    said = Log(logging.WARNING, "dataflow failed", {"reason": after.message})
    if for_good:
        return replace(failed, phase=Phase.FAILED), (said,)
    if flow.binds:
        is_hopeless = after.attempts % retry_policy.ATTEMPTS_BEFORE_REBUILD == 0
        return _without_build(failed) if is_hopeless and flow.build else failed, (said,)
    if retry_policy.wants_rebuild(after, failure):
        dropped = replace(failed, trouble=replace(after, rebuilt=True), records=())
        return _then((dropped, (said, Forget())), _restarted)
    return failed, (said,)


def _restarted(flow: Dataflow) -> Next:
    said = Log(logging.WARNING, "restarting dataflow from its checkpoint")
    fresh = replace(flow, phase=Phase.STARTING, own=None, build=None)
    return fresh, (said, Ring())


def _unstaged(flow: Dataflow) -> Next:
    """A build begins at its first slice; a view's as after a restart without state."""
    said = Log(logging.WARNING, "staged chunks are gone")
    if flow.binds:
        return _without_build(flow), (said,)
    return _then((flow, (said, ForgetBuild())), _restarted)


def _without_build(flow: Dataflow) -> Dataflow:
    """Release a source's void attempt; its state is still the previous one."""
    return replace(flow, build=None, phase=Phase.RUNNING)


def _then(first: Next, more: Callable[[Dataflow], Next]) -> Next:
    flow, before = first
    after, effects = more(flow)
    return after, (*before, *effects)


# Records


def is_due(flow: Dataflow, now_ms: int, every_ms: int) -> bool:
    """Whether the last record is old enough, and the state has moved on from it."""
    if flow.own is None or flow.own.frontier.is_empty or flow.phase is not Phase.RUNNING:
        return False
    if flow.binds and flow.plan.depth == 0:
        return False  # no state but the position, which the shard has
    if flow.has_watermark:
        return False  # what is pending is read again from the topic
    if flow.records and flow.records[-1].checkpoint.frontier == flow.own.frontier.time:
        return False
    return now_ms - flow.recorded_ms >= every_ms


def _recorded(flow: Dataflow, event: Recorded, at_ms: int) -> Next:
    """Keep the records that a restart may need; a finished build's progress is not one."""
    build = not flow.recorded_ms
    recorded = replace(flow, recorded_ms=at_ms)
    if event.upper is None:
        return recorded, (ForgetRecords((), build),) if build else ()
    present = (*flow.records, event.record)
    retained = keep(present, event.upper)
    frontiers = {record.checkpoint.frontier for record in retained}
    dropped = tuple(record for record in present if record.checkpoint.frontier not in frontiers)
    return replace(recorded, records=retained), (ForgetRecords(dropped, build),)


def keep(records: tuple[Record, ...], shard_upper: Antichain) -> tuple[Record, ...]:
    """Return the records to keep; of two at one frontier the later."""
    latest = {record.checkpoint.frontier: record for record in records}
    needed = set(retained([record.checkpoint for record in latest.values()], shard_upper))
    return tuple(record for record in latest.values() if record.checkpoint in needed)
