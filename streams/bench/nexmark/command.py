"""`slackwater bench nexmark`: its choices, its progress bar, its table."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from streams.bench.figures import Outcome
from streams.bench.nexmark import comparison
from streams.bench.nexmark.comparison import Plan, QueryComparison, Say
from streams.bench.nexmark.peers.installed import PEERS, Peer

T = TypeVar("T")

INSTALL = "slackwater bench nexmark --install"


def chosen(of: Mapping[str, T], text: str) -> list[T]:
    """The named cases, in order; all for no names. Errors: BadParameter."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in of]
    if unknown:
        raise typer.BadParameter(
            f"expected some of {', '.join(of)}, actual {','.join(unknown)}"
        )
    return [case for name, case in of.items() if not names or name in names]


def peers_of(text: str) -> list[Peer]:
    """The peers that are named, all for no names, none for `none`. Errors: BadParameter."""
    return [] if text.strip() == "none" else chosen(PEERS, text)


def nexmark(plan: Plan, console: Console, *, install: bool = False) -> Outcome:
    """Run the plan, with the peers that are installed, and print the ratios.

    Errors: PeerFailed, WorkerFailed.
    """
    for peer in plan.peers:
        if install and not peer.is_installed:
            console.print(f"[dim]installing {peer.requirement} into {peer.home}[/]")
            peer.install()
        elif not peer.is_installed:
            console.print(
                f"[yellow]{peer.name} is not installed and is left out; to install"
                f" {peer.requirement} for this benchmark alone: {INSTALL}[/]"
            )
    ready = [peer for peer in plan.peers if peer.is_installed]
    plan = Plan(plan.events, plan.batch, plan.cases, ready)
    before = os.getloadavg()[0]
    results: list[QueryComparison] = []
    with _progress(console, plan.runs) as say:
        for result in comparison.run(plan, say):
            results.append(result)
            console.print(f"[dim]{told(result)}[/]")
    console.print(ratios(results, plan.peers))
    console.print(f"[dim]load average before: {before:.1f} on {os.cpu_count()} cores[/]")
    return comparison.outcome(plan, results)


def told(result: QueryComparison) -> str:
    """A line about a query that has ended."""
    seconds = [f"slackwater {_shown(result.ours.seconds, result.ours.cpu_seconds)}"]
    for name, took in result.took.items():
        seconds.append(f"{name} {_shown(took.seconds, took.cpu_seconds)}")
    return f"{result.case.name}: {', '.join(seconds)} s (CPU s)"


def ratios(results: Sequence[QueryComparison], peers: Sequence[Peer]) -> Table:
    """Seconds and CPU seconds of each system, what takes most of ours, and theirs to ours."""
    heads = [head for peer in peers for head in (peer.name, f"x {peer.name}", "contents")]
    title = "seconds (CPU seconds); ratios to ours"
    table = Table("query", "slackwater", "mostly", *heads, title=title)
    for result in results:
        phase, share = result.ours.dominated
        cells = [result.case.name, _shown(result.ours.seconds, result.ours.cpu_seconds)]
        cells.append(f"{phase} {share:.0%}")
        for peer in peers:
            took, differs = result.took[peer.name], result.differs[peer.name]
            wall = took.seconds / result.ours.seconds
            cpu = took.cpu_seconds / result.ours.cpu_seconds
            colour = "green" if wall >= peer.aim else "red"
            cells += [
                _shown(took.seconds, took.cpu_seconds),
                f"[{colour}]{wall:.2f}[/] ({cpu:.2f})",
                f"[red]{differs}[/]" if differs else "equal",
            ]
        table.add_row(*cells)
    return table


def _shown(seconds: float, cpu_seconds: float) -> str:
    return f"{seconds:.2f} ({cpu_seconds:.2f})"


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Say]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)

        def say(text: str) -> None:
            progress.update(task, description=text)
            progress.advance(task)

        yield say
