"""`slackwater bench tpch`: which queries, at what scale, and the table of what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.tpch import data
from streams.bench.tpch.measure import CHANGES, THREADS, Query, StepCost, measure
from streams.bench.tpch.queries import QUERIES
from streams.temporary import temporary_directory

SMALLER = 10
"""The state is this many times smaller in the second run, with which changes are compared."""
HYDRATION, CHANGE_MS, GROWTH = 3.0, 1_000.0, 1.3
NOTE = (
    f"changes of {CHANGES:,} rows; ours and DuckDB on {THREADS} threads; cpu is the"
    " processor time of this process, so what else runs on the machine is not in it"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A query at the scale, and at one that is `SMALLER` times smaller."""

    large: Query
    small: Query

    @property
    def growth(self) -> float:
        """The ratio of a change's CPU time in the larger state to the smaller."""
        return self.large.change(0.5).cpu / self.small.change(0.5).cpu


def chosen(only: str) -> tuple[int, ...]:
    """The queries named, separated by commas; all of them when none is.

    Errors: typer.BadParameter for one that there is not.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if not name.isdecimal() or int(name) not in QUERIES:
            raise typer.BadParameter(f"expected queries from 1 to 22, actual {name}")
    return tuple(int(name) for name in names) or tuple(QUERIES)


def tpch(numbers: Sequence[int], scale: float, console: Console) -> Outcome:
    """Measure the queries, one after the other, and print what each costs."""
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        temporary_directory("slackwater-") as directory,
        Progress(*bar, TimeElapsedColumn(), console=console, transient=True) as progress,
    ):
        task = progress.add_task("data", total=2 * len(numbers))
        queries: dict[float, list[Query]] = {}
        for size in (scale / SMALLER, scale):
            where = Path(directory) / f"{size:g}"
            where.mkdir()
            progress.update(task, description=f"data at scale {size:g}")
            tables = data.generate(size, where)
            queries[size] = []
            for number in numbers:
                progress.update(task, description=f"query {number} at scale {size:g}")
                measured = measure(number, size, tables)
                queries[size].append(measured)
                progress.advance(task)
                console.print(f"[dim]{told(measured, size)}[/]")
    small, large = queries.values()
    pairs = [Pair(*both) for both in zip(large, small, strict=True)]
    console.print(costs(pairs, scale))
    console.print(stages(pairs))
    return outcome(pairs)


def told(query: Query, scale: float) -> str:
    """A line about a query that has been measured."""
    return (
        f"query {query.number} at scale {scale:g}: DuckDB {_both(query.duckdb)} ms, hydration"
        f" {_both(query.hydration)} ms, changes p50 {_both(query.change(0.5))} ms"
    )


def costs(pairs: Sequence[Pair], scale: float) -> Table:
    """The queries side by side."""
    result = Table(title=f"TPC-H at scale {scale:g}: ms by the clock / of the processor")
    for name in ("q", "DuckDB", "hydration", f"ratio\n<= {HYDRATION:g}"):
        result.add_column(name, justify="right")
    for name in (f"change p50\n<= {CHANGE_MS:,g}", "p99", f"at {SMALLER}x\n<= {GROWTH:g}"):
        result.add_column(name, justify="right")
    for pair in pairs:
        query, ratios = pair.large, pair.large.ratios
        middle, most = query.change(0.5), query.change(0.99)
        result.add_row(
            str(query.number),
            _both(query.duckdb),
            _both(query.hydration),
            _judged(f"{ratios.wall:.1f} / {ratios.cpu:.1f}", ok=ratios.wall <= HYDRATION),
            _judged(_both(middle), ok=middle.wall <= CHANGE_MS),
            _both(most),
            _judged(f"{pair.growth:.2f}", ok=pair.growth <= GROWTH),
        )
    return result


def stages(pairs: Sequence[Pair]) -> Table:
    """The two operators of each query that take most, as EXPLAIN numbers them."""
    result = Table("q", "hydration", "changes", title="which operators dominate")
    for pair in pairs:
        result.add_row(str(pair.large.number), *map(_largest, pair.large.stages))
    return result


def _both(cost: StepCost) -> str:
    return f"{cost.wall:,.0f} / {cost.cpu:,.0f}"


def _judged(text: str, *, ok: bool) -> str:
    return f"[{'green' if ok else 'red'}]{text}[/]"


def _largest(shares: Mapping[str, float]) -> str:
    """Shares come the largest first."""
    return ", ".join(f"{name} {share:.0%}" for name, share in islice(shares.items(), 2))


def outcome(pairs: Sequence[Pair]) -> Outcome:
    """The figures of every query, and the worst of them all."""
    figures: list[Figure] = []
    for pair in pairs:
        figures += _figures(pair)
    within = sum(pair.large.ratios.wall <= HYDRATION for pair in pairs)
    worst = max(pair.large.change(0.5).wall for pair in pairs)
    figures += [
        Figure(
            "tpch_hydrations_within_target",
            within,
            "",
            f">= {len(pairs)}",
            within == len(pairs),
            len(pairs),
        ),
        at_most("tpch_change_ms_p50", worst, "ms", CHANGE_MS),
        at_most("tpch_change_growth", max(pair.growth for pair in pairs), "x", GROWTH),
    ]
    shares = {
        f"q{pair.large.number} {phase}": part
        for pair in pairs
        for phase, part in zip(("hydration", "changes"), pair.large.stages, strict=True)
    }
    return Outcome("tpch", tuple(figures), shares, NOTE, "shares of the work")


def _figures(pair: Pair) -> list[Figure]:
    query = pair.large
    name = f"tpch_q{query.number}"
    figures = [
        at_most(f"{name}_hydration_to_duckdb", query.ratios.wall, "x", HYDRATION),
        Figure(f"{name}_hydration_to_duckdb_cpu", query.ratios.cpu, "x"),
        at_most(f"{name}_change_growth", pair.growth, "x", GROWTH),
    ]
    costs = {
        "duckdb": query.duckdb,
        "hydration": query.hydration,
        "change_p50": query.change(0.5),
        "change_p99": query.change(0.99),
    }
    for what, cost in costs.items():
        limited = what == "change_p50"
        wall = f"{name}_{what}_ms"
        figures += [
            at_most(wall, cost.wall, "ms", CHANGE_MS) if limited else Figure(wall, cost.wall),
            Figure(f"{name}_{what}_cpu_ms", cost.cpu, "ms"),
        ]
    return figures
