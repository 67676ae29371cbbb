"""The rows of the system relations. Pure.

Rows are of objects in the catalog: what a replica says of another id is left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

from streams.adapter.catalog import NAMES, Catalog
from streams.adapter.cluster_status import Observed
from streams.adapter.running_subscribes import RunningSubscribe
from streams.adapter.show import ShownObject
from streams.adapter.show_clusters import ShownCluster
from streams.adapter.show_statements import replica_rows
from streams.compute.activity import DataflowActivity, OperatorActivity
from streams.compute.peeks import Peek
from streams.compute.protocol import replica_of
from streams.compute.replica_responses import Report
from streams.ids import CollectionId
from streams.plan import json as plan_json
from streams.plan.display.explain import operator as described
from streams.plan.physical import Dataflow
from streams.progress import END, Antichain

Cell = str | int | None
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class SystemState:
    """What the coordinator knows at `now_ms`, in milliseconds since 1970.

    `plans` has the plans in JSON of the dataflows that have one in their description.
    """

    catalog: Catalog
    shown: Sequence[ShownObject]
    observed: Observed
    clusters: Sequence[ShownCluster]
    plans: Mapping[CollectionId, str]
    peeks: Sequence[Peek]
    subscribes: Sequence[RunningSubscribe]
    now_ms: int

    def name(self, id_: CollectionId) -> str | None:
        """Return the name of an object; None if there is none of the id."""
        item = self.catalog.items.get(id_)
        return None if item is None else item.name

    @property
    def names(self) -> Mapping[CollectionId, str]:
        """Return the names of all objects."""
        return {id_: item.name for id_, item in self.catalog.items.items()}

    def reports(self) -> Iterator[tuple[CollectionId, str, str, Report]]:
        """Yield the id and name of each dataflow, with a process and what it says."""
        for id_, item in sorted(self.catalog.items.items()):
            for process, report in sorted(self.observed.condition(item).reports.items()):
                yield id_, item.name, process, report

    def age_ms(self, at: float) -> int:
        """Return how long ago a time of the controller's clock is."""
        return max(0, round((self.observed.now - at) * 1000))


@lru_cache(maxsize=1000)
def plan_of(text: str) -> Dataflow:
    """Return the plan in JSON."""
    return plan_json.loads(text)


def rows(name: str, state: SystemState) -> list[Row]:
    """Return the rows of a system relation, in the order of its columns."""
    return list(_ROWS[name](state))


def _objects(state: SystemState) -> Iterator[Row]:
    for shown in state.shown:
        item = shown.item
        kind = NAMES[item.kind]
        condition = (shown.status, shown.progress, shown.detail)
        yield item.id, item.name, kind, *condition, item.cluster


def _frontiers(state: SystemState) -> Iterator[Row]:
    for shown in state.shown:
        upper = _time(shown.upper)
        condition = state.observed.condition(shown.item)
        computed = (_time(condition.input), _time(condition.output))
        lag_ms = None if upper is None else state.now_ms - upper
        yield shown.item.id, shown.item.name, _time(shown.since), upper, *computed, lag_ms


def _clusters(state: SystemState) -> Iterator[Row]:
    return (astuple(cluster) for cluster in state.clusters)


def _replicas(state: SystemState) -> Iterator[Row]:
    yield from replica_rows(state.observed, state.shown, state.now_ms)


def _hydration(state: SystemState) -> Iterator[Row]:
    for id_, name, process, report in state.reports():
        status, hydration = report.status, report.hydration
        if status is None:
            continue
        counts: tuple[int | None, ...] = (None, None, None)
        if hydration is not None:
            counts = (hydration.done, hydration.total, hydration.seconds_left)
        yield id_, name, replica_of(process), status.state, status.message, *counts


def _activities(
    state: SystemState,
) -> Iterator[tuple[CollectionId, str, str, Report, DataflowActivity]]:
    for id_, name, process, report in state.reports():
        if report.activity is not None:
            yield id_, name, replica_of(process), report, report.activity


def _dataflows(state: SystemState) -> Iterator[Row]:
    for id_, name, replica, report, said in _activities(state):
        yield (
            id_,
            name,
            replica,
            state.age_ms(report.activity_at),
            said.elapsed_ms,
            said.batches,
            said.hydration_batches,
            said.micros,
            said.recent_ms,
            said.recent_batches,
            said.recent_micros,
        )


def _described(state: SystemState) -> Iterator[tuple[Row, str | None, OperatorActivity]]:
    """Yield each operator: its first columns, its description, what it has done."""
    names = state.names
    for id_, name, replica, _, said in _activities(state):
        text = state.plans.get(id_, "")
        plan = plan_of(text) if text else None
        for operator in said.operators:
            level = description = None
            if plan is not None and operator.number < len(plan.nodes):
                level = plan.levels[operator.number]
                description = described(plan, names, operator.number)
            yield (id_, name, replica, operator.number, level), description, operator


def _operators(state: SystemState) -> Iterator[Row]:
    for row, description, said in _described(state):
        done, recent = said.done, said.recent
        counts = (done.micros, done.rows_in, done.rows_out)
        yield *row, description, *counts, recent.micros, recent.rows_in, recent.rows_out


def _arrangements(state: SystemState) -> Iterator[Row]:
    for row, description, said in _described(state):
        if said.rows or said.bytes:
            yield *row, description, said.rows, said.bytes


def _lanes(state: SystemState) -> Iterator[Row]:
    for replica, report in state.observed.lanes:
        for lane in report.activity.lanes:
            yield replica, lane.lane, state.age_ms(report.at), lane.batches, lane.rows


def _phases(state: SystemState) -> Iterator[Row]:
    for replica, report in state.observed.lanes:
        for lane in report.activity.lanes:
            yield replica, lane.lane, "plan", lane.plan_ms
            yield replica, lane.lane, "tasks", lane.tasks_ms
            yield replica, lane.lane, "commit", lane.commit_ms


def _peeks(state: SystemState) -> Iterator[Row]:
    for peek in state.peeks:
        target = peek.target
        name = state.name(target.collection)
        replica = peek.replica or None
        yield peek.uuid, target.collection, name, target.index, replica, peek.time


def _subscribes(state: SystemState) -> Iterator[Row]:
    for running in state.subscribes:
        names = (running.uuid, running.id, state.name(running.id))
        upper = None if running.upper == END else running.upper
        times = (running.as_of, running.until, upper)
        yield *names, running.reader, running.replica or None, *times


def _time(frontier: Antichain | None) -> int | None:
    return None if frontier is None or frontier.is_empty else frontier.time


_ROWS: Mapping[str, Callable[[SystemState], Iterator[Row]]] = {
    "objects": _objects,
    "frontiers": _frontiers,
    "clusters": _clusters,
    "replicas": _replicas,
    "hydration": _hydration,
    "dataflows": _dataflows,
    "operators": _operators,
    "arrangements": _arrangements,
    "lanes": _lanes,
    "phases": _phases,
    "peeks": _peeks,
    "subscribes": _subscribes,
}
