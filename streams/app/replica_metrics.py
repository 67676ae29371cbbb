"""The metrics of a replica. Pure."""

from collections.abc import Iterator, Mapping

from streams.http.metrics import Family, counter, gauge
from streams.replica.driver.batch_timings import LaneTotals
from streams.replica.driver.dataflow import Phase
from streams.replica.driver.measures import DataflowMeasures, ReplicaMeasures


def of_replica(measures: ReplicaMeasures | None) -> Iterator[Family]:
    """Return the metrics of a replica; none before it serves."""
    if measures is None:
        return
    yield from of_dataflows(measures.dataflows)
    yield from of_lanes(measures.lanes)
    yield gauge(
        "state_bytes", "Run files in the state directory.", [({}, measures.state_bytes)]
    )
    yield gauge(
        "state_disk_free_bytes",
        "Free bytes on the disk of the state directory.",
        [({}, measures.free_bytes)],
    )
    yield gauge(
        "state_disk_size_bytes",
        "Size of the disk of the state directory.",
        [({}, measures.disk_bytes)],
    )
    yield gauge(
        "replica_is_owner",
        "1 if this replica advances the sources and runs the sinks, else 0.",
        [({}, int(measures.is_owner))],
    )
    if measures.skew_ms is not None:
        yield gauge(
            "clock_skew_seconds",
            "The replica's clock less the broker's, at the last measurement.",
            [({}, measures.skew_ms / 1000)],
        )


def of_dataflows(dataflows: tuple[DataflowMeasures, ...]) -> Iterator[Family]:
    """Phases, failures and state, by dataflow: the id of its view or source."""
    yield gauge(
        "dataflows",
        "Dataflows by phase.",
        [
            ({"phase": phase.value}, sum(flow.phase == phase.value for flow in dataflows))
            for phase in Phase
        ],
    )
    yield gauge(
        "dataflow_failing",
        "1 while the last attempt has failed, else 0; SHOW has the cause.",
        [({"dataflow": flow.id}, int(flow.is_failing)) for flow in dataflows],
    )
    yield counter(
        "dataflow_failures_total",
        "Failed attempts.",
        [({"dataflow": flow.id}, flow.failures) for flow in dataflows],
    )
    yield counter(
        "dataflow_restarts_total",
        "Restarts from a checkpoint, or without state.",
        [({"dataflow": flow.id}, flow.restarts) for flow in dataflows],
    )
    yield gauge(
        "dataflow_waiting_messages",
        "Refused messages of a source with a watermark that wait for upper.",
        [({"dataflow": flow.id}, flow.waiting) for flow in dataflows],
    )
    yield gauge(
        "dataflow_arrangement_rows",
        "Updates in the arrangements of its operators.",
        [({"dataflow": flow.id}, flow.arrangement_rows) for flow in dataflows],
    )
    yield gauge(
        "dataflow_arrangement_bytes",
        "Bytes of these arrangements.",
        [({"dataflow": flow.id}, flow.arrangement_bytes) for flow in dataflows],
    )
    yield gauge(
        "dataflow_state_bytes",
        "Run files of the state, its checkpoints and a hydration.",
        [({"dataflow": flow.id}, flow.state_bytes) for flow in dataflows],
    )


def of_lanes(lanes: Mapping[str, LaneTotals]) -> Iterator[Family]:
    """Micro-batches of each lane, and where their time goes."""
    yield counter(
        "lane_batches_total",
        "Committed micro-batches.",
        [({"lane": name}, totals.batches) for name, totals in lanes.items()],
    )
    yield counter(
        "lane_rows_total",
        "Rows that committed micro-batches have read.",
        [({"lane": name}, totals.rows) for name, totals in lanes.items()],
    )
    yield counter(
        "lane_seconds_total",
        "Seconds of committed micro-batches, by part: plan, tasks or commit.",
        [
            ({"lane": name, "part": part}, seconds)
            for name, totals in lanes.items()
            for part, seconds in (
                ("plan", totals.plan_s),
                ("tasks", totals.tasks_s),
                ("commit", totals.commit_s),
            )
        ],
    )
