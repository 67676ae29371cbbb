"""The rows of SHOW MATERIALIZATIONS. Pure."""

import json
from dataclasses import dataclass

from schemas.materializations import State
from streams.adapter.catalog import Catalog
from streams.adapter.catalog_materializations import Materialization
from streams.ids import Timestamp
from streams.plan.physical import Column

COLUMNS = (
    Column("name", "VARCHAR"),
    Column("id", "VARCHAR"),
    Column("connector", "VARCHAR"),
    Column("binds", "VARCHAR"),
    Column("status", "VARCHAR"),
    Column("behind_ms", "BIGINT"),
    Column("behind_rows", "BIGINT"),
    Column("rows", "BIGINT"),
    Column("rows_per_s", "BIGINT"),
    Column("backfill", "VARCHAR"),
    Column("committed", "BIGINT"),
    Column("errors", "BIGINT"),
    Column("dead_letters", "VARCHAR"),
    Column("owner", "VARCHAR"),
    Column("detail", "VARCHAR"),
)

STATUSES = (
    "starting", "waiting", "backfilling", "running", "pausing", "paused", "stalled", "failed",
    "no service",
)  # fmt: skip
"""The values of the column `status`."""

NO_SERVICE = (
    "no service runs materializations here: 'slackwater up' has one, 'slackwater materialize"
    " serve' is one"
)


@dataclass(frozen=True, slots=True)
class ShownMaterialization:
    """A materialization and what the service says of it.

    `behind_ms` is how far the endpoint is behind what the objects have in common.
    """

    materialization: Materialization
    connector: str
    binds: tuple[str, ...]
    status: str
    state: State
    behind_ms: int | None
    detail: str


def shown(
    materialization: Materialization,
    state: State | None,
    catalog: Catalog,
    upper: Timestamp | None,
    *,
    is_silent: bool,
) -> ShownMaterialization:
    """Return how a materialization is. `upper` is that of its objects together."""
    state_ = state or State(id=materialization.id)
    status, detail = state_.state, state_.message
    if is_silent:
        status, detail = "no service", NO_SERVICE
    elif materialization.is_paused != (status == "paused"):
        status = "pausing" if materialization.is_paused else "starting"
    stalls = "; ".join(f"{place}: {why}" for place, why in state_.stalls.items())
    names = tuple(
        catalog.items[input_].name
        for input_ in materialization.inputs
        if input_ in catalog.items
    )
    return ShownMaterialization(
        materialization=materialization,
        connector=str(json.loads(materialization.task)["connector"]),
        binds=names,
        status=status,
        state=state_,
        behind_ms=behind_ms(state_, upper, is_running=status == "running"),
        detail=detail or stalls,
    )


def behind_ms(state: State, upper: Timestamp | None, *, is_running: bool) -> int | None:
    """The endpoint's lag: as the service reports it, or by the clock if it does not write."""
    if is_running or state.time is None or upper is None:
        return state.behind_ms
    return max(0, upper - 1 - state.time)


def backfill(state: State) -> str:
    """How much of the first contents is written; empty if none are being written."""
    if state.backfill is None:
        return ""
    done, total, unit = (state.backfill[name] for name in ("done", "total", "unit"))
    return f"{done:,} of {total:,} {unit}"


def dead_letters(state: State) -> str:
    """The dead letters of each binding that has any, and how many keys lack their document."""
    places = sorted(state.dead_letters.keys() | state.left_out.keys())
    counts = [
        (place, state.dead_letters.get(place, 0), state.left_out.get(place, 0))
        for place in places
    ]
    return ", ".join(
        f"{place}: {written} written, {missing} left out"
        for place, written, missing in counts
        if written or missing
    )


def row(shown: ShownMaterialization) -> tuple[str | int | None, ...]:
    """Return a row of `COLUMNS`."""
    return (
        shown.materialization.name,
        shown.materialization.id,
        shown.connector,
        ", ".join(shown.binds),
        shown.status,
        shown.behind_ms,
        shown.state.behind_rows,
        shown.state.rows,
        shown.state.rows_per_s,
        backfill(shown.state),
        shown.state.committed_ms,
        shown.state.errors,
        dead_letters(shown.state),
        shown.state.owner,
        shown.detail,
    )
