"""Assembles the running parts of a replica once its instance is known.

    sinks       one thread each
    door        RPC server for the lanes' sources
    lanes       streaming queries, three or four, and one of each source with a watermark
    resident    jobs of Spark with a task each for small micro-batches, if any are wanted
    starter     recovers the state of new dataflows
    idler       appends idle intervals
    measurer    measures the skew between our clock and the broker's
    keeper      maintenance: holds, deferred records, garbage, dead lanes

Creating and dropping a dataflow changes only the scheduler's table of flows: no query is
restarted.
"""

import logging
import os
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

from streams.compute.description import DataflowDescription
from streams.compute.protocol import CreateInstance
from streams.errors import SlackwaterError
from streams.ids import CollectionId
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw import READS_FEW, RawReader
from streams.replica.config import ReplicaConfig
from streams.replica.crash_injection import Crash
from streams.replica.driver import resident_steps
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.checkpoint_store import CheckpointStore
from streams.replica.driver.checkpoint_writer import CheckpointWriter
from streams.replica.driver.commit import Committer
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.lane import Lane
from streams.replica.driver.lanes import Lanes
from streams.replica.driver.maintenance import IdleAdvancer, Maintenance, PeriodicThread
from streams.replica.driver.micro_batch import LaneName
from streams.replica.driver.new_dataflow import new_dataflow
from streams.replica.driver.recovery import RecoveryThread
from streams.replica.driver.resident_steps import ResidentSteps
from streams.replica.driver.scheduler import Scheduler
from streams.replica.driver.sinks import Sinks
from streams.replica.driver.skew_measurement import SkewMonitor
from streams.replica.driver.wakeup import Wakeup
from streams.replica.ingest.topic_ends import TopicEndsPoller, elapsed_ms
from streams.replica.spark.resident_jobs import ResidentJobs, cores_of
from streams.replica.spark.scheduler_rpc import SchedulerServer
from streams.storage.client.shards import Shards
from streams.storage.log.events import Body, Drop

log = logging.getLogger(__name__)

DROP_POLL_MS = 100
DRAIN_POLL_MS = 20
ENDS_ANSWER_S = 5.0
"""How long a request for the ends of a topic may take: until then its source stands still."""

DRAIN_S = 10.0
"""How long a stop waits for running micro-batches.

Supervisors wait two or three times as long before they kill.
"""


@dataclass(slots=True)
class ReplicaParts:
    """The running parts of a replica."""

    config: ReplicaConfig
    shards: Shards
    watch: TopicEndsPoller
    scheduler: Scheduler
    sinks: Sinks
    door: SchedulerServer
    lanes: Lanes
    loops: tuple[PeriodicThread, ...]
    timings: Timings
    resident: ResidentJobs | None = None

    def create(self, description: DataflowDescription) -> None:
        """Start maintaining a dataflow."""
        if description.kind == "sink":
            self.sinks.create(description)
            return
        scheduler = self.scheduler
        if description.source is not None:
            self.watch.add(description.source.topic)
        scheduler.table.add(new_dataflow(description, self.config.name))

    def drop(self, export: CollectionId) -> None:
        """Stop maintaining a dataflow, and release this replica's holds."""
        scheduler = self.scheduler
        if self.sinks.drop(export):
            return
        flow = scheduler.table.drop(export)
        if flow is None:
            return
        heard = 0
        while scheduler.present(flow).busy:  # its running work still reads its shards
            heard = scheduler.wakeup.wait(heard, DROP_POLL_MS)
        scheduler.table.remove(flow)
        scheduler.store.forget(export)
        self._release(flow)
        self._leave(flow)

    def allow(self, *, writes: bool) -> None:
        """Let dataflows append and sinks write, or only compute what others have appended."""
        self.scheduler.allow(writes=writes)
        self.sinks.own(is_owner=self.scheduler.is_owner, obstacle=self.scheduler.obstacle)

    def own(self, *, is_owner: bool, obstacle: str) -> None:
        """Run sources, rebases and sinks from here on, or stand by for their owner."""
        self.scheduler.own(is_owner=is_owner, obstacle=obstacle)
        self.sinks.own(is_owner=self.scheduler.is_owner, obstacle=obstacle)

    def _release(self, flow: Dataflow) -> None:
        """Release this replica's holds; a hold that stays keeps history, with no other harm."""
        open_ = self.shards.groups()
        events: list[tuple[str, Body]] = [
            (imported.group, Drop(imported.collection, flow.holds[imported.collection]))
            for imported in flow.description.imports
            if imported.group in open_
        ]
        try:
            self.shards.submit(events)
        except SlackwaterError as failure:
            log.warning(
                "cannot release holds", extra={"dataflow": flow.id, "reason": str(failure)}
            )

    def _leave(self, flow: Dataflow) -> None:
        """Stop following the groups that no other dataflow needs."""
        source, others = flow.description.source, self.scheduler.flows.values()
        needed = {group for other in others for group in other.groups}
        needed.update(self.sinks.groups)
        for group in flow.groups - needed:
            self.shards.close(group)
        topics = {
            other.description.source.topic for other in others if other.description.source
        }
        if source is not None and source.topic not in topics:
            self.watch.remove(source.topic)

    def close(self) -> None:
        """Stop everything once running work is done, or after `DRAIN_S` seconds."""
        if self.resident is not None:
            self.resident.begin_no_more()
        self.scheduler.stopping = True
        self.scheduler.wakeup.ring()
        self.sinks.close()
        for loop in self.loops:
            loop.join()
        self._drain()
        if self.resident is not None:
            self.resident.stop()
        self.lanes.stop()
        self.door.close()
        self.watch.close()
        self.shards.close()

    def _drain(self) -> None:
        """Wait for the lanes' micro-batches.

        A micro-batch that is interrupted loses its work, and Spark and its workers log errors.
        """
        wakeup, deadline = self.scheduler.wakeup, time.monotonic() + DRAIN_S
        heard = wakeup.count
        while busy := self._busy():
            if time.monotonic() > deadline:
                log.warning("micro-batches were abandoned", extra={"lanes": ", ".join(busy)})
                return
            heard = wakeup.wait(heard, DRAIN_POLL_MS)

    def _busy(self) -> list[LaneName]:
        of_queries = [lane.name for lane in self.lanes.running.values() if lane.is_busy]
        return of_queries + resident_steps.busy(self.scheduler)


