"""The results of SHOW statements. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from streams.adapter import ddl, show
from streams.adapter.catalog import Catalog
from streams.adapter.cluster_status import Observed
from streams.adapter.results import Columns, Complete, Result
from streams.adapter.row_encoding import text_rows
from streams.compute.protocol import replica_of
from streams.compute.replica_responses import HYDRATING, STANDBY, InstanceStatus
from streams.ids import CollectionId
from streams.plan.physical import Column
from streams.plan.sql import statements as sql

REPLICA_COLUMNS = (
    Column("cluster", "VARCHAR"),
    Column("replica", "VARCHAR"),
    Column("process", "VARCHAR"),
    Column("silent_ms", "BIGINT"),
    Column("owns", "BIGINT"),
    Column("running", "BIGINT"),
    Column("hydrating", "BIGINT"),
    Column("stalled", "BIGINT"),
    Column("failed", "BIGINT"),
    Column("lag_ms", "BIGINT"),
    Column("state_bytes", "BIGINT"),
    Column("memory_bytes", "BIGINT"),
)
"""Of SHOW CLUSTER REPLICAS. `owns` counts sources, rebases and sinks; the states, dataflows.

`lag_ms` is the clock less what the slowest dataflow has processed; NULL where none has times of
the clock. `state_bytes` are those of arrangements and indexes, `memory_bytes` those of physical
memory of a replica's processes on its driver's machine; NULL where it cannot say.
"""

OWNED = {"source", "rebase", "sink"}
"""The kinds of objects that one replica at a time maintains."""

Row = tuple[str | int | None, ...]


def objects(kind: sql.Kind, shown: Sequence[show.ShownObject]) -> Iterator[Result]:
    """Return the objects of a kind."""
    columns, row = {
        sql.Kind.SOURCE: (show.SOURCE_COLUMNS, show.source_row),
        sql.Kind.VIEW: (show.VIEW_COLUMNS, show.view_row),
        sql.Kind.REBASE: (show.REBASE_COLUMNS, show.rebase_row),
        sql.Kind.SINK: (show.COLUMNS, show.row),
        sql.Kind.INDEX: (show.INDEX_COLUMNS, show.index_row),
    }[kind]
    wanted = ddl.KINDS[kind]
    rows = [row(object_) for object_ in shown if object_.item.kind == wanted]
    return table(columns, rows)


def functions(catalog: Catalog) -> Iterator[Result]:
    """Return the functions in Python."""
    return table(show.FUNCTION_COLUMNS, show.function_rows(catalog))


def replicas(
    observed: Observed, shown: Sequence[show.ShownObject], now_ms: int
) -> Iterator[Result]:
    """Return the live replicas, with what each says of the dataflows."""
    return table(REPLICA_COLUMNS, replica_rows(observed, shown, now_ms))


def replica_rows(
    observed: Observed, shown: Sequence[show.ShownObject], now_ms: int
) -> list[Row]:
    """Return the rows of the live replicas, given all objects and the clock."""
    owned = frozenset(entry.item.id for entry in shown if entry.item.kind in OWNED)
    timed = frozenset(entry.item.id for entry in shown if entry.timeline == "wall")
    return [
        (
            cluster,
            *_replica(process, status, owned),
            _lag_ms(process, status, timed, now_ms),
            _state_bytes(process, status),
            _memory_bytes(process, status),
        )
        for cluster, status in observed.clusters.items()
        for process in sorted(status.replicas)
    ]


def _replica(process: str, observed: InstanceStatus, owned: frozenset[CollectionId]) -> Row:
    states: Counter[str] = Counter()
    owns = 0
    for key, condition in observed.conditions.items():
        report = condition.reports.get(process)
        if report is None or report.status is None:
            continue
        states[report.status.state] += 1
        owns += key in owned and report.status.state != STANDBY
    silent_ms = int((observed.now - observed.heard[process]) * 1000)
    counts = (states[state] for state in ("running", HYDRATING, "stalled", "failed"))
    return (replica_of(process), process, silent_ms, owns, *counts)


def _lag_ms(
    process: str, observed: InstanceStatus, timed: frozenset[CollectionId], now_ms: int
) -> int | None:
    outputs = [
        report.output.time
        for key, condition in observed.conditions.items()
        if key in timed
        and (report := condition.reports.get(process)) is not None
        and report.output is not None
        and not report.output.is_empty
    ]
    return max(0, now_ms - min(outputs)) if outputs else None


def _state_bytes(process: str, observed: InstanceStatus) -> int:
    reports = (condition.reports.get(process) for condition in observed.conditions.values())
    return sum(
        operator.bytes
        for report in reports
        if report is not None and report.activity is not None
        for operator in report.activity.operators
    )


def _memory_bytes(process: str, observed: InstanceStatus) -> int | None:
    report = observed.memory.get(replica_of(process))
    return report.memory.bytes if report is not None and report.process == process else None


def table(columns: Sequence[Column], rows: Sequence[Row]) -> Iterator[Result]:
    """Return the answer to a SHOW statement."""
    yield Columns(tuple(columns))
    yield text_rows(rows)
    yield Complete(f"SHOW {len(rows)}")
