"""Where the time of the micro-batches went, from the lines that the replica leaves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PHASES = ("trigger_ms", "wait_ms", "plan_ms", "tasks_ms", "worker_ms", "commit_ms", "append_ms")


@dataclass(slots=True)
class TimingFile:
    """The replica's `timings.jsonl`; `mark` makes what follows count from now on."""

    path: Path
    skip: int = 0

    def mark(self) -> None:
        """Count only what comes from here on."""
        self.skip = len(self._lines())

    def rows(self, lane: str | None = None) -> list[Mapping[str, float]]:
        """The micro-batches since the mark, of one lane or of all."""
        lines = [json.loads(line) for line in self._lines()[self.skip :]]
        return [line for line in lines if lane is None or line["lane"] == lane]

    def breakdown(self) -> dict[str, dict[str, float]]:
        """The median of each phase by lane, the number of micro-batches, and their rows.

        Micro-batches of a lane that its query did not run have the way behind its name.
        """
        lanes: dict[str, list[dict[str, float]]] = {}
        for line in self._lines()[self.skip :]:
            row = json.loads(line)
            way = "" if row["way"] == "query" else f":{row['way']}"
            lanes.setdefault(f"{row['lane']}{way}", []).append(row)
        return {
            lane: {
                "batches": len(rows),
                "rows": median(row["rows"] for row in rows),
                **{phase: median(row[phase] for row in rows) for phase in PHASES},
            }
            for lane, rows in lanes.items()
        }

    def _lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []
