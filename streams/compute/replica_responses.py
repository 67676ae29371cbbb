"""The fold of the replicas' responses: frontiers, reports, live replicas. Pure.

Several replicas may serve one instance: a dataflow's frontier is the furthest that any of them
reported, and an earlier one changes nothing. What each says of a dataflow is kept apart: the
dataflow is as well as it is on the live replica that says the best of it. One that stands by
for the owner of a source or sink says nothing of it.

A replica is live while its last response is less than `SILENCE_S` old. Its successor, another
process of the same name, replaces it at once.

Times are seconds of the controller's monotonic clock.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from streams.compute.activity import DataflowActivity, ReplicaActivity, ReplicaMemory
from streams.compute.peeks import PeekResponse
from streams.compute.protocol import (
    Alive,
    Frontiers,
    Hydration,
    Reconciled,
    ResponseMessage,
    Status,
    replica_of,
)
from streams.compute.subscribes import SubscribeResponse
from streams.ids import CollectionId
from streams.progress import Antichain
from streams.storage.log.persistent_map import Map

HYDRATING = "hydrating"
"""The state of a `Status` to which a `Hydration` belongs."""

SILENCE_S = 10.0
"""A replica without a response for this long counts as gone; it writes more often."""

REPLACED = -math.inf
"""The last response time of a process whose successor has responded."""


STANDBY = "standby"
"""The state of a `Status` of a source or sink that another replica owns."""

_BEST_FIRST = ("running", HYDRATING, "starting", "stalled", "failed")


MOST_LANES_OF = 64
"""The number of replicas whose lanes, and whose memory, are remembered."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one process has said of a dataflow; a `hydration` only while it is hydrating.

    `activity_at` is when its `activity` was read, `output` the frontier up to which it has
    processed the dataflow itself; None if it has not said.
    """

    status: Status | None = None
    hydration: Hydration | None = None
    activity: DataflowActivity | None = None
    activity_at: float = 0.0
    output: Antichain | None = None


NOTHING = Report()


@dataclass(frozen=True, slots=True)
class LanesReport:
    """What a process has said of its lanes, which was read at `at`."""

    process: str
    activity: ReplicaActivity
    at: float


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a process has said of its memory."""

    process: str
    memory: ReplicaMemory


