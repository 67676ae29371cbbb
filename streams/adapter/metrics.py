"""The metrics of materializations. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from schemas.materializations import State
from streams.adapter.show_materializations import STATUSES, Shown
from streams.http.metrics import Family, Labels, Sample


def of_materializations(materializations: Sequence[Shown]) -> Iterator[Family]:
    """Return the metrics of materializations, of which no two have one name."""
    for families in (identities, gauges, counters, by_binding):
        for family in families(materializations):
            yield replace(family, name=f"materialization_{family.name}")


def identities(materializations: Sequence[Shown]) -> Iterator[Family]:
    """Identity and state of each materialization."""
    yield Family(
        "info",
        "gauge",
        "1; the labels have its id, its connector, and the process that writes the endpoint.",
        tuple((described(materialization), 1) for materialization in materializations),
    )
    yield Family(
        "state",
        "gauge",
        "1 for the state that it is in, else 0.",
        tuple(
            ({**named(materialization), "state": state}, int(materialization.status == state))
            for materialization in materializations
            for state in STATUSES
        ),
    )


def gauges(materializations: Sequence[Shown]) -> Iterator[Family]:
    """The present values of each materialization. Unknown values have no sample."""
    yield Family(
        "lag_seconds",
        "gauge",
        "Lag of the endpoint behind the bound collections.",
        samples(
            (named(materialization), seconds(materialization.behind_ms))
            for materialization in materializations
        ),
    )
    yield Family(
        "lag_rows",
        "gauge",
        "Changes that were read and are not committed.",
        tuple(
            (named(materialization), materialization.state.behind_rows)
            for materialization in materializations
        ),
    )
    yield Family(
        "last_commit_timestamp_seconds",
        "gauge",
        "When the last commit was, in seconds since 1970.",
        samples(
            (named(materialization), seconds(materialization.state.committed_ms))
            for materialization in materializations
        ),
    )
    yield Family(
        "rows_per_second",
        "gauge",
        "Rows committed a second, in the last 10 s.",
        tuple(
            (named(materialization), materialization.state.rows_per_s)
            for materialization in materializations
        ),
    )
    yield Family(
        "backfill_ratio",
        "gauge",
        "The written part of first contents, from 0 to 1, while they are written.",
        samples(
            (named(materialization), backfilled(materialization.state))
            for materialization in materializations
        ),
    )


def counters(materializations: Sequence[Shown]) -> Iterator[Family]:
    """Counters of the service."""
    for name, help_, counts in (
        (
            "rows_total",
            "Rows committed.",
            [materialization.state.rows for materialization in materializations],
        ),
        (
            "commits_total",
            "Commits.",
            [materialization.state.commits for materialization in materializations],
        ),
        (
            "errors_total",
            "Sessions that ended with an error.",
            [materialization.state.errors for materialization in materializations],
        ),
    ):
        counted = zip(map(named, materializations), counts, strict=True)
        yield Family(name, "counter", f"{help_} Since the service began.", tuple(counted))


def by_binding(materializations: Sequence[Shown]) -> Iterator[Family]:
    """The metrics of each binding, labelled with its resource in the endpoint."""
    yield Family(
        "dead_letters_total",
        "counter",
        "Dead letters written. Since the service began.",
        tuple(
            ({**named(materialization), "binding": place}, count)
            for materialization in materializations
            for place, count in sorted(materialization.state.dead_letters.items())
        ),
    )
    yield Family(
        "left_out_keys",
        "gauge",
        "Keys whose last document the endpoint has refused.",
        tuple(
            (
                {**named(materialization), "binding": place},
                materialization.state.left_out.get(place, 0),
            )
            for materialization in materializations
            for place in sorted(
                materialization.state.dead_letters.keys()
                | materialization.state.left_out.keys()
            )
        ),
    )
    yield Family(
        "stalled",
        "gauge",
        "1 for a binding that is stalled; SHOW MATERIALIZATIONS says why.",
        tuple(
            ({**named(materialization), "binding": place}, 1)
            for materialization in materializations
            for place in sorted(materialization.state.stalls)
        ),
    )


def named(shown: Shown) -> dict[str, str]:
    """The label of all samples of a materialization."""
    return {"materialization": shown.materialization.name}


def described(shown: Shown) -> dict[str, str]:
    """The labels that say what it is."""
    return {
        **named(shown),
        "id": shown.materialization.id,
        "connector": shown.connector,
        "owner": shown.state.owner,
    }


def samples(values: Iterable[tuple[Labels, float | None]]) -> tuple[Sample, ...]:
    """The materializations with a known value."""
    return tuple((labels, value) for labels, value in values if value is not None)


def seconds(ms: int | None) -> float | None:
    """Milliseconds in the unit that Prometheus prescribes."""
    return None if ms is None else ms / 1000


def backfilled(state: State) -> float | None:
    """The part of the first contents that is written; None if none are being written."""
    if state.backfill is None:
        return None
    return int(state.backfill["done"]) / max(1, int(state.backfill["total"]))
