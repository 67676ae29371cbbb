"""The rows of SHOW: frontiers, condition and delays of each object. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from streams.adapter.bad_messages import inline, policy
from streams.adapter.catalog import Catalog, Item, ItemKind
from streams.adapter.cluster_status import Observed
from streams.adapter.ddl import blocking
from streams.adapter.resume_source import resumptions
from streams.adapter.timelines import Timeline, retained, timeline
from streams.compute import binding, rebasing
from streams.compute.binding import Fact
from streams.compute.protocol import Hydration
from streams.compute.replica_responses import (
    HYDRATING,
    STANDBY,
    InstanceStatus,
    Report,
)
from streams.ids import CollectionId
from streams.plan.physical import Column
from streams.plan.sql.durations import format_duration
from streams.plan.sql.emit import emits
from streams.progress import Antichain, frontier
from streams.storage.log.state import CollectionState
from streams.storage.policy import LagBehindUpper, RetainHistory, Retention

UNITS: Mapping[ItemKind, str] = {
    "source": "messages",
    "view": "rows",
    "rebase": "rows",
    "sink": "rows",
    "index": "rows",
    "errors": "rows",
}
"""The units of a hydration's progress."""

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  shown as TIMESTAMP is: UTC without a zone

LAST_MS = int((datetime(9999, 12, 31) - EPOCH).total_seconds() * 1000)  # noqa: DTZ001  as above
"""The last time that is shown as a timestamp."""

COLUMNS = (
    Column("name", "VARCHAR"),
    Column("id", "VARCHAR"),
    Column("since", "BIGINT"),
    Column("upper", "BIGINT"),
    Column("status", "VARCHAR"),
    Column("progress", "VARCHAR"),
    Column("detail", "VARCHAR"),
    Column("retains", "VARCHAR"),
)

VIEW_COLUMNS = (*COLUMNS, Column("emits", "VARCHAR"), Column("cluster", "VARCHAR"))
"""Of SHOW MATERIALIZED VIEWS. `emits` NULL: at each change."""

SOURCE_COLUMNS = (
    *COLUMNS,
    Column("watermark", "VARCHAR"),
    Column("delay", "VARCHAR"),
    Column("late", "BIGINT"),
    Column("skipped", "BIGINT"),
    Column("dead_letters", "BIGINT"),
)
"""Of SHOW SOURCES. NULL: `watermark`, `delay` and `late` without a watermark; `skipped` if none
was; `dead_letters` where none are kept."""

REBASE_COLUMNS = (*COLUMNS, Column("of", "VARCHAR"), Column("event_time", "VARCHAR"))
"""Of SHOW REBASES: the input, and the event time up to which it is there at present."""

INDEX_COLUMNS = (
    *COLUMNS,
    Column("on", "VARCHAR"),
    Column("key", "VARCHAR"),
    Column("cluster", "VARCHAR"),
)
"""Of SHOW INDEXES: the collection, the columns by which it is kept, and in which cluster."""

FUNCTION_COLUMNS = (
    Column("name", "VARCHAR"),
    Column("arguments", "VARCHAR"),
    Column("returns", "VARCHAR"),
    Column("called_by", "VARCHAR"),
)


@dataclass(frozen=True, slots=True)
class ShownObject:
    """One object. A frontier is None if it is not known yet.

    `hydration` has the numbers of the text in `progress`. `timeline` says what the frontiers
    mean. Of a source, `late` counts late rows (None without a watermark), and `skipped` the
    messages that ON ERROR SKIP left out (None if none was, with another ON ERROR). `letters`
    counts its dead letters; None if it keeps none, or while they cannot be read. Of a rebase
    and an index `of` is the name of the input; of a rebase `reached` has its event times.
    """

    item: Item
    since: Antichain | None
    upper: Antichain | None
    status: str
    progress: str
    detail: str
    retains: str | None = None
    hydration: Hydration | None = None
    timeline: Timeline = "wall"
    late: int | None = None
    skipped: int | None = None
    letters: int | None = None
    of: str | None = None
    reached: Antichain | None = None


