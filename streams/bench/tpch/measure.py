"""The cost of one TPC-H view: hydration, beside DuckDB's query, and changes.

The compiled stages are stepped in this process over real run files, by the functions that
production runs in Spark's workers, in as many buckets as DuckDB has threads, each by a thread
of its own. DuckDB answers in a connection that never saw the query, from the same Arrow tables.
Both are done `ROUNDS` times, each time from the start, and the median counts: the first has the
operating system find memory for it.

Every time is given twice. `wall` is what a clock shows, and on a busy machine holds the time
in which others ran; `cpu` is the processor time of this process, threads of libraries
included, and is what ratios of change costs are made of.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Lock

from streams.app.freshness import percentile
from streams.bench.tpch import data
from streams.bench.tpch.data import Tables
from streams.bench.tpch.queries import query, read_by
from streams.ids import CollectionId
from streams.operators.local import LocalDataflow
from streams.operators.wiring import layout
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Dataflow, NodeId
from streams.progress import Interval, interval_of
from streams.temporary import temporary_directory
from streams.trace.kernel.kernel import Kernel

THREADS = 2
CHANGES = 1_000
WARM, STEPS = 3, 25
ROUNDS = 3
SEED = 11


@dataclass(frozen=True, slots=True)
class StepCost:
    """Milliseconds by the clock, and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Query:
    """The cost of a query at a scale.

    `stages` are shares of the work by operator, the largest first: of hydration, and of all
    changes.
    """

    number: int
    rows: int
    duckdb: StepCost
    hydration: StepCost
    changes: tuple[StepCost, ...]
    stages: tuple[Mapping[str, float], Mapping[str, float]]

    @property
    def ratios(self) -> StepCost:
        """Hydration in terms of DuckDB's answer."""
        wall = self.hydration.wall / self.duckdb.wall
        return StepCost(wall, self.hydration.cpu / self.duckdb.cpu)

    def change(self, share: float) -> StepCost:
        """A percentile of the changes' times."""
        wall = percentile([change.wall for change in self.changes], share)
        return StepCost(wall, percentile([change.cpu for change in self.changes], share))


@dataclass(slots=True)
class Stages:
    """Processor seconds by node of a dataflow, over all threads."""

    seconds: dict[NodeId, float] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def watch(self, node: NodeId) -> Iterator[None]:
        """Add the time of the block to a node's."""
        began = time.thread_time()
        yield
        spent = time.thread_time() - began
        with self.lock:
            self.seconds[node] = self.seconds.get(node, 0.0) + spent

    def shares(self, dataflow: Dataflow) -> dict[str, float]:
        """The share of each node in all, the largest first."""
        total = sum(self.seconds.values()) or 1.0
        ordered = sorted(self.seconds.items(), key=lambda entry: -entry[1])
        return {
            f"{type(dataflow.nodes[node]).__name__} #{node}": seconds / total
            for node, seconds in ordered
        }


def measure(number: int, scale: float, tables: Tables) -> Query:
    """Hydrate a view of a query and change it; DuckDB's answer beside it."""
    text = query(number, scale)
    read = {name: tables[name] for name in read_by(text)}
    answers = [_answered(text, read) for _ in range(ROUNDS)]
    catalog = {
        name: Relation(CollectionId(name), data.columns(table)) for name, table in read.items()
    }
    dataflow = compile_view(text, catalog).dataflow
    layout(dataflow)  # a worker makes it once, as it opens DuckDB once
    snapshot = {name: data.updates(table, 0) for name, table in read.items()}
    hydrating, changing = Stages(), Stages()
    with temporary_directory("slackwater-") as directory:
        hydrations = [
            _hydrated(dataflow, directory / str(number), snapshot, hydrating)
            for number in range(ROUNDS)
        ]
        local, _, rows = hydrations[-1]
        local.watch(changing.watch)
        changes = _changed(local, tables, list(read))
    stages = hydrating.shares(dataflow), changing.shares(dataflow)
    middle = _middle([spent for _, spent, _ in hydrations])
    return Query(number, rows, _middle(answers), middle, tuple(changes), stages)


def _hydrated(
    dataflow: Dataflow, directory: Path, snapshot: Tables, stages: Stages
) -> tuple[LocalDataflow, StepCost, int]:
    """A dataflow over the snapshot, what that cost, and how many updates came out."""
    directory.mkdir()
    local = LocalDataflow(dataflow, directory, buckets=THREADS, parallel=True)
    local.watch(stages.watch)
    local.open()
    return local, *_stepped(local, interval_of(0, 1, as_of=True), snapshot)


def _middle(rounds: Sequence[StepCost]) -> StepCost:
    return StepCost(
        median(spent.wall for spent in rounds), median(spent.cpu for spent in rounds)
    )


def _answered(text: str, tables: Tables) -> StepCost:
    kernel = Kernel("8GB")
    kernel.set("threads", str(THREADS))
    with _timed() as spent:
        kernel.query(text, **tables)
    return spent[0]


def _changed(local: LocalDataflow, tables: Tables, read: Sequence[str]) -> list[StepCost]:
    batches = data.changes(tables, read, CHANGES, SEED, 1)
    spent = []
    for at, batch in zip(range(1, WARM + STEPS + 1), batches, strict=False):
        spent.append(_stepped(local, interval_of(at, at + 1), batch)[0])
    return spent[WARM:]


def _stepped(local: LocalDataflow, interval: Interval, updates: Tables) -> tuple[StepCost, int]:
    """The cost of a step, and the number of its updates."""
    imports = {
        index: updates[str(imported.collection)].select(
            [c.name for c in imported.columns] + _MORE
        )
        for index, imported in enumerate(local.dataflow.imports)
        if str(imported.collection) in updates
    }
    with _timed() as spent:
        outputs, errors = local.step(interval, imports)
    assert not errors, "no row of TPC-H fails"
    return spent[0], sum(output.num_rows for output in outputs)


_MORE = ["_time", "_diff"]


@contextmanager
def _timed() -> Iterator[list[StepCost]]:
    """The cost of the block, once it has ended."""
    spent: list[StepCost] = []
    wall, cpu = time.perf_counter(), time.process_time()
    yield spent
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    spent.append(StepCost(wall * 1000, cpu * 1000))
