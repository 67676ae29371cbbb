"""What a replica measures of itself, for metrics; found out when somebody asks.

State is counted as the files are: a run file of two records of a dataflow counts once, and one
that no dataflow names any more is in the total alone, until it is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streams.ids import CollectionId
from streams.replica.driver.arrangement_sizes import arrangement_sizes
from streams.replica.driver.batch_timings import LaneTotals, Timings
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.dataflow_state import run_names
from streams.replica.driver.scheduler import Scheduler
from streams.trace.arrange import disk_reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowMeasures:
    """One dataflow. `phase` is that of `Status`; counts are since the process began.

    `waiting` counts refused messages that wait for upper; None without a watermark.
    """

    id: CollectionId
    phase: str
    is_failing: bool
    failures: int
    restarts: int
    state_bytes: int
    arrangement_rows: int
    arrangement_bytes: int
    waiting: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMeasures:
    """A replica. `skew_ms` is our clock less the broker's; None if it was never measured.

    `is_owner` is whether it advances the sources and runs the sinks.
    """

    dataflows: tuple[DataflowMeasures, ...]
    lanes: Mapping[str, LaneTotals]
    skew_ms: int | None
    state_bytes: int
    free_bytes: int
    disk_bytes: int
    is_owner: bool


def measure(scheduler: Scheduler, timings: Timings) -> ReplicaMeasures:
    """Look at everything; the lock is held only to take the table as it is."""
    table, directory = scheduler.table, scheduler.store.directory
    with scheduler.lock:
        flows = tuple(table.running.values())
        failures, restarts = dict(table.failures), dict(table.restarts)
    sizes = scheduler.store.run_sizes()
    arranged = {
        id_: tuple(by_operator.values())
        for id_, by_operator in arrangement_sizes(flows, flows, sizes).items()
    }
    free, total = disk_reserve.usage(directory)
    return ReplicaMeasures(
        dataflows=tuple(
            DataflowMeasures(
                id=flow.id,
                phase=flow.phase.value,
                is_failing=flow.trouble is not None,
                failures=failures.get(flow.id, 0),
                restarts=restarts.get(flow.id, 0),
                state_bytes=sum(sizes.get(name, 0) for name in files_of(flow)),
                arrangement_rows=sum(size.rows for size in arranged[flow.id]),
                arrangement_bytes=sum(size.bytes for size in arranged[flow.id]),
                waiting=waiting(flow),
            )
            for flow in flows
        ),
        lanes=dict(timings.totals),
        skew_ms=scheduler.skew.last_ms,
        state_bytes=sum(sizes.values()),
        free_bytes=free,
        disk_bytes=total,
        is_owner=scheduler.is_owner,
    )


def waiting(flow: Dataflow) -> int | None:
    """Return how many refused messages of a source with a watermark wait for upper."""
    if not flow.has_watermark:
        return None
    progress = None if flow.own is None else flow.own.progress
    return sum(part.waiting for part in (progress or {}).values())


def files_of(flow: Dataflow) -> frozenset[str]:
    """Return the names of the run files of a dataflow: of its state, records and build."""
    own = frozenset[str]() if flow.own is None else run_names(flow.own.runs)
    build = frozenset[str]() if flow.build is None else run_names(flow.build.runs)
    return own.union(build, *(record.checkpoint.runs for record in flow.records))
