"""What a benchmark found: figures with targets, where the time went, as table and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

Value = float | int | str


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `target` says in words what it should be; `met` is None without one.

    `limit` is the target as a number.
    """

    name: str
    value: Value
    unit: str = ""
    target: str = ""
    met: bool | None = None
    limit: float | None = None

    @property
    def ratio(self) -> float | None:
        """The value in terms of its target; None without one."""
        if self.limit is None or isinstance(self.value, str):
            return None
        return self.value / self.limit


@dataclass(frozen=True, slots=True)
class Outcome:
    """A benchmark's figures, and where the time went: the phases of `of`, by lane or `by`."""

    bench: str
    figures: tuple[Figure, ...]
    breakdown: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    note: str = ""
    of: str = "median of a micro-batch"
    by: str = "lane"


def at_most(name: str, value: float, unit: str, limit: float) -> Figure:
    """A figure that should not exceed `limit`."""
    return Figure(name, value, unit, f"<= {limit:,g}", value <= limit, limit)


def at_least(name: str, value: float, unit: str, limit: float) -> Figure:
    """A figure that should reach `limit`."""
    return Figure(name, value, unit, f">= {limit:,}", value >= limit, limit)


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print the figures, then where the time went."""
    table = Table("benchmark", "figure", "value", "target", "met")
    for outcome in outcomes:
        for figure in outcome.figures:
            value = f"{figure.value:,.2f}" if isinstance(figure.value, float) else figure.value
            met = "" if figure.met is None else ("[green]yes" if figure.met else "[red]no")
            text = f"{value:,}" if isinstance(value, int) else str(value)
            unit = f" {figure.unit}" if figure.unit else ""
            table.add_row(outcome.bench, figure.name, text + unit, figure.target, met)
    console.print(table)
    for outcome in outcomes:
        _show_breakdown(outcome, console)


def _show_breakdown(outcome: Outcome, console: Console) -> None:
    if outcome.note:
        console.print(f"[bold]{outcome.bench}[/]: {outcome.note}")
    if not outcome.breakdown:
        return
    phases = list(dict.fromkeys(p for values in outcome.breakdown.values() for p in values))
    table = Table(outcome.by, *phases, title=f"{outcome.bench}: {outcome.of}")
    for lane, values in outcome.breakdown.items():
        table.add_row(lane, *(f"{values.get(phase, 0):,.2f}" for phase in phases))
    console.print(table)


def write(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the figures as one JSON object.

    Shape: each figure under its name; beside one with a target, `<name>_target` and
    `<name>_ratio`, which is the value divided by it. The phases are under `breakdown`.
    """
    flat: dict[str, object] = {
        figure.name: figure.value for outcome in outcomes for figure in outcome.figures
    }
    for figure in (
        figure for outcome in outcomes for figure in outcome.figures if figure.limit
    ):
        flat[f"{figure.name}_target"] = figure.limit
        flat[f"{figure.name}_ratio"] = figure.ratio
    flat["breakdown"] = {
        outcome.bench: outcome.breakdown for outcome in outcomes if outcome.breakdown
    }
    flat["targets"] = {
        figure.name: {"target": figure.target, "met": figure.met}
        for outcome in outcomes
        for figure in outcome.figures
        if figure.target
    }
    path.write_text(json.dumps(flat, indent=2) + "\n")
