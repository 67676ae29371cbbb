"""The report of a run: a summary for people, JSON for programs, and evidence."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streams.torture.journal import Entry, line
from streams.torture.oracle import Verdict

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Report:
    """A run that is over. `again` is the command that runs it once more.

    `ended_by` is the signal that ended it early, 0 if none did.
    """

    seed: int
    again: str
    seconds: float
    verdict: Verdict
    ended_by: int = 0

    def show(self, console: Console) -> None:
        """The summary."""
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, value in {**self.verdict.figures, "wrong": len(self.verdict.wrong)}.items():
            table.add_row(name, f"{value:,}")
        console.print(table)
        if self.ended_by:
            console.print(f"ended early, by {Signals(self.ended_by).name}", highlight=False)
        for fault in self.verdict.wrong[:MOST_SHOWN]:
            console.print(f"[red]wrong:[/] {escape(fault)}", highlight=False, soft_wrap=True)
        if self.verdict.wrong:
            console.print(f"again: {self.again}", highlight=False)

    def as_object(self) -> dict[str, object]:
        """The report for programs."""
        return {
            "seed": self.seed,
            "again": self.again,
            "seconds": round(self.seconds, 1),
            "ended_by": Signals(self.ended_by).name if self.ended_by else None,
            **{name.replace(" ", "_"): value for name, value in self.verdict.figures.items()},
            "wrong": list(self.verdict.wrong),
        }

    def write(self, path: Path) -> None:
        """The report as a file."""
        path.write_text(json.dumps(self.as_object(), ensure_ascii=False, indent=2) + "\n")

    def write_evidence(self, path: Path, entries: Sequence[Entry]) -> None:
        """The violations, then every entry of every journal, one per line."""
        with path.open("w") as file:
            file.write(json.dumps(self.as_object(), ensure_ascii=False) + "\n")
            file.writelines(line(entry) + "\n" for entry in entries)