def assemble(
    config: ReplicaConfig,
    instance: CreateInstance,
    store: CheckpointStore,
    broker: KafkaBroker,
    spark: SparkSession,
) -> ReplicaParts:
    """Create all parts and start them."""
    wakeup = Wakeup()
    shards = followed_shards(broker, instance.namespace)
    shards.subscribe(lambda _: wakeup.ring())
    topics = RawReader(config.kafka, ENDS_ANSWER_S, READS_FEW)
    watch = TopicEndsPoller(topics, wakeup.ring, _now_ms)
    crash = Crash(config.points, config.state, os.getpgrp())
    scheduler = Scheduler(
        config=config,
        shards=shards,
        store=store,
        wakeup=wakeup,
        crash=crash,
        buckets=instance.buckets,
        now_ms=_now_ms,
        elapsed_ms=elapsed_ms,
        ends=watch.ends,
        describe=broker.topics.describe,
    )
    recorder = CheckpointWriter(scheduler, store, config.checkpoint_ms)
    committer = Committer(scheduler, recorder)
    door = SchedulerServer(scheduler.answer)
    timings = Timings(config.state / "timings.jsonl" if config.timings else None)

    def lane(name: LaneName, delay_ms: int | None) -> Lane:
        return Lane(name, spark, scheduler, committer, door.path, timings, delay_ms)

    lanes = Lanes(scheduler, lane)
    scheduler.watermark_ms = lanes.watermark_ms
    maintenance = Maintenance(scheduler, store, recorder, lanes.tend)
    loops = _loops(scheduler, store, committer, maintenance)
    lanes.tend()
    scheduler.is_open = True
    resident = _resident(config, spark, ResidentSteps(scheduler, committer, timings))
    for loop in loops:
        loop.start()
    sinks = Sinks(instance.namespace, config.kafka, shards, _now_ms, crash)
    return ReplicaParts(
        config, shards, watch, scheduler, sinks, door, lanes, loops, timings, resident
    )


def _resident(
    config: ReplicaConfig, spark: SparkSession, steps: ResidentSteps
) -> ResidentJobs | None:
    """Start the resident tasks, if any are wanted."""
    count = config.spark.resident_tasks
    if not count:
        return None
    place = steps.scheduler.store.inputs.place
    jobs = ResidentJobs(spark.sparkContext, count, place, steps.serve, cores_of)
    jobs.start()
    return jobs


def _loops(
    scheduler: Scheduler, store: CheckpointStore, committer: Committer, maintenance: Maintenance
) -> tuple[PeriodicThread, ...]:
    return (
        PeriodicThread("starter", RecoveryThread(scheduler, store).start_all, scheduler),
        PeriodicThread("idler", IdleAdvancer(scheduler, committer).move, scheduler),
        PeriodicThread("measurer", SkewMonitor(scheduler).measure, scheduler),
        PeriodicThread("keeper", maintenance.run_once, scheduler),
    )


def followed_shards(broker: KafkaBroker, namespace: str) -> Shards:
    """Return a client of a namespace's shards that follows what it opens by itself."""
    return Shards(
        broker.logs,
        broker.chunks,
        broker.topics,
        namespace=namespace,
        now_ms=_now_ms,
        pump=True,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
