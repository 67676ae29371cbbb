"""What a small change costs against little and against much state.

The compiled stages of a join and of a group by are stepped in process, over real run files:
the same functions that Spark runs, without the part of a micro-batch that does not depend on
state at all. State is built with 1e5 rows and with 1e7; then intervals of 1,000 changes follow.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams.app.bench.figures import Figure, Outcome, at_most
from streams.ids import CollectionId
from streams.operators.engine import Interval
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.testing.local import LocalDataflow

SIZES = (100_000, 10_000_000)
CHANGES = 1_000
WARM, STEPS = 5, 40
SLICE = 1_000_000
PER_KEY = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A view over `t` (state) and, in the join, `d` (the changing side)."""

    name: str
    query: str
    grows: str


CASES = (
    Case("join", "SELECT d.k, d.v, t.v AS w FROM d JOIN t ON d.k = t.k", "d"),
    Case(
        "group_by", "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM t GROUP BY k", "t"
    ),
)


def change(say: Callable[[str], None]) -> Outcome:
    """The step time of 1,000 changes at both sizes, and their ratio."""
    figures: list[Figure] = []
    worst = 0.0
    for case in CASES:
        medians = []
        for size in SIZES:
            say(f"{case.name} over {size:,} rows")
            with tempfile.TemporaryDirectory(prefix="slackwater-") as directory:
                taken = _measure(case, size, Path(directory))
            medians.append(median(taken))
            figures += [
                Figure(f"change_ms_{case.name}_{size:.0e}", median(taken), "ms"),
                Figure(f"change_mean_ms_{case.name}_{size:.0e}", mean(taken), "ms"),
            ]
        ratio = medians[1] / medians[0]
        worst = max(worst, ratio)
        figures.append(at_most(f"change_ratio_{case.name}", ratio, "x", 1.3))
    figures.append(at_most("change_ratio", worst, "x", 1.3))
    note = "the mean holds what merging runs costs; a step's time is dominated by its tasks"
    return Outcome("change", tuple(figures), note=note)


def _measure(case: Case, size: int, directory: Path) -> list[float]:
    columns = (Column("k", "BIGINT"), Column("v", "BIGINT"))
    names = ("t", "d") if case.name == "join" else ("t",)
    catalog = {name: Relation(CollectionId(name), columns) for name in names}
    dataflow = compile_view(case.query, catalog).dataflow
    index = {each.collection: i for i, each in enumerate(dataflow.imports)}
    local = LocalDataflow(dataflow, directory)
    local.step(Interval(0, 1, as_of=True), {})
    state, changing = index[CollectionId("t")], index[CollectionId(case.grows)]
    at = 1
    for table in _slices(size, at):
        local.step(Interval(at, at + 1), {state: table})
    taken = []
    rng = np.random.default_rng(3)
    for step in range(WARM + STEPS):
        at += 1
        keys = rng.integers(0, size // PER_KEY, CHANGES)
        began = time.perf_counter()
        local.step(Interval(at, at + 1), {changing: _updates(keys, at)})
        if step >= WARM:
            taken.append((time.perf_counter() - began) * 1000)
    return taken


def _slices(size: int, at: int) -> Iterator[pa.Table]:
    for start in range(0, size, SLICE):
        rows = np.arange(start, min(start + SLICE, size))
        yield _updates(rows // PER_KEY, at)


def _updates(keys: npt.NDArray[np.int64], at: int) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "k": keys,
            "v": np.arange(count),
            "time": np.full(count, at),
            "diff": np.ones(count, np.int64),
        }
    )
