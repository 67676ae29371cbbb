"""The metrics of materializations. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from schemas.materializations import State
from streams.adapter.show_materializations import STATUSES, ShownMaterialization
from streams.http.metrics import Family, counter, gauge, seconds

RUN = "Since the service began."


def of_materializations(materializations: Sequence[ShownMaterialization]) -> Iterator[Family]:
    """Return the metrics of materializations, of which no two have one name."""
    for families in (identities, gauges, counters, by_binding):
        for family in families(materializations):
            yield replace(family, name=f"materialization_{family.name}")


def identities(materializations: Sequence[ShownMaterialization]) -> Iterator[Family]:
    """Identity and state of each materialization."""
    yield gauge(
        "info",
        "1; the labels have its id, its connector, and the process that writes the endpoint.",
        ((described(materialization), 1) for materialization in materializations),
    )
    yield gauge(
        "state",
        "1 for the state that it is in, else 0.",
        (
            ({**named(materialization), "state": state}, materialization.status == state)
            for materialization in materializations
            for state in STATUSES
        ),
    )


def gauges(materializations: Sequence[ShownMaterialization]) -> Iterator[Family]:
    """The present values of each materialization."""
    states = [(named(shown), shown.state) for shown in materializations]
    yield gauge(
        "lag_seconds",
        "Lag of the endpoint behind the bound collections.",
        ((named(shown), seconds(shown.behind_ms)) for shown in materializations),
    )
    yield gauge(
        "lag_rows",
        "Changes that were read and are not committed.",
        ((labels, state.behind_rows) for labels, state in states),
    )
    yield gauge(
        "last_commit_timestamp_seconds",
        "When the last commit was, in seconds since 1970.",
        ((labels, seconds(state.committed_ms)) for labels, state in states),
    )
    yield gauge(
        "rows_per_second",
        "Rows committed a second, in the last 10 s.",
        ((labels, state.rows_per_s) for labels, state in states),
    )
    yield gauge(
        "backfill_ratio",
        "The written part of first contents, from 0 to 1, while they are written.",
        ((labels, backfilled(state)) for labels, state in states),
    )


def counters(materializations: Sequence[ShownMaterialization]) -> Iterator[Family]:
    """Counters of the service."""
    states = [(named(shown), shown.state) for shown in materializations]
    yield counter(
        "rows_total",
        f"Rows committed. {RUN}",
        ((labels, state.rows) for labels, state in states),
    )
    yield counter(
        "commits_total",
        f"Commits. {RUN}",
        ((labels, state.commits) for labels, state in states),
    )
    yield counter(
        "errors_total",
        f"Sessions that ended with an error. {RUN}",
        ((labels, state.errors) for labels, state in states),
    )


def by_binding(materializations: Sequence[ShownMaterialization]) -> Iterator[Family]:
    """The metrics of each binding, labelled with its resource in the endpoint."""
    states = [(named(shown), shown.state) for shown in materializations]
    yield counter(
        "dead_letters_total",
        f"Dead letters written. {RUN}",
        (
            ({**labels, "binding": place}, count)
            for labels, state in states
            for place, count in sorted(state.dead_letters.items())
        ),
    )
    yield gauge(
        "left_out_keys",
        "Keys whose last document the endpoint has refused.",
        (
            ({**labels, "binding": place}, state.left_out.get(place, 0))
            for labels, state in states
            for place in sorted(state.dead_letters.keys() | state.left_out.keys())
        ),
    )
    yield gauge(
        "stalled",
        "1 for a binding that is stalled; SHOW MATERIALIZATIONS says why.",
        (
            ({**labels, "binding": place}, 1)
            for labels, state in states
            for place in sorted(state.stalls)
        ),
    )


def named(shown: ShownMaterialization) -> dict[str, str]:
    """The label of all samples of a materialization."""
    return {"materialization": shown.materialization.name}


def described(shown: ShownMaterialization) -> dict[str, str]:
    """The labels that say what it is."""
    return {
        **named(shown),
        "id": shown.materialization.id,
        "connector": shown.connector,
        "owner": shown.state.owner,
    }


def backfilled(state: State) -> float | None:
    """The part of the first contents that is written; None if none are being written."""
    if state.backfill is None:
        return None
    return int(state.backfill["done"]) / max(1, int(state.backfill["total"]))