Said = TypeVar("Said")


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one dataflow.

    Each frontier is the furthest that a replica has reported, None if none has. `reports` are
    by process.
    """

    write: Antichain | None = None
    output: Antichain | None = None
    input: Antichain | None = None
    reports: Mapping[str, Report] = field(default_factory=dict)

    def best(self, live: frozenset[str]) -> Report:
        """Return the best report of the live processes; of all, before one of them has any."""
        reports = [
            report
            for process, report in self.reports.items()
            if process in live and report.status is not None
        ]
        return min(reports or self.reports.values(), key=_rank, default=NOTHING)


NO_CONDITION = Condition()


def _rank(report: Report) -> int:
    state = "" if report.status is None else report.status.state
    return _BEST_FIRST.index(state) if state in _BEST_FIRST else len(_BEST_FIRST)


def _latest(reports: Mapping[str, Said], process: str, said: Said) -> Mapping[str, Said]:
    """Return reports by replica with one more, in place of what the replica said last."""
    name = replica_of(process)
    others = [(other, report) for other, report in reports.items() if other != name]
    over = max(0, len(others) + 1 - MOST_LANES_OF)
    return dict([*others[over:], (name, said)])


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """All dataflows.

    `ended` maps each export that a process has stopped to those that have. `heard` maps each
    process to the time of its last response in the current iteration, which began at `since`;
    all responses until `now` are folded. `lanes` and `memory` are by the names of replicas. A
    response copies the square root of the conditions at most, so what thousands of dataflows
    report stays cheap.
    """

    conditions: Map[CollectionId, Condition] = field(default_factory=Map)
    ended: Mapping[CollectionId, frozenset[str]] = field(default_factory=dict)
    heard: Mapping[str, float] = field(default_factory=dict)
    lanes: Mapping[str, LanesReport] = field(default_factory=dict)
    memory: Mapping[str, MemoryReport] = field(default_factory=dict)
    since: float = 0.0
    now: float = 0.0

    def report(self, key: CollectionId) -> Report:
        """Return what is known of a dataflow: the best that a live replica says."""
        return self.conditions.get(key, NO_CONDITION).best(self.replicas)

    @property
    def dropped(self) -> frozenset[CollectionId]:
        """Return the exports whose end every live replica has confirmed, and at least one."""
        live = self.replicas
        return frozenset(key for key, processes in self.ended.items() if live <= processes)

    @property
    def replicas(self) -> frozenset[str]:
        """Return the live replica processes."""
        return frozenset(
            replica for replica, at in self.heard.items() if self.now - at < SILENCE_S
        )

    @property
    def is_deserted(self) -> bool:
        """Whether no replica is live; False before they had the time to answer."""
        return not self.replicas and self.now - self.since >= SILENCE_S

    def step(self, message: ResponseMessage, now: float) -> "InstanceStatus":
        """Return the state after a response that is read now."""
        heard = _heard(self.heard, message.replica, now)
        return replace(self._said(message, now), heard=heard, now=now)

    def _said(self, message: ResponseMessage, now: float) -> "InstanceStatus":
        match message.response:
            case Reconciled() | Alive() | PeekResponse() | SubscribeResponse():
                return self
            case Frontiers() as frontiers:
                return self._moved(message.replica, frontiers)
            case Status(key) as status:
                before = self._of(key).reports.get(message.replica, NOTHING)
                goes_on = before.hydration if status.state == HYDRATING else None
                report = replace(before, status=status, hydration=goes_on)
                return self._reported(message.replica, key, report)
            case Hydration(key) as hydration:
                before = self._of(key).reports.get(message.replica, NOTHING)
                report = replace(before, hydration=hydration)
                return self._reported(message.replica, key, report)
            case DataflowActivity(key) as activity:
                before = self._of(key).reports.get(message.replica, NOTHING)
                report = replace(before, activity=activity, activity_at=now)
                return self._reported(message.replica, key, report)
            case ReplicaActivity() | ReplicaMemory() as said:
                return self._of_replica(message.replica, said, now)
            case _:
                assert_never(message.response)

    def at(self, now: float) -> "InstanceStatus":
        """Return the state when all responses until now are read."""
        return replace(self, now=now)

    def begin(self, now: float) -> "InstanceStatus":
        """Return the state at the start of an iteration: replicas have to respond again."""
        return replace(self, heard={}, since=now, now=now)

    def forget(self, key: CollectionId) -> "InstanceStatus":
        """Return the state without an export that no caller asks for."""
        ended = {export: processes for export, processes in self.ended.items() if export != key}
        return replace(self, conditions=self.conditions.remove(key), ended=ended)

    def _of(self, key: CollectionId) -> Condition:
        return self.conditions.get(key, NO_CONDITION)

    def _reported(self, process: str, key: CollectionId, report: Report) -> "InstanceStatus":
        """Keep a report, and those of the processes that may be live still."""
        before = self._of(key)
        return self._with(key, replace(before, reports=self._kept(before, process, report)))

    def _kept(self, condition: Condition, process: str, report: Report) -> Mapping[str, Report]:
        others = {
            other: said
            for other, said in condition.reports.items()
            if other != process and self._may_live(other, process)
        }
        return {**others, process: report}

    def _of_replica(
        self, process: str, said: ReplicaActivity | ReplicaMemory, now: float
    ) -> "InstanceStatus":
        """Keep what a replica says of itself, in place of what it said last."""
        if isinstance(said, ReplicaMemory):
            memory = _latest(self.memory, process, MemoryReport(process, said))
            return replace(self, memory=memory)
        lanes = _latest(self.lanes, process, LanesReport(process, said, now))
        return replace(self, lanes=lanes)

    def _may_live(self, process: str, speaker: str) -> bool:
        """Whether a process is not replaced by the one that speaks, nor silent for long."""
        if replica_of(process) == replica_of(speaker) or process not in self.heard:
            return False
        return self.now - self.heard[process] < SILENCE_S

    def _moved(self, process: str, moved: Frontiers) -> "InstanceStatus":
        key, write, output = moved.id, moved.write, moved.output
        before = self._of(key)
        after = replace(
            before,
            write=_furthest(before.write, write),
            output=_furthest(before.output, output),
            input=_furthest(before.input, moved.input),
        )
        if output is not None:
            report = before.reports.get(process, NOTHING)
            own = replace(report, output=_furthest(report.output, output))
            after = replace(after, reports=self._kept(after, process, own))
        gone = write is not None and write.is_empty and output is not None and output.is_empty
        if not gone:
            return self._with(key, after)
        processes = self.ended.get(key, frozenset()) | {process}
        return replace(self._with(key, after), ended={**self.ended, key: processes})

    def _with(self, key: CollectionId, condition: Condition) -> "InstanceStatus":
        return replace(self, conditions=self.conditions.set(key, condition))


def _heard(before: Mapping[str, float], process: str, now: float) -> Mapping[str, float]:
    """Record a response of a process: its first one replaces processes of the same name.

    If two of one name live, against the rules, both are listed from their next responses on.
    """
    if process in before:
        return {**before, process: now}
    name = replica_of(process)
    replaced = {former: REPLACED for former in before if replica_of(former) == name}
    return {**before, **replaced, process: now}


def _furthest(before: Antichain | None, now: Antichain | None) -> Antichain | None:
    if before is None or now is None:
        return now if before is None else before
    return before.join(now)