def shown(
    catalog: Catalog,
    states: Mapping[CollectionId, CollectionState],
    observed: Observed,
    problems: Mapping[CollectionId, str],
    policy: Retention,
) -> tuple[ShownObject, ...]:
    """Return every object, oldest first; `problems` has the failures to create some.

    `policy` applies to objects without a read policy of their own.
    """
    uppers = {
        key: state.upper.time for key, state in states.items() if not state.upper.is_empty
    }
    for item in catalog.ordered():
        write = observed.condition(item).write
        if item.id not in uppers and write is not None and not write.is_empty:
            uppers[item.id] = write.time
    objects = tuple(
        _with_letters(_shown(item, catalog, states.get(item.id), observed, uppers), states)
        for item in catalog.ordered()
        if item.kind != "errors"
    )
    return tuple(
        replace(object_, status="failed", detail=problems[object_.item.id])
        if object_.item.id in problems
        else object_
        for object_ in (_with_policy(object_, policy) for object_ in objects)
    )


def _with_policy(shown: ShownObject, policy: Retention) -> ShownObject:
    item = shown.item
    if not item.has_shard:
        return shown
    said = retains(retained(item.policy or policy, shown.timeline))
    return replace(shown, retains=said if item.policy else f"{said} (default)")


def _shown(
    item: Item,
    catalog: Catalog,
    state: CollectionState | None,
    observed: Observed,
    uppers: Mapping[CollectionId, int],
) -> ShownObject:
    condition, report = observed.condition(item), observed.report(item)
    status = report.status
    if not item.has_shard:
        since = None if item.as_of is None else frontier(item.as_of)
        upper = condition.write
    else:
        since, upper = (state.since, state.upper) if state is not None else (None, None)
    said = "" if status is None else status.message
    if not said and state is not None:
        bound = state.source or {}
        said = "; ".join(
            filter(None, [resumptions(item, bound), policy(item, bound), inline(item, bound)])
        )
    waits = blocking(item, uppers)
    if not said and waits is not None and status is not None and status.state != "running":
        said = f"waits for {catalog.items[waits].name}"
    return ShownObject(
        item,
        since,
        upper,
        _state(
            status.state if status else "", observed.of(item), is_loaded=is_loaded(item, state)
        ),
        _progress(report, item),
        said,
        hydration=report.hydration,
        timeline=timeline(item, catalog.items),
        late=_late(item, state),
        skipped=_skipped(item, state),
        of=catalog.items[item.inputs[0]].name if item.kind in {"rebase", "index"} else None,
        reached=_reached(item, state),
    )


def _reached(item: Item, state: CollectionState | None) -> Antichain | None:
    if item.kind != "rebase" or state is None:
        return None
    return rebasing.bound_frontier(state.source or {})


def _late(item: Item, state: CollectionState | None) -> int | None:
    if item.source is None or item.source.watermark is None or state is None:
        return None
    return binding.total(state.source or {}, Fact.LATE)


def _skipped(item: Item, state: CollectionState | None) -> int | None:
    if item.source is None or state is None:
        return None
    count = binding.total(state.source or {}, Fact.SKIPPED)
    return count if count or item.source.on_error == "skip" else None


def _with_letters(
    listed: ShownObject, states: Mapping[CollectionId, CollectionState]
) -> ShownObject:
    """Return a source with the number of its dead letters, if it has any."""
    letters = listed.item.dead_letters
    state = None if letters is None else states.get(letters.id)
    if letters is None or state is None or not state.since.strictly_precedes(state.upper):
        return listed
    count = sum(chunk.rows for batch in state.batches for chunk in batch.chunks)
    listed = replace(listed, letters=count)
    if not count:
        return listed
    said = f"{count:,} dead letter{'s' if count > 1 else ''} in {letters.name}"
    return replace(listed, detail="; ".join(filter(None, [listed.detail, said])))


