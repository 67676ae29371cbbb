"""What replicas report of their work: time, rows and state of operators, lanes, memory.

It is for display, may be lost, and is bounded: a report says of `MOST_OPERATORS` operators of a
dataflow, and of `MOST_LANES` lanes. A report replaces the one before.
"""

from dataclasses import dataclass

from streams.ids import CollectionId

MOST_OPERATORS = 1024
"""Operators of one dataflow in a report, the first ones of its plan."""

MOST_LANES = 256
"""Lanes of one replica in a report: there is one for each source with a watermark."""

LONGEST_LANE = 256
"""Characters of a lane's name."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Work in committed micro-batches: microseconds of tasks, rows that came in and out."""

    micros: int = 0
    rows_in: int = 0
    rows_out: int = 0

    def plus(self, other: "WorkDone") -> "WorkDone":
        """Return both together."""
        return WorkDone(
            self.micros + other.micros,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
        )

    def less(self, other: "WorkDone") -> "WorkDone":
        """Return what is left without an earlier part."""
        return WorkDone(
            self.micros - other.micros,
            self.rows_in - other.rows_in,
            self.rows_out - other.rows_out,
        )


NO_WORK = WorkDone()


@dataclass(frozen=True, slots=True)
class OperatorActivity:
    """One operator: its number in the plan, all its work, that since the report before.

    `rows` and `bytes` are those of its arrangements, in all buckets.
    """

    number: int
    done: WorkDone = NO_WORK
    recent: WorkDone = NO_WORK
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class DataflowActivity:
    """A dataflow in one replica, since it runs there and since the report before.

    Units: milliseconds that have passed; micro-batches that are committed, of which some were
    of its hydration; microseconds of tasks, which also load, send and write.
    """

    id: CollectionId
    elapsed_ms: int
    recent_ms: int
    batches: int
    recent_batches: int
    hydration_batches: int
    micros: int
    recent_micros: int
    operators: tuple[OperatorActivity, ...]


@dataclass(frozen=True, slots=True)
class LaneActivity:
    """The committed micro-batches of a lane since its process began, and where time went."""

    lane: str
    batches: int
    rows: int
    plan_ms: int
    tasks_ms: int
    commit_ms: int


@dataclass(frozen=True, slots=True)
class ReplicaActivity:
    """The lanes of a replica, by name."""

    lanes: tuple[LaneActivity, ...]


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """Bytes of physical memory of a replica's processes, and their number.

    They are those on its driver's machine: on a cluster without executors. What processes share
    counts once.
    """

    bytes: int
    processes: int
