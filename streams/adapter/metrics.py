"""The metrics of materializations, as text that Prometheus reads. Pure.

Source: Prometheus, "Exposition formats", text-based format 0.0.4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streams.adapter.show_materializations import STATUSES, Shown

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "slackwater_materialization_"
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name, which is without the prefix."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterator[str]:
        """Its lines; none without samples."""
        if not self.samples:
            return
        name = f"{PREFIX}{self.name}"
        yield f"# HELP {name} {escaped(self.help)}"
        yield f"# TYPE {name} {self.kind}"
        for labels, value in self.samples:
            pairs = ",".join(f'{key}="{quoted(text)}"' for key, text in labels.items())
            yield f"{name}{{{pairs}}} {number(value)}"


def metrics(materializations: Sequence[Shown]) -> str:
    """Return the metrics of materializations, of which no two have one name."""
    families = [
        *identities(materializations),
        *gauges(materializations),
        *counters(materializations),
        *by_binding(materializations),
    ]
    lines = [line for family in families for line in family.lines()]
    return "".join(f"{line}\n" for line in lines)


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


def number(value: float) -> str:
    """A value, exact: `repr` is the shortest text that is read as the same float."""
    return repr(value)


def escaped(text: str) -> str:
    """Text of a HELP line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def quoted(text: str) -> str:
    """Text of a label, between its quotes."""
    return escaped(text).replace('"', '\\"')
