"""A dataflow stepped in process: the engine's own functions over real run files.

    LocalDataflow(dataflow, directory).step(interval, imports)

plays the part of the replica: it carries packets to their bucket and level and keeps the runs.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from streams.operators.engine import Context, Interval, Packet, advance, due, start
from streams.plan.physical import Dataflow
from streams.trace.kernel import Kernel
from streams.trace.runs import PIECE, RunName


@dataclass(slots=True)
class LocalDataflow:
    """A dataflow with its state, in one process and over `buckets` buckets."""

    dataflow: Dataflow
    directory: Path
    buckets: int = 2
    merge_factor: int = 2
    kernel: Kernel = field(default_factory=Kernel)
    piece: int = PIECE
    runs: dict[int, dict[str, list[RunName]]] = field(default_factory=dict)
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        names = map("run{:06d}".format, itertools.count())
        self.context = Context(
            self.directory,
            self.kernel,
            names.__next__,
            merge_factor=self.merge_factor,
            piece=self.piece,
        )

    def step(
        self, interval: Interval, imports: Mapping[int, pa.Table]
    ) -> tuple[list[pa.Table], list[pa.Table]]:
        """Step over an interval; the updates of the output, and of the errors."""
        emitted = [
            start(self.dataflow, share, interval, self.buckets, self.context)
            for share in _shares(imports)
        ]
        before = {bucket: dict(runs) for bucket, runs in self.runs.items()}
        packets: list[Packet] = [packet for each in emitted for packet in each.packets]
        for level in range(1, self.dataflow.depth + 1):
            for bucket in range(self.buckets):
                inbox: dict[tuple[int, str], list[pa.Table]] = {}
                for packet in packets:
                    if (packet.level, packet.bucket) == (level, bucket):
                        inbox.setdefault((packet.node, packet.port), []).append(packet.table)
                runs = before.get(bucket, {})
                awake = inbox or interval.as_of
                if not awake and level not in due(self.dataflow, runs, interval.upper):
                    continue
                made, after = advance(
                    self.dataflow,
                    level,
                    bucket,
                    inbox,
                    runs,
                    interval,
                    self.context,
                    buckets=self.buckets,
                )
                self.runs[bucket] = {**self.runs.get(bucket, {}), **after}
                emitted.append(made)
                packets += made.packets
        outputs = [each.output for each in emitted if each.output is not None]
        errors = [each.errors for each in emitted if each.errors is not None]
        return outputs, errors


def _shares(imports: Mapping[int, pa.Table]) -> list[dict[int, pa.Table]]:
    """The imports' updates in two halves, as two tasks would read them."""
    halves: list[dict[int, pa.Table]] = [{}, {}]
    for index, table in imports.items():
        middle = table.num_rows // 2
        for half, part in zip(halves, (table[:middle], table[middle:]), strict=True):
            if part.num_rows:
                half[index] = part
    return [half for half in halves if half]
