"""Many random cases, and the smallest one that fails.

A case is drawn by hypothesis from the bytes of its seed alone: left to itself, hypothesis
varies what it had before, and whole parts of the language do not turn up in hundreds of
cases. What fails goes into hypothesis's database, from which it is shrunk.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase

from tests.random_sql.case import Case, case
from tests.random_sql.chance import Chance
from tests.random_sql.constructs import Coverage
from tests.random_sql.judge import Judge, Refused

_BYTES = 1 << 14
"""What a case is drawn from; one that needs more is not tried."""

_NUMBERS = [st.integers(0, max(bound - 1, 0)) for bound in range(101)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Random cases that shrink."""
    return case(Chance(lambda bound: draw(_NUMBERS[bound])))


SHRINK = 60.0
"""Seconds to look for a smaller case that fails."""


@dataclass(frozen=True)
class Failure:
    """A case that fails."""

    case: Case
    error: Exception

    @property
    def size(self) -> int:
        return len(self.case.script())


@dataclass
class Search:
    """Cases compared one by one; the coverage of all."""

    engine: str = "local"
    stop_at: float = float("inf")
    """By `time.monotonic`: what has begun then ends, nothing new begins."""

    tick: Callable[[], None] = lambda: None
    coverage: Coverage = field(default_factory=Coverage)
    judge: Judge = field(default_factory=Judge)
    failure: Failure | None = None
    shrink_until: float = float("inf")

    def run(self, first: int, count: int) -> Iterator[Failure]:
        """A case for each seed from `first` on; each failure, shrunk."""
        test = self._property()
        for number in range(first, first + count):
            if time.monotonic() > self.stop_at:
                return
            try:
                test.hypothesis.fuzz_one_input(random.Random(number).randbytes(_BYTES))
            except Exception:  # noqa: BLE001 - whatever the engine raises is a failure
                yield self._shrunk(test)
                test = self._property()  # with a database that has not seen this failure

    def _shrunk(self, test: Any) -> Failure:
        self.shrink_until = time.monotonic() + SHRINK
        with suppress(Exception):
            test()
        failure, self.failure, self.shrink_until = self.failure, None, float("inf")
        assert failure
        return failure

    def _property(self) -> Any:
        @settings(
            database=InMemoryExampleDatabase(),
            deadline=None,
            phases=(Phase.reuse, Phase.shrink),
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases())
        def each(drawn: Case) -> None:
            if time.monotonic() < self.shrink_until:
                self.compare(drawn)

        return each

    def compare(self, drawn: Case) -> None:
        """One case. Errors: those of the judge but for refusals."""
        self.tick()
        try:
            view = self.judge.judge(drawn, self.engine)
        except Refused as refusal:
            self.coverage.turned_away(drawn.query, str(refusal))
        except (duckdb.InternalException, duckdb.FatalException) as broken:
            self.coverage.turned_away(drawn.query, f"DuckDB itself fails: {str(broken)[:60]}")
            self.judge = Judge()  # DuckDB takes no query after that
        except Exception as error:
            self.remember(drawn, error)
            raise
        else:
            self.coverage.kept(drawn.query, drawn.types)
            self.coverage.undetermined += bool(self.judge.undetermined)
            self.coverage.failed_rows += bool(view._errors.num_rows)
            times = view._updates.column("time").unique().to_pylist()
            self.coverage.with_rows += bool(times)
            self.coverage.changing += bool({*times} - {view.since})

    def remember(self, drawn: Case, error: Exception) -> None:
        """Keep the smallest case that fails as the first one did."""
        failure, first = Failure(drawn, error), self.failure
        same = first is None or type(first.error) is type(failure.error)
        if first is None or (same and failure.size <= first.size):
            self.failure = failure
