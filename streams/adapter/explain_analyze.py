"""EXPLAIN ANALYZE: the plan of a running view, with what each operator has done. Pure.

There is a row for each operator and replica, indented as in EXPLAIN, and before them one for
the whole dataflow. A notice for each replica says since when it runs the view and how old its
report is; a replica that has gone is in it with what it reported last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streams.adapter import ddl
from streams.adapter.catalog import NAMES, Catalog, Item
from streams.adapter.results import Columns, Complete, Notice, Result
from streams.adapter.row_encoding import text_rows
from streams.adapter.system_relations import SystemState, plan_of
from streams.compute.activity import NO_WORK, DataflowActivity, OperatorActivity
from streams.compute.protocol import replica_of
from streams.compute.replica_responses import InstanceStatus
from streams.errors import InvalidStatement
from streams.plan.display.draw import draw
from streams.plan.display.explain import tree
from streams.plan.physical import Column, Dataflow, NodeId

COLUMNS = (
    Column("operator", "VARCHAR"),
    Column("replica", "VARCHAR"),
    Column("ms", "BIGINT"),
    Column("rows_in", "BIGINT"),
    Column("rows_out", "BIGINT"),
    Column("recent_ms", "BIGINT"),
    Column("recent_rows_in", "BIGINT"),
    Column("recent_rows_out", "BIGINT"),
    Column("state_rows", "BIGINT"),
    Column("state_bytes", "BIGINT"),
)
"""Times are of tasks; `recent` is between the last two reports. NULL: not metered."""

PICTURE = (Column("plan", "SVG"),)

Row = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True)
class ReportedActivity:
    """What a replica has reported of the view, `age_ms` ago."""

    replica: str
    activity: DataflowActivity
    age_ms: int
    is_live: bool

    @property
    def operators(self) -> Mapping[NodeId, OperatorActivity]:
        """What it says of each operator."""
        return {operator.number: operator for operator in self.activity.operators}


def analyzed(name: str, state: SystemState, *, picture: bool) -> Iterator[Result]:
    """Yield the plan of a view and its work. Errors: InvalidStatement."""
    item = view(name, state.catalog)
    reports, text = reported(item, state), state.plans.get(item.id, "")
    if not text:
        raise InvalidStatement(f"{item.name} does not run yet", "it is being created")
    plan = plan_of(text)
    if picture:
        yield from _drawn(plan, reports, state)
        return
    if not reports:
        yield Notice(_silence(state.observed.of(item)))
    yield from (Notice(said(report)) for report in reports)
    yield Columns(COLUMNS)
    yield text_rows(rows(plan, reports, state))
    yield Complete("EXPLAIN")


def view(name: str, catalog: Catalog) -> Item:
    """Return the view of a name. Errors: InvalidStatement for another object."""
    item = ddl.readable(name, catalog)
    if item.kind != "view":
        raise InvalidStatement(
            f"{item.name} is a {NAMES[item.kind]}",
            "EXPLAIN ANALYZE expects a materialized view",
            "slackwater.operators has the work of all objects",
        )
    return item


def reported(item: Item, state: SystemState) -> Sequence[ReportedActivity]:
    """Return what replicas have reported of an object, by the replica's name."""
    reports = state.observed.condition(item).reports
    return [
        ReportedActivity(
            replica_of(process),
            report.activity,
            state.age_ms(report.activity_at),
            process in state.observed.of(item).replicas,
        )
        for process, report in sorted(reports.items())
        if report.activity is not None
    ]


def said(report: ReportedActivity) -> str:
    """Return how long a replica runs a view, and how old its report is."""
    activity = report.activity
    ran = f"{activity.batches:,} micro-batches in {_seconds(activity.elapsed_ms)}"
    hydration = f", {activity.hydration_batches:,} of them of its hydration"
    age = f"{_seconds(report.age_ms)} ago"
    if not report.is_live:
        return f"replica {report.replica} is silent; it last reported {age}: {ran}{hydration}"
    recent = f"{activity.recent_batches:,} of them in the last {_seconds(activity.recent_ms)}"
    return f"replica {report.replica} reported {age}: {ran}{hydration}, {recent}"


def rows(plan: Dataflow, reports: Sequence[ReportedActivity], state: SystemState) -> list[Row]:
    """Return the rows of the dataflow and its operators; of each one, all replicas."""
    table = [_whole(report) for report in reports] or [("dataflow", *(None,) * 9)]
    for number, text in tree(plan, state.names):
        table += [
            _operator(text, report, report.operators.get(number)) for report in reports
        ] or [(text, *(None,) * 9)]
    return table


def _whole(report: ReportedActivity) -> Row:
    activity = report.activity
    rows_, bytes_ = (
        sum(getattr(operator, part) for operator in activity.operators)
        for part in ("rows", "bytes")
    )
    ms, recent_ms = _ms(activity.micros), _ms(activity.recent_micros)
    return "dataflow", report.replica, ms, None, None, recent_ms, None, None, rows_, bytes_


def _operator(text: str, report: ReportedActivity, activity: OperatorActivity | None) -> Row:
    done, recent = (NO_WORK, NO_WORK) if activity is None else (activity.done, activity.recent)
    return (
        text,
        report.replica,
        _ms(done.micros),
        done.rows_in,
        done.rows_out,
        _ms(recent.micros),
        recent.rows_in,
        recent.rows_out,
        0 if activity is None else activity.rows,
        0 if activity is None else activity.bytes,
    )


def _drawn(
    plan: Dataflow, reports: Sequence[ReportedActivity], state: SystemState
) -> Iterator[Result]:
    """Yield the picture, with the work in the replica that reported last."""
    latest = min(reports, key=lambda report: report.age_ms, default=None)
    operators = {} if latest is None else latest.operators
    notes = {number: _note(operator) for number, operator in operators.items()}
    yield Columns(PICTURE)
    yield text_rows([(draw(plan, state.names, notes),)])
    yield Complete("EXPLAIN")


def _note(operator: OperatorActivity) -> str:
    done = operator.done
    work = f"{_ms(done.micros):,} ms, {done.rows_in:,} rows in, {done.rows_out:,} out"
    if not operator.rows:
        return work
    return f"{work}, keeps {operator.rows:,} rows, {operator.bytes:,} bytes"


def _silence(observed: InstanceStatus) -> str:
    if observed.replicas:
        return "no replica has reported work of it yet; each does within some seconds"
    return "no replica has been heard since this coordinator started"


def _ms(micros: int) -> int:
    return round(micros / 1000)


def _seconds(ms: int) -> str:
    return f"{round(ms / 1000):,} s"
