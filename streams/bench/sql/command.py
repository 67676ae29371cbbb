"""`slackwater bench sql`: the table by family, the page, and how long TPC-H's views compile."""

import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.sql import page as pages
from streams.bench.sql.constructs import refused
from streams.bench.sql.survey import Tallies, catalogue, survey
from streams.bench.tpch.columns import catalog
from streams.bench.tpch.queries import QUERIES, query
from streams.plan.compile import compile_view
from streams.trace.kernel.kernel import Kernel

COMPILE_MS = 100.0
_ROUNDS = 5


def sql(console: Console, most: int, page: Path | None) -> Outcome:
    """Survey the catalogue, at most so many calls of an overload; write the page, if asked."""
    signatures = catalogue(Kernel())
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*bar, TimeElapsedColumn(), console=console, transient=True) as progress:
        names = {(signature.family, signature.name) for signature in signatures}
        task = progress.add_task("functions", total=len(names))
        tallies = survey(signatures, most, lambda: progress.advance(task))
    console.print(_by_family(tallies))
    console.print(_by_reason(tallies))
    for tally in tallies.values():
        for failure in tally.failed:
            console.print("[red]defect[/]", Text(failure), highlight=False)
    if page is not None:
        page.write_text(pages.page(tallies, list(refused()), most))
    defects = sum(len(tally.failed) for tally in tallies.values())
    return Outcome("sql", (at_most("defects", defects, "", 0), *compile_times()))


def compile_times() -> tuple[Figure, ...]:
    """The processor time that the planner takes for each of TPC-H's views, and the most."""
    relations = catalog()
    spent = {}
    for number in QUERIES:
        rounds = []
        for _ in range(_ROUNDS):
            began = time.process_time()
            compile_view(query(number), relations)
            rounds.append((time.process_time() - began) * 1000)
        spent[number] = median(rounds)
    figures = [at_most(f"compile_q{n}_ms", ms, "ms", COMPILE_MS) for n, ms in spent.items()]
    return (*figures, at_most("compile_slowest_ms", max(spent.values()), "ms", COMPILE_MS))


def _by_family(tallies: Tallies) -> Table:
    table = Table("family", "functions", "calls", "maintained", "refused", title="calls")
    for family, numbers in pages.families(tallies).items():
        table.add_row(family, *(f"{number:,}" for number in numbers))
    return table


def _by_reason(tallies: Tallies) -> Table:
    table = Table("refused", "calls", "functions", title="refused, by name")
    for reason, functions in pages.refusals(tallies).items():
        calls = sum(tally.refused[reason] for _, tally in functions)
        names = ", ".join(dict.fromkeys(name for name, _ in functions))
        table.add_row(reason.construct, f"{calls:,}", names)
    return table
