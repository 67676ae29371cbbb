"""What a small change costs against little and against much state, for each kind of operator.

The compiled stages of a view are stepped in process, over real run files: the same functions
that Spark runs, without the part of a micro-batch that does not depend on state at all. State
is built with N rows and with 10 N; then intervals of 1 and of 1,000 changes follow, and of
10,000 changes that have one time and as many times as they are. Beside the costs stands the
room that the state of 10 N takes.

Ratios are of processor time: the machine may have other work to do.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from streams.bench.figures import Figure, Outcome, at_most
from streams.ids import CollectionId
from streams.operators.local import LocalDataflow
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.progress import interval_of
from streams.temporary import temporary_directory

Ints = npt.NDArray[np.int64]

GROWTH = 10
CHANGES = (1, 1_000)
TIMES = 10_000
WARM, STEPS = 3, 21
SLICE = 1_000_000
PER_KEY = 10
COLUMNS = (Column("k", "BIGINT"), Column("v", "BIGINT"), Column("w", "BIGINT"))


@dataclass(frozen=True, slots=True)
class ChangedView:
    """A view over `t` (state): `k` has ten rows each, `v` is unique, `w` has 97 values.

    `grows` is the relation that changes. `last` has changes come with ever greater values, as
    what is ordered by time does.
    """

    query: str
    grows: str = "t"
    last: bool = False


CASES: Mapping[str, ChangedView] = {
    "linear": ChangedView("SELECT k, v + 1 AS v FROM t WHERE w > 5"),
    "temporal": ChangedView("SELECT v, w FROM t WHERE mz_now() <= v"),
    "join": ChangedView("SELECT d.k, d.v, t.v AS w FROM d JOIN t ON d.k = t.k", "d"),
    "delta_join": ChangedView(
        "SELECT d.v, x.w, y.v AS b FROM d JOIN t x ON d.k = x.k JOIN t y ON x.v // 100 = y.k",
        "d",
    ),
    "left_join": ChangedView("SELECT d.k, d.v, t.v AS w FROM d LEFT JOIN t ON d.v = t.v", "d"),
    "in": ChangedView("SELECT k, v FROM d WHERE v NOT IN (SELECT v FROM t)", "d"),
    "mark": ChangedView("SELECT k, v IN (SELECT v FROM t) AS found FROM d", "d"),
    "single": ChangedView("SELECT k, (SELECT t.w FROM t WHERE t.v = d.v) AS w FROM d", "d"),
    "group_by": ChangedView(
        "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM t GROUP BY k"
    ),
    "min_max": ChangedView("SELECT min(v) AS least, max(v) AS most FROM t"),
    "count_distinct": ChangedView("SELECT count(DISTINCT v) AS n FROM t"),
    "distinct": ChangedView("SELECT DISTINCT v, w FROM t"),
    "except": ChangedView("SELECT v FROM t EXCEPT ALL SELECT w FROM t"),
    "top_k": ChangedView("SELECT k, v FROM t ORDER BY v DESC LIMIT 10"),
    "distinct_on": ChangedView("SELECT DISTINCT ON (w) w, v FROM t ORDER BY w, v DESC"),
    "lag": ChangedView("SELECT v, lag(v) OVER (ORDER BY v) AS b FROM t"),
    "moving_sum": ChangedView(
        "SELECT v, sum(w) OVER (ORDER BY v ROWS 5 PRECEDING) AS s FROM t"
    ),
    "moving_range": ChangedView(
        "SELECT v, sum(w) OVER (ORDER BY v RANGE 50 PRECEDING) AS s FROM t"
    ),
    "moving_groups": ChangedView(
        "SELECT v, sum(w) OVER (ORDER BY v GROUPS 5 PRECEDING) AS s FROM t"
    ),
    "running_sum": ChangedView("SELECT v, sum(w) OVER (ORDER BY v) AS s FROM t", last=True),
    "running_max": ChangedView("SELECT v, max(w) OVER (ORDER BY v) AS s FROM t"),
    "median": ChangedView("SELECT median(v) AS m FROM t"),
    "recursion": ChangedView(
        "WITH RECURSIVE r(v) AS (SELECT v FROM t WHERE v % 100 = 0 UNION "
        "SELECT t.v FROM r JOIN t ON t.v = r.v + 10) SELECT v FROM r"
    ),
}


def chosen(only: str) -> tuple[str, ...]:
    """The cases named in a list with commas; all of them for none.

    Errors: typer.BadParameter for a case that there is not.
    """
    names = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in names:
        if name not in CASES:
            raise typer.BadParameter(f"expected some of {', '.join(CASES)}; actual {name}")
    return names or tuple(CASES)


def change(say: Callable[[str], None], names: tuple[str, ...], rows: int) -> Outcome:
    """The cost of 1 and 1,000 changes over `rows` and ten times as many, repeated."""
    figures: list[Figure] = []
    table: dict[str, dict[str, float]] = {}
    for name in names:
        say(f"{name} over {rows:,} and {rows * GROWTH:,} rows")
        few, many = (measure(CASES[name], size) for size in (rows, rows * GROWTH))
        line = table[name] = {}
        for count in CHANGES:
            of_few, of_many = few.changes[count], many.changes[count]
            line |= {
                f"{count:,} of N, ms": of_few.wall_ms,
                f"{count:,} of 10 N, ms": of_many.wall_ms,
            }
            ratio = of_many.cpu_ms / of_few.cpu_ms
            figures.append(at_most(f"change_ratio_{name}_{count}", ratio, "x", 1.3))
        line["state of 10 N, MiB"] = many.state_mib
        line |= {"one time, ms": few.at_once.wall_ms, "many times, ms": few.apart.wall_ms}
        ratio = few.apart.cpu_ms / few.at_once.cpu_ms
        figures.append(at_most(f"times_ratio_{name}", ratio, "x", 3))
    note = f"N is {rows:,}; ratios are of processor time; the times are medians of a step"
    return Outcome("change", tuple(figures), table, note, "a step of so many changes", "view")


@dataclass(frozen=True, slots=True)
class MedianCost:
    """The median of some steps."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0


