"""The scheduler: the table of this replica's flows, and the micro-batch of each lane.

There are four lanes: `ingest` steps sources and the views near them (`driver.fusion`),
`steady` the other views, `hydrate` runs builds, and `apart` (quarantine) steps one dataflow at
a time of those that may kill workers or never end (`driver.retry_policy`). Each source with a
watermark has a further lane, because a query has one watermark. A lane requests its next
micro-batch when Spark asks its source for the latest offset; decided at that moment and written
as a descriptor, it is given out, also to a restarted query, until `finish` or `abandon`. A
small one of `ingest` or `steady` goes to a resident task instead (`driver.fast_path`).

The scheduler holds the table of dataflows (`driver.dataflow_table`) and shares its lock. A
decision is made from the dataflows as they are at that moment; its results are events.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.compute.stalls import TopicReport
from streams.errors import Determinate, SlackwaterError
from streams.ids import CollectionId, Topic
from streams.kafka.topics import TopicInfo
from streams.progress import Antichain
from streams.replica.config import ReplicaConfig
from streams.replica.crash_injection import Crash
from streams.replica.driver import (
    event_planner,
    fusion,
    hydration_planner,
    ingest_planner,
    steady_planner,
    task_assignment,
)
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.clock_skew import Skew
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_table import DataflowTable
from streams.replica.driver.deadlines import deadline
from streams.replica.driver.error_causes import failure_of
from streams.replica.driver.events import (
    BatchLost,
    Divided,
    Event,
    Failed,
    Followed,
    Released,
    Restarted,
    Taken,
    Waits,
)
from streams.replica.driver.fast_path import FastPath, Way
from streams.replica.driver.import_state import Imports
from streams.replica.driver.ingest_planner import most_messages
from streams.replica.driver.micro_batch import (
    LANES,
    LaneName,
    LanePlace,
    MicroBatch,
    lane_of,
    offset_of,
)
from streams.replica.driver.retry_policy import Failure, Kind
from streams.replica.driver.wakeup import Wakeup
from streams.replica.driver.work_units import EventUnit, IdleUnit, Unit
from streams.replica.spark.scheduler_rpc import Question
from streams.replica.tasks.descriptor import Descriptor, Load
from streams.replica.tasks.worker import KafkaClients
from streams.storage.client.shards import Shards

log = logging.getLogger(__name__)

LONG_POLL_MS = 500
"""How long `latestOffset` waits for work; work and the end of the replica end the wait."""

Work = tuple[tuple[Unit, ...], tuple[IdleUnit, ...]]


@dataclass(slots=True)
class Scheduler:
    """The flows of a replica, and its lanes; `elapsed_ms` is of a clock that nobody sets."""

    config: ReplicaConfig
    shards: Shards
    store: CheckpointStore
    wakeup: Wakeup
    crash: Crash
    buckets: int
    now_ms: Callable[[], int]
    elapsed_ms: Callable[[], int]
    ends: Callable[[], Mapping[Topic, TopicReport]]
    describe: Callable[[Topic], TopicInfo | None]
    table: DataflowTable = field(init=False)
    stopping: bool = False
    defect: Exception | None = None
    """The internal error of a thread after which this process cannot continue."""
    near: fusion.NearViews = field(default_factory=fusion.NearViews)
    fast_path: FastPath = field(default_factory=FastPath)
    is_open: bool = False
    """Whether lanes get work: not before all have started, because a start takes all cores."""
    may_write: bool = True
    """Whether anything may be appended: not before the iteration's AllowWrites."""
    owns: bool = True
    """Whether this replica is the owner of the sources and rebases."""
    obstacle: str = ""
    """Why this replica cannot become the owner; empty if it can."""
    skew: Skew = field(default_factory=Skew)
    watermark_ms: Callable[[LaneName], int] = lambda _: 0
    """The watermark of a lane's query after its last micro-batch; 0 if it has none yet."""
    lanes: dict[LaneName, LanePlace] = field(
        default_factory=lambda: {name: LanePlace(name) for name in LANES}
    )

    def __post_init__(self) -> None:
        self.table = DataflowTable(self.store, self.wakeup, self.now_ms)

    @property
    def flows(self) -> Mapping[CollectionId, Dataflow]:
        """The dataflows that run."""
        return self.table.running

    @property
    def lock(self) -> threading.RLock:
        """The lock of the table."""
        return self.table.lock

    @property
    def broken(self) -> Exception | None:
        """The reason why only a new process helps, if any."""
        return self.defect or self.shards.defect

    def answer(self, question: Question) -> object:
        """Answer a request of a lane's source (`streams.replica.spark.scheduler_rpc`)."""
        lane = self.place(question["lane"])
        lane.questions += 1
        if question["ask"] == "latest":
            return self._latest(lane, question["start"])
        with self.lock:
            batch = self.current(lane.name)
            is_current = batch is not None and batch.seq == question["seq"]
            if batch is None or not is_current:
                return ["", "", 0]
            return [self.store.inputs.place, batch.step, batch.tasks]

    def place(self, name: LaneName) -> LanePlace:
        """Return the state of a lane; that of a source begins with its first question."""
        with self.lock:
            return self.lanes.setdefault(name, LanePlace(name))

    @property
    def is_owner(self) -> bool:
        """Whether sources and rebases are advanced here; else they follow their shards."""
        return self.owns and self.may_write

    def own(self, *, is_owner: bool, obstacle: str) -> None:
        """Advance sources and rebases from here on, or follow what their owner appends."""
        with self.lock:
            self.owns, self.obstacle = is_owner, obstacle
        self.wakeup.ring()

    def allow(self, *, writes: bool) -> None:
        """Append from here on; or only compute what others have appended."""
        with self.lock:
            self.may_write = writes
        self.wakeup.ring()

    def lanes_of_sources(self) -> Mapping[LaneName, int]:
        """Return the lanes of the sources with a watermark that there are, and its delay."""
        with self.lock:
            flows = tuple(self.flows.values())
        return {
            lane_of(flow): source.watermark.delay_ms
            for flow in flows
            if (source := flow.description.source) and source.watermark is not None
        }

    def forget_lane(self, name: LaneName) -> None:
        """Forget a lane whose source is gone."""
        with self.lock:
            self.lanes.pop(name, None)

    def _latest(self, lane: LanePlace, start: object) -> object:
        asked_at = time.monotonic()
        heard = self.wakeup.count
        while True:
            with self.lock:
                batch = self._for_query(lane, asked_at)
            if batch is not None:
                return offset_of(batch)
            left_ms = LONG_POLL_MS - (time.monotonic() - asked_at) * 1000
            if left_ms <= 0 or self.stopping:
                return start
            heard = self.wakeup.wait(heard, left_ms)

    def _for_query(self, lane: LanePlace, asked_at: float) -> MicroBatch | None:
        """Return the micro-batch that the lane's query has to run, and give it out."""
        if lane.current is None and not self.fast_path.begins(lane.name):
            self.begin(lane, asked_at)
        batch = lane.current
        if batch is None or batch.way is not Way.QUERY:
            return None
        batch.is_given = True
        return batch

    def begin(self, lane: LanePlace, asked_at: float) -> MicroBatch | None:
        """Decide the next micro-batch of a lane, if there is work; the lock is held."""
        if self.stopping or not self.is_open:
            return None
        view = Imports(self.shards)
        units, quiet = self._choose(lane.name, view)
        if not units:
            return None
        lane.seq += 1
        loads = [load for unit in units for load in unit.loads]
        way = self.fast_path.way(lane.name, units, self.ends(), time.monotonic())
        most = self.buckets if way is Way.QUERY else 1
        tasks = task_assignment.spread(loads, most) or ((),)
        batch = MicroBatch(
            lane=lane.name,
            seq=lane.seq,
            units=units,
            quiet=quiet,
            tasks=len(tasks),
            asked=asked_at,
            decided=time.monotonic(),
            deadline=deadline(units, self.config.deadline_s),
            began_at=time.time(),
            step=f"{lane.name}-{lane.seq}-{uuid.uuid4().hex[:8]}",
            way=way,
        )
        try:
            self.store.inputs.put_step(self._describe(batch, tasks))
        except Determinate as full:
            for unit in units:
                self.tell(unit.flow, Failed(failure_of(full)))
            return None
        alone = lane.seq if lane.name == "apart" else None
        for flow in batch.flows():
            self.tell(flow, Taken(view.read_from(flow), alone))
        lane.current = batch
        return batch

    def _describe(self, batch: MicroBatch, tasks: tuple[tuple[Load, ...], ...]) -> Descriptor:
        return Descriptor(
            step=batch.step,
            buckets=self.buckets,
            clients=KafkaClients(self.config.kafka),
            shares={unit.flow.id: unit.share for unit in batch.units},
            tasks=tasks,
            crash=self.crash,
            candidate_ms=batch.candidate_ms,
        )

    def _choose(self, lane: LaneName, view: Imports) -> Work:
        now_ms = self.now_ms()
        match lane:
            case "steady":
                return self._plan_views(self._far(), view, now_ms), ()
            case "hydrate":
                return self._plan_builds(self._trusted(), view, now_ms), ()
            case "apart":
                return self._alone(self.suspects(), view, now_ms), ()
            case "ingest":
                return self._plan_near(view, now_ms)
            case _:
                return self._plan_by_event_time(lane, view, now_ms)

    def _near(self, home: fusion.Home) -> list[Dataflow]:
        """Return the views that are stepped with their sources, in the lane of these."""
        trusted = self._trusted()
        homes = self.near.of(trusted, time.monotonic())
        return [flow for flow in trusted if flow.id in homes and homes[flow.id] == home]

    def _far(self) -> list[Dataflow]:
        trusted = self._trusted()
        near = self.near.of(trusted, time.monotonic())
        return [flow for flow in trusted if not flow.binds and flow.id not in near]

    def _plan_near(self, view: Imports, now_ms: int) -> Work:
        """Plan new messages, the views they reach, and near views that are behind."""
        ingestion = self.plan_sources(view, now_ms)
        return self._chained(None, ingestion.units, ingestion.quiet, view, now_ms)

    def _chained(
        self,
        home: fusion.Home,
        units: Sequence[Unit],
        quiet: Sequence[IdleUnit],
        view: Imports,
        now_ms: int,
    ) -> Work:
        """Add to the units of sources the views near them."""
        near = self._near(home)
        if not units:
            return self._plan_views(near, view, now_ms), ()
        batch = fusion.Chain(
            view=view,
            now_ms=now_ms,
            budget=self.config.budgets.step_bytes,
            units=list(units),
            quiet=list(quiet),
        )
        batch.follow(near)
        behind = [flow for flow in near if flow.id not in batch.reached]
        return (*batch.units, *self._plan_views(behind, view, now_ms)), tuple(batch.quiet)

    def _trusted(self) -> list[Dataflow]:
        return [flow for flow in self.sound() if not flow.isolation.steps]

    def is_needed(self, lane: LaneName) -> bool:
        """Whether a lane may have work: `apart` usually has none, and is not free."""
        with self.lock:
            return lane != "apart" or bool(self.suspects())

    def sound(self) -> list[Dataflow]:
        """The flows whose shards can all be followed; record a failure for the others."""
        followed = frozenset(self.shards.groups())
        sound = []
        for flow in list(self.flows.values()):
            if flow.groups <= followed:
                sound.append(flow)
            elif flow.phase in {Phase.RUNNING, Phase.BUILDING} and not flow.busy:
                lost = ", ".join(sorted(flow.groups - followed))
                reason = f"shards that cannot be followed: {lost}"
                self.tell(flow, Failed(Failure(reason, Kind.UNREACHABLE)))
                self.tell(flow, Restarted())
        return sound

    def upper(self, flow: Dataflow) -> Antichain | None:
        """The upper of a flow's shard as folded so far; None if it cannot be followed."""
        try:
            return self.shards.state(flow.id).upper
        except SlackwaterError:
            return None

    def has_dropped(self, batch: MicroBatch) -> bool:
        """Whether a dataflow of this batch was dropped meanwhile."""
        with self.lock:
            return any(flow.id not in self.flows for flow in batch.flows())

    def is_in_the_way(self, batch: MicroBatch) -> bool:
        """Whether this batch blocks a flow with fewer convictions that could be stepped.

        The flow's plan is checked: one that has to wait, perhaps for this very batch, gains
        nothing.
        """
        with self.lock:
            convictions = min(unit.flow.isolation.convictions for unit in batch.units)
            waiting = [
                flow for flow in self.suspects() if flow.isolation.convictions < convictions
            ]
            return bool(waiting and self._alone(waiting, Imports(self.shards), self.now_ms()))

    def suspects(self) -> list[Dataflow]:
        """The flows that are stepped alone in `apart`."""
        return [flow for flow in self.sound() if flow.isolation.steps and not flow.has_own_lane]

    def _alone(self, flows: Sequence[Dataflow], view: Imports, now_ms: int) -> tuple[Unit, ...]:
        """Plan a micro-batch for one flow that may kill workers or never end.

        Flows with fewer convictions come first: a guilty one may take long.
        """
        for flow in sorted(flows, key=lambda flow: (flow.isolation.convictions, flow.tried)):
            units = (
                self._plan_builds([flow], view, now_ms)
                or self._plan_views([flow], view, now_ms)
                or self.plan_sources(view, now_ms, [flow]).units
            )
            if units:
                return units
        return ()

    def _plan_builds(
        self, flows: Sequence[Dataflow], view: Imports, now_ms: int
    ) -> tuple[Unit, ...]:
        """Plan builds; of those that stage what they append, none before AllowWrites."""
        building = [
            flow
            for flow in flows
            if self.may_write or flow.build is None or not flow.build.writes
        ]
        return hydration_planner.plan(building, view, now_ms, self.config.budgets.slice_bytes)

    def _plan_views(
        self, flows: Sequence[Dataflow], view: Imports, now_ms: int
    ) -> tuple[Unit, ...]:
        budget, may_write = self.config.budgets.step_bytes, self.may_write
        plan = steady_planner.plan(flows, view, now_ms, budget, may_write=may_write)
        for lost in plan.lost:
            self.tell(lost.flow, Restarted())
        for waiting in plan.waiting:
            if waiting.imports != waiting.flow.blocked_by:
                self.tell(waiting.flow, Waits(waiting.imports))
        return plan.units

    def plan_sources(
        self, view: Imports, now_ms: int, flows: Sequence[Dataflow] | None = None
    ) -> ingest_planner.SourcePlan:
        """Plan the sources, and move those that need no work."""
        limits = ingest_planner.IngestLimits(
            messages=self.config.budgets.messages,
            message_bytes=self.config.budgets.message_bytes,
            slice_bytes=self.config.budgets.slice_bytes,
            step_bytes=self.config.budgets.step_bytes,
            tick_ms=self.config.tick_ms,
            skew_ms=self.skew.known(now_ms),
            follows=not self.is_owner,
        )
        wanted = self._trusted() if flows is None else flows
        plan = ingest_planner.plan(wanted, view, self.ends(), now_ms, limits)
        for stuck in plan.stuck:
            self.tell(stuck.flow, Failed(Failure(stuck.reason, Kind.UNREACHABLE)))
        for moved in plan.moved:
            self.tell(moved.flow, Followed(moved.own))
        for began in plan.began:
            self.tell(began.flow, Divided(began.build))
        return plan

    def _plan_by_event_time(self, lane: LaneName, view: Imports, now_ms: int) -> Work:
        """Plan the source with a watermark that a lane is of, and the views near it."""
        for flow in self.sound():
            if flow.has_watermark and lane_of(flow) == lane:
                units = self._events(flow, lane, view, now_ms)
                return self._chained(flow.id, units, (), view, now_ms)
        return (), ()

    def _events(
        self, flow: Dataflow, lane: LaneName, view: Imports, now_ms: int
    ) -> tuple[EventUnit, ...]:
        """Plan a source with a watermark, or move it without work."""
        source, budgets = flow.description.source, self.config.budgets
        observation = None if source is None else self.ends().get(source.topic)
        if observation is None or not flow.is_ready(Phase.RUNNING, now_ms):
            return ()
        most = most_messages(budgets.messages, budgets.message_bytes, observation.message_bytes)
        moment = event_planner.Moment(
            elapsed_ms=self.elapsed_ms(),
            watermark_ms=self.watermark_ms(lane),
            messages=most,
            slice_bytes=budgets.slice_bytes,
            follows=not self.is_owner,
        )
        match event_planner.plan(flow, view, observation, moment):
            case EventUnit() as unit:
                return (unit,)
            case ingest_planner.StalledSource(_, reason) if self.is_owner:
                self.tell(flow, Failed(Failure(reason, Kind.UNREACHABLE)))
            case ingest_planner.MovedSource(_, own):
                self.tell(flow, Followed(own))
            case ingest_planner.StartedBuild(_, build):
                self.tell(flow, Divided(build))
            case ingest_planner.StalledSource() | None:
                pass
        return ()

    def tell(self, flow: Dataflow, event: Event) -> Dataflow:
        """Step a dataflow's machine; return it as it is after the event."""
        return self.table.tell(flow, event)

    def present(self, flow: Dataflow) -> Dataflow:
        """Return what a dataflow is at present."""
        return self.table.of(flow)

    def current(self, lane: LaneName) -> MicroBatch | None:
        """Return the micro-batch that a lane's query was given and has to run now."""
        batch = self.place(lane).current
        is_its_own = batch is not None and batch.is_given and batch.way is Way.QUERY
        return batch if is_its_own else None

    def finish(self, batch: MicroBatch) -> None:
        """End a micro-batch that is committed, or no longer needed; once."""
        with self.lock:
            lane = self.lanes[batch.lane]
            if lane.current is not batch:
                return  # given up meanwhile; its dataflows may be in another one
            for flow in batch.flows():
                self.tell(flow, Released())
            lane.current = None
        self.store.inputs.drop_step(batch.step)
        self.wakeup.ring()

    def abandon(self, lane: LaneName, failure: Failure | None) -> None:
        """Give up the micro-batch of a lane's query, if it has one."""
        batch = self.current(lane)
        if batch is not None:
            self.give_up(batch, failure)

    def give_up(self, batch: MicroBatch, failure: Failure | None) -> None:
        """Give up a micro-batch; without a failure it is no longer needed.

        Its flows are retried later, or alone if one of them may be the cause.
        """
        if failure is not None:
            failure = replace(failure, dataflows=len(batch.units))
            with self.lock:
                for unit in batch.units:
                    self.tell(unit.flow, BatchLost(failure))
        self.finish(batch)
