"""The fields of reports in Avro records: `compute_*_activity` and `compute_replica_memory`.

They are checked as they are read: a replica may be of another version, or of another author.
"""

import itertools
from typing import Any

from streams.compute.activity import (
    LONGEST_LANE,
    MOST_LANES,
    MOST_OPERATORS,
    DataflowActivity,
    LaneActivity,
    OperatorActivity,
    ReplicaActivity,
    ReplicaMemory,
    WorkDone,
)
from streams.errors import Corrupt
from streams.ids import CollectionId

Record = dict[str, Any]  # type: ignore[explicit-any]  # Avro's generic records

DATAFLOW, REPLICA = "compute_dataflow_activity", "compute_replica_activity"
MEMORY = "compute_replica_memory"

_MOST = 1 << 53
"""The greatest number of a report: sums of them stay within 64 bits."""

_COUNTS = (
    "elapsed_ms",
    "recent_ms",
    "batches",
    "recent_batches",
    "hydration_batches",
    "micros",
    "recent_micros",
)


def dataflow_fields(activity: DataflowActivity) -> Record:
    """Return the fields of a dataflow's report."""
    counts = {name: getattr(activity, name) for name in _COUNTS}
    operators = [
        {
            "number": operator.number,
            "micros": operator.done.micros,
            "rows_in": operator.done.rows_in,
            "rows_out": operator.done.rows_out,
            "recent_micros": operator.recent.micros,
            "recent_rows_in": operator.recent.rows_in,
            "recent_rows_out": operator.recent.rows_out,
            "rows": operator.rows,
            "bytes": operator.bytes,
        }
        for operator in activity.operators[:MOST_OPERATORS]
    ]
    return {"id": activity.id, **counts, "operators": operators}


def dataflow_of(record: Record) -> DataflowActivity:
    """Return a dataflow's report. Errors: Corrupt for numbers that are out of range."""
    operators = record["operators"]
    _bounded("operators", len(operators), MOST_OPERATORS)
    for name in _COUNTS:
        _bounded(name, record[name])
    numbers = [operator["number"] for operator in operators]
    if any(after <= before for before, after in itertools.pairwise(numbers)):
        raise Corrupt("activity: expected operators in ascending order")
    counts = {name: record[name] for name in _COUNTS}
    activities = tuple(map(_operator, operators))
    return DataflowActivity(id=CollectionId(record["id"]), operators=activities, **counts)


def replica_fields(activity: ReplicaActivity) -> Record:
    """Return the fields of a replica's report."""
    lanes = [
        {
            "lane": lane.lane,
            "batches": lane.batches,
            "rows": lane.rows,
            "plan_ms": lane.plan_ms,
            "tasks_ms": lane.tasks_ms,
            "commit_ms": lane.commit_ms,
        }
        for lane in activity.lanes[:MOST_LANES]
    ]
    return {"lanes": lanes}


def replica_of(record: Record) -> ReplicaActivity:
    """Return a replica's report. Errors: Corrupt for what is out of range."""
    _bounded("lanes", len(record["lanes"]), MOST_LANES)
    return ReplicaActivity(tuple(map(_lane, record["lanes"])))


def memory_fields(memory: ReplicaMemory) -> Record:
    """Return the fields of a report of memory."""
    return {"bytes": memory.bytes, "processes": memory.processes}


def memory_of(record: Record) -> ReplicaMemory:
    """Return a report of memory. Errors: Corrupt for numbers that are out of range."""
    for name in ("bytes", "processes"):
        _bounded(name, record[name])
    return ReplicaMemory(record["bytes"], record["processes"])


def _operator(fields: Record) -> OperatorActivity:
    for name, value in fields.items():
        _bounded(name, value)
    done = WorkDone(fields["micros"], fields["rows_in"], fields["rows_out"])
    recent = WorkDone(
        fields["recent_micros"], fields["recent_rows_in"], fields["recent_rows_out"]
    )
    return OperatorActivity(fields["number"], done, recent, fields["rows"], fields["bytes"])


def _lane(fields: Record) -> LaneActivity:
    name = fields["lane"]
    _bounded("length of a lane's name", len(name), LONGEST_LANE)
    counts = [fields[part] for part in ("batches", "rows", "plan_ms", "tasks_ms", "commit_ms")]
    for count in counts:
        _bounded("count of a lane", count)
    return LaneActivity(name, *counts)


def _bounded(name: str, value: int, most: int = _MOST) -> None:
    if not 0 <= value <= most:
        raise Corrupt(f"activity: expected {name} of 0 to {most}, actual {value}")
