"""Runs queries here and on other systems, one after the other, over the same files.

A query's speed is a ratio: the other system's seconds divided by ours. Wall clock is what a
user sees; on a machine that is busy with other things the ratio of CPU seconds is the fairer
one. Every system reads the same JSON lines, two files of each kind, with as many workers; what
is outside each clock is said where it is measured (`workers`, `peers.on_flink`,
`peers.on_pathway`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from streams.bench import json_lines
from streams.bench.figures import Figure, Outcome, at_least
from streams.bench.nexmark import contents, workers
from streams.bench.nexmark.cases import Case
from streams.bench.nexmark.events import COLUMNS, events
from streams.bench.nexmark.peers.installed import Peer, RunCost
from streams.bench.nexmark.workers import Ran
from streams.plan.compile import compile_view
from streams.temporary import temporary_directory
from streams.trace.kernel.kernel import Kernel

Say = Callable[[str], None]

SEED = 1
WORKERS = 2
READ = {"flink": contents.of_flink, "pathway": contents.of_pathway}


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a comparison. `batch` is the events per micro-batch, ours and Flink's."""

    events: int
    batch: int
    cases: Sequence[Case]
    peers: Sequence[Peer]

    @property
    def runs(self) -> int:
        """The number of calls of `say`."""
        return 1 + len(self.cases) * (1 + 2 * len(self.peers))


@dataclass(frozen=True, slots=True)
class QueryComparison:
    """One query: what it took us, what it took each peer, and where the contents differ."""

    case: Case
    ours: Ran
    took: dict[str, RunCost]
    differs: dict[str, str]


def run(plan: Plan, say: Say) -> Iterator[QueryComparison]:
    """Run everything, query by query. Errors: WorkerFailed, PeerFailed."""
    with temporary_directory("slackwater-") as directory:
        inputs = Path(directory) / "inputs"
        say(f"writing {plan.events:,} events")
        write_inputs(plan.events, inputs)
        for case in plan.cases:
            yield _case(plan, case, inputs, Path(directory), say)


def write_inputs(count: int, directory: Path) -> None:
    """Leave the events as JSON lines, those of each kind dealt out to the workers' files."""
    generated = events(count, SEED)
    for kind in COLUMNS:
        texts = json_lines.texts(generated.of(kind))
        (directory / kind).mkdir(parents=True)
        for number in range(WORKERS):
            mine = texts.take(pa.array(np.arange(number, len(texts), WORKERS)))
            with (directory / kind / f"{number}.json").open("w") as file:
                file.writelines(f"{text}\n" for text in mine.to_pylist())


def _case(plan: Plan, case: Case, inputs: Path, directory: Path, say: Say) -> QueryComparison:
    kernel = Kernel()
    say(f"{case.name}: slackwater")
    home = directory / case.name
    home.mkdir()
    batches = max(round(plan.events / plan.batch), 1)
    task = workers.Task(case.name, inputs, home, batches, WORKERS)
    ours = workers.run(task)
    columns = compile_view(case.view, case.catalog).columns
    rows = contents.of_view(workers.contents(task), columns, kernel)
    took, differs = {}, {}
    for peer in plan.peers:
        arguments = [case.name, str(inputs), str(WORKERS), str(plan.batch)]
        say(f"{case.name}: {peer.name}")
        took[peer.name] = peer.run(arguments)
        say(f"{case.name}: {peer.name}, contents")
        changelog = home / peer.name
        peer.run([*arguments, str(changelog)])
        theirs = READ[peer.name](changelog, columns, kernel)
        differs[peer.name] = contents.mismatch(rows, theirs, kernel)
    return QueryComparison(case, ours, took, differs)


def outcome(plan: Plan, results: Sequence[QueryComparison]) -> Outcome:
    """The figures of all queries."""
    figures: list[Figure] = []
    for result in results:
        name = result.case.name
        figures += [
            Figure(f"nexmark_{name}_s", result.ours.seconds, "s"),
            Figure(f"nexmark_{name}_cpu_s", result.ours.cpu_seconds, "s"),
            Figure(f"nexmark_{name}_waited_s", result.ours.waited, "s"),
        ]
        for peer in plan.peers:
            figures += _beside(result, peer)
    load = os.getloadavg()[0]
    note = (
        f"{plan.events:,} events in micro-batches of {plan.batch:,}, {WORKERS} workers each; x"
        f" is the peer's seconds divided by ours; load average at the end {load:.1f}"
    )
    phases = {result.case.name: result.ours.phases for result in results}
    return Outcome(
        "nexmark", tuple(figures), phases, note, "CPU seconds of our workers", "query"
    )


def _beside(result: QueryComparison, peer: Peer) -> list[Figure]:
    name, took = f"nexmark_{result.case.name}", result.took[peer.name]
    return [
        Figure(f"{name}_{peer.name}_s", took.seconds, "s"),
        Figure(f"{name}_{peer.name}_cpu_s", took.cpu_seconds, "s"),
        at_least(f"{name}_x_{peer.name}", took.seconds / result.ours.seconds, "x", peer.aim),
        at_least(
            f"{name}_cpu_x_{peer.name}",
            took.cpu_seconds / result.ours.cpu_seconds,
            "x",
            peer.aim,
        ),
        Figure(f"{name}_{peer.name}_differs", result.differs[peer.name] or "no"),
    ]
