"""What the demo is asked for, and what it found."""

from dataclasses import dataclass
from pathlib import Path

from streams.demo.check import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The user's choices; see `slackwater demo --help`."""

    directory: Path
    brokers: str
    events: int
    speed: float
    times: int
    page: bool
    postgres: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOutput:
    """The output to PostgreSQL.

    Units: a lag is from the time that the tables hold to the commit, in milliseconds.
    """

    commits: int
    rows: int
    lag_p50_ms: float
    lag_p90_ms: float

    def figures(self) -> dict[str, object]:
        """The figures for machines."""
        return {
            "commits": self.commits,
            "rows": self.rows,
            "lag_ms_p50": round(self.lag_p50_ms, 1),
            "lag_ms_p90": round(self.lag_p90_ms, 1),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The results of the demo. `problems` is empty when there are none."""

    events: int
    views: int
    verdicts: tuple[Verdict, ...]
    seconds: float
    freshness_p50_ms: float
    freshness_p90_ms: float
    problems: tuple[str, ...]
    kept: PostgresOutput | None = None

    @property
    def events_per_second(self) -> float:
        """The rate from the first message to the last one readable in every view."""
        return self.events / self.seconds if self.seconds else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether something was checked, and nothing was wrong."""
        return bool(self.verdicts) and not self.problems

    def figures(self) -> dict[str, object]:
        """The figures for machines."""
        return {
            "events": self.events,
            "views": self.views,
            "times_checked": len(self.verdicts),
            "wrong": sum(1 for verdict in self.verdicts if verdict.wrong),
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.events_per_second, 1),
            "freshness_ms_p50": round(self.freshness_p50_ms, 1),
            "freshness_ms_p90": round(self.freshness_p90_ms, 1),
            "problems": list(self.problems),
            **({} if self.kept is None else {"postgres": self.kept.figures()}),
        }
