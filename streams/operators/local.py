"""Steps a dataflow in process: the engine's own functions over real run files.

    LocalDataflow(dataflow, directory).step(interval, imports)

plays the part of the replica: it carries packets to their bucket and level and keeps the runs.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from streams.operators.context import EngineOutput
from streams.operators.engine import Context, Packet, advance, start
from streams.operators.rounds import inbox, scheduled_levels
from streams.plan.physical import Dataflow, NodeId
from streams.progress import Interval
from streams.trace.arrange.runs import PIECE, RunName
from streams.trace.kernel.kernel import Kernel


@dataclass(slots=True)
class LocalDataflow:
    """A dataflow with its state, in one process and over `buckets` buckets.

    They are advanced one after the other; if `parallel` each by a thread of its own, with a
    DuckDB and open runs of its own, as a replica's workers do it. The answers are the same.
    """

    dataflow: Dataflow
    directory: Path
    buckets: int = 2
    merge_factor: int = 2
    kernel: Kernel = field(default_factory=Kernel)
    piece: int = PIECE
    parallel: bool = False
    runs: dict[int, dict[str, list[RunName]]] = field(default_factory=dict)
    contexts: list[Context] = field(init=False)

    def __post_init__(self) -> None:
        names = map("run{:06d}".format, itertools.count())
        first = Context(
            self.directory,
            self.kernel,
            names.__next__,
            merge_factor=self.merge_factor,
            piece=self.piece,
        )
        others = self.buckets - 1 if self.parallel else 0
        self.contexts = [first, *(_of_another_thread(first) for _ in range(others))]

    @property
    def context(self) -> Context:
        """The means of the first bucket."""
        return self.contexts[0]

    def open(self) -> None:
        """Open the connections to DuckDB now, so that the first step does not wait for them."""
        for context in self.contexts:
            context.kernel.open()

    def watch(self, watch: Callable[[NodeId], AbstractContextManager[None]]) -> None:
        """Enter `watch` around the work for each node from now on."""
        self.contexts = [replace(context, watch=watch) for context in self.contexts]

    def step(
        self, interval: Interval, imports: Mapping[int, pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Step over an interval; the updates of the output, and of the errors."""
        before = {bucket: dict(runs) for bucket, runs in self.runs.items()}
        with ThreadPoolExecutor(self.buckets) as pool:
            mapped = pool.map if self.parallel else map
            read = partial(self._started, interval)
            emitted = list(mapped(read, itertools.count(), _shares(imports)))
            packets = [packet for share in emitted for packet in share.packets]
            for level in range(1, self.dataflow.depth + 1):
                work = partial(self._advanced, interval, level, packets, before)
                advanced = list(mapped(work, range(self.buckets)))
                emitted += advanced
                packets += [packet for bucket in advanced for packet in bucket.packets]
        outputs = [part.output for part in emitted if part.output is not None]
        errors = [part.errors for part in emitted if part.errors is not None]
        return outputs, errors

    def _of(self, number: int) -> Context:
        """The means with which a share or a bucket is worked on."""
        return self.contexts[number % len(self.contexts)]

    def _started(
        self, interval: Interval, number: int, share: Mapping[int, pa.Table]
    ) -> EngineOutput:
        return start(self.dataflow, share, interval, self.buckets, self._of(number))

    def _advanced(
        self,
        interval: Interval,
        level: int,
        packets: Sequence[Packet],
        before: Mapping[int, Mapping[str, list[RunName]]],
        bucket: int,
    ) -> EngineOutput:
        runs = before.get(bucket, {})
        mine = [p for p in packets if (p.level, p.bucket) == (level, bucket)]
        if not mine and level not in scheduled_levels(self.dataflow, runs, interval):
            return EngineOutput((), None, None)
        emitted, after = advance(
            self.dataflow,
            level,
            bucket,
            inbox(mine),
            runs,
            interval,
            self._of(bucket),
            buckets=self.buckets,
        )
        self.runs[bucket] = {**self.runs.get(bucket, {}), **after}
        return emitted


def _of_another_thread(context: Context) -> Context:
    """The same directory and names, with thread-bound parts recreated."""
    return Context(
        context.directory,
        Kernel(),
        context.new_name,
        merge_factor=context.merge_factor,
        piece=context.piece,
    )


def _shares(imports: Mapping[int, pa.Table]) -> list[dict[int, pa.Table]]:
    """The imports' updates in two halves, as two tasks would read them."""
    halves: list[dict[int, pa.Table]] = [{}, {}]
    for index, table in imports.items():
        middle = table.num_rows // 2
        for half, part in zip(halves, (table[:middle], table[middle:]), strict=True):
            if part.num_rows:
                half[index] = part
    return [half for half in halves if half]