@dataclass(slots=True)
class Measured:
    """A case at one size: by number of changes; and many of them at one and at many times."""

    changes: dict[int, MedianCost] = field(default_factory=dict)
    at_once: MedianCost = MedianCost()
    apart: MedianCost = MedianCost()
    state_mib: float = 0.0


def measure(case: ChangedView, size: int) -> Measured:
    """The cost of changes over a state of this many rows."""
    with temporary_directory("slackwater-") as directory:
        view = _View(case, size, Path(directory))
        state_mib = view.state_mib()
        costs = Measured({count: view.cost(count, STEPS, WARM) for count in CHANGES})
        costs.state_mib = state_mib
        costs.at_once = view.cost(TIMES, 3)
        costs.apart = view.cost(TIMES, 3, apart=True)
        return costs


class _View:
    """A view with its state, and changes to come."""

    def __init__(self, case: ChangedView, size: int, directory: Path) -> None:
        catalog = {name: Relation(CollectionId(name), COLUMNS) for name in ("t", "d")}
        dataflow = compile_view(case.query, catalog).dataflow
        index = {imported.collection: i for i, imported in enumerate(dataflow.imports)}
        self.local = LocalDataflow(dataflow, directory)
        self.local.step(interval_of(0, 1, as_of=True), {})
        self.size, self.at = size, 1
        self.last, self.greatest = case.last, size * PER_KEY
        self.changing = index[CollectionId(case.grows)]
        self.chance = np.random.default_rng(3)
        for rows in _slices(size):
            self._step(index[CollectionId("t")], rows * PER_KEY, np.full(len(rows), self.at))

    def state_mib(self) -> float:
        """The room that the rows of state take; not what merges left behind."""
        open_runs = self.local.context.files.open
        names = [names for runs in self.local.runs.values() for names in runs.values()]
        pieces = [piece.rows for name in names for piece in open_runs(name)]
        return sum(int(rows.get_total_buffer_size()) for rows in pieces) / (1 << 20)

    def cost(self, count: int, steps: int, warm: int = 0, *, apart: bool = False) -> MedianCost:
        """The cost of a step with this many changes, all at one time or `apart`."""
        taken = []
        for step in range(warm + steps):
            values = self._values(count)
            times = np.arange(count) if apart else np.zeros(count, np.int64)
            began, began_cpu = time.perf_counter(), time.process_time()
            self._step(self.changing, values, self.at + times)
            spent = time.perf_counter() - began, time.process_time() - began_cpu
            if step >= warm:
                taken.append(spent)
        wall, cpu = (median(seconds) * 1000 for seconds in zip(*taken, strict=True))
        return MedianCost(wall, cpu)

    def _values(self, count: int) -> Ints:
        if not self.last:
            return self.chance.integers(0, self.size * PER_KEY, count)
        self.greatest += count
        return np.arange(self.greatest - count, self.greatest)

    def _step(self, relation: int, values: Ints, times: Ints) -> None:
        upper = int(times.max()) + 1
        self.local.step(interval_of(self.at, upper), {relation: _updates(values, times)})
        self.at = upper


def _slices(size: int) -> Iterator[Ints]:
    for start in range(0, size, SLICE):
        yield np.arange(start, min(start + SLICE, size))


def _updates(values: Ints, times: Ints) -> pa.Table:
    return pa.table(
        {
            "k": values // (PER_KEY * PER_KEY),
            "v": values,
            "w": values % 97,
            "time": times,
            "diff": np.ones(len(values), np.int64),
        }
    )
