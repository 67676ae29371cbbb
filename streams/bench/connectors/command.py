"""`slackwater bench connectors`: the databases, the result table, and the dominant cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from connectors import duckdb, postgres, sqlite
from streams.app.embedded_postgres import PACKAGE, EmbeddedPostgres, is_installed
from streams.bench.connectors.contents import contents
from streams.bench.connectors.measure import RowCost, through
from streams.bench.connectors.psycopg_baseline import upsert
from streams.bench.connectors.rows import Parts
from streams.bench.connectors.steady import Steady, steady
from streams.bench.figures import Figure, Outcome, at_least, at_most
from streams.temporary import temporary_directory

DATABASES = ("sqlite", "duckdb", "postgres")
PASSES = ("backfill", "changes")
TARGETS = {("sqlite", "backfill"): 100_000, ("postgres", "backfill"): 60_000}
RATIO = 0.5
PER = 1_000
BATCH = 50_000
"""Rows of a transaction."""
RATE = 5_000
"""Steady changes a second."""
LAG_MS = 300.0


def chosen(only: str) -> tuple[str, ...]:
    """The databases named, separated by commas; all of them when none is.

    Errors: typer.BadParameter for one that there is not.
    """
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in names:
        if name not in DATABASES:
            raise typer.BadParameter(f"expected some of {', '.join(DATABASES)}, actual {name}")
    return names or DATABASES


def connectors(
    names: Sequence[str], count: int, console: Console, seconds: float = 0.0, rate: int = RATE
) -> Outcome:
    """Write all rows as new ones, then all of them changed, into each database.

    Then `rate` changes a second for some seconds, into PostgreSQL.
    """

    def say(text: str) -> None:
        console.print(f"[dim]{text}[/]")

    say(f"{count:,} rows in transactions of {BATCH:,}")
    passes = [(False, Parts(count, BATCH, 0.25)), (True, Parts(count, BATCH, 0.5))]
    with temporary_directory("slackwater-") as directory:
        measured = dict(_measured(names, Path(directory), passes, say))
    result = outcome(measured)
    if "postgres" not in names or not seconds or not is_installed():
        return result
    say(f"PostgreSQL: {rate:,} changes a second")
    with EmbeddedPostgres() as server:
        return with_steady(result, steady(server.config, seconds, rate), rate)


def first_contents(count: int, console: Console) -> Outcome:
    """Follow a collection of a tenth of the rows into SQLite, and one of all: rate, memory."""
    figures: list[Figure] = []
    with temporary_directory("slackwater-") as scratch:
        for peak in contents((count // 10, count), Path(scratch)):
            console.print(f"[dim]first contents: {peak.rows:,} rows[/]")
            figures += [
                Figure(f"contents_{peak.rows}_rows_per_s", round(peak.rows / peak.seconds)),
                Figure(f"contents_{peak.rows}_peak_memory", round(peak.memory), "MiB"),
            ]
    note = "by the clock, with the start of the process; memory: the most that it was resident"
    return Outcome("connectors", tuple(figures), note=note)


Passes = Sequence[tuple[bool, Parts]]


def _measured(
    names: Sequence[str], directory: Path, passes: Passes, say: Callable[[str], None]
) -> Iterator[tuple[str, list[RowCost]]]:
    if "sqlite" in names:
        say("SQLite")
        path = str(directory / "s.db")
        yield "sqlite", through(sqlite.CONNECTOR, {"path": path}, passes, say)
    if "duckdb" in names:
        say("DuckDB")
        path = str(directory / "d.db")
        yield "duckdb", through(duckdb.CONNECTOR, {"path": path}, passes, say)
    if "postgres" not in names:
        return
    if not is_installed():
        say(f"PostgreSQL is left out: install {PACKAGE}")
        return
    with EmbeddedPostgres() as server:
        say("psycopg: COPY and upsert")
        yield "plain", upsert(server.config, [parts for _, parts in passes])
        say("PostgreSQL")
        yield "postgres", through(postgres.connector({}), server.config, passes, say)


def with_steady(outcome: Outcome, seen: Steady, rate: int = RATE) -> Outcome:
    """The figures of `rate` steady changes a second too."""
    figures = (
        at_least("postgres_steady_changes_per_s", round(seen.rate), "", 0.95 * rate),
        at_most("postgres_steady_lag_p50", round(seen.lag(0.5)), "ms", LAG_MS),
        Figure("postgres_steady_lag_p99", round(seen.lag(0.99)), "ms"),
        Figure("postgres_steady_commits", seen.commits),
    )
    phases = {
        phase: seconds * 1000 / seen.changes * PER
        for phase, seconds in sorted(seen.phases.items())
    }
    breakdown = {**outcome.breakdown, "postgres steady": phases}
    return replace(
        outcome,
        figures=(*outcome.figures, *figures),
        breakdown=breakdown,
        note=_dominates(breakdown),
    )


def outcome(measured: Mapping[str, Sequence[RowCost]]) -> Outcome:
    """The rates of each database, and their ratio to psycopg's."""
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


def _figures(name: str, kind: str, spent: RowCost) -> Iterator[Figure]:
    target = TARGETS.get((name, kind))
    rate = round(spent.rate)
    yield (
        Figure(f"{name}_{kind}_rows_per_s", rate)
        if target is None
        else at_least(f"{name}_{kind}_rows_per_s", rate, "", target)
    )
    yield Figure(f"{name}_{kind}_rows_per_cpu_s", round(spent.cpu_rate))
    if spent.phases:
        yield Figure(f"{name}_{kind}_memory_growth", round(spent.growth_mb), "MiB")


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