def is_loaded(item: Item, state: CollectionState | None) -> bool:
    """Whether a source or rebase has loaded its first contents; True for other kinds.

    Its first interval is one Append: since and upper are the same until then. That of a source
    with a watermark may be long in coming, after all its messages were read.
    """
    is_bound_at_once = item.source is not None and item.source.watermark is None
    if not is_bound_at_once and item.kind != "rebase":
        return True
    return state is None or state.since != state.upper


def _progress(report: Report, item: Item) -> str:
    """Return the progress of a hydration: in numbers if reported, else the replica's text."""
    hydration, status = report.hydration, report.status
    if hydration is None:
        return "" if status is None else status.progress
    said = f"{hydration.done:,} of {hydration.total:,} {UNITS[item.kind]}"
    left = hydration.seconds_left
    return said if left is None else f"{said}, {left:,} s left"


def _state(reported: str, observed: InstanceStatus, *, is_loaded: bool) -> str:
    if observed.is_deserted:
        return "no replica"
    if reported == "running" and not is_loaded:
        return HYDRATING
    return "starting" if reported in {"", STANDBY} else reported


def row(shown: ShownObject) -> tuple[str | int | None, ...]:
    """Return the object as a row of `COLUMNS`."""
    return (
        shown.item.name,
        shown.item.id,
        _time(shown.since),
        _time(shown.upper),
        shown.status,
        shown.progress,
        shown.detail,
        shown.retains,
    )


def view_row(shown: ShownObject) -> tuple[str | int | None, ...]:
    """Return a view as a row of `VIEW_COLUMNS`."""
    return (*row(shown), "on close" if emits(shown.item.query) else None, shown.item.cluster)


def index_row(shown: ShownObject) -> tuple[str | int | None, ...]:
    """Return an index as a row of `INDEX_COLUMNS`."""
    return (*row(shown), shown.of, ", ".join(shown.item.keys), shown.item.cluster)


def rebase_row(shown: ShownObject) -> tuple[str | int | None, ...]:
    """Return a rebase as a row of `REBASE_COLUMNS`."""
    return (*row(shown), shown.of, _clock(shown.reached))


def source_row(shown: ShownObject) -> tuple[str | int | None, ...]:
    """Return a source as a row of `SOURCE_COLUMNS`."""
    watermark = None if shown.item.source is None else shown.item.source.watermark
    delay = None if watermark is None else format_duration(watermark.delay_ms)
    reached = None if watermark is None else _clock(shown.upper)
    return (*row(shown), reached, delay, shown.late, shown.skipped, shown.letters)


def _clock(upper: Antichain | None) -> str | None:
    """Return a frontier of event times as a timestamp in UTC; None before the first."""
    if upper is None or upper.is_empty or not upper.time:
        return None
    ms = min(upper.time, LAST_MS)
    return str(EPOCH + timedelta(milliseconds=ms)).removesuffix("000")


def function_rows(catalog: Catalog) -> list[tuple[str, ...]]:
    """Return the Python functions as rows of `FUNCTION_COLUMNS`, oldest first."""
    return [
        (
            function.name,
            function.signature,
            function.returns,
            ", ".join(view.name for view in catalog.callers(function.name)),
        )
        for function in catalog.functions.values()
    ]


def retains(policy: Retention) -> str:
    """Return a read policy in the syntax of the statement that sets it."""
    match policy:
        case RetainHistory(duration_ms):
            return f"history for {format_duration(duration_ms)}"
        case LagBehindUpper(lag_ms):
            return f"{format_duration(lag_ms)} behind upper"
        case _:
            assert_never(policy)


def _time(frontier: Antichain | None) -> int | None:
    return None if frontier is None or frontier.is_empty else frontier.time
