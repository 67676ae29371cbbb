"""Our side of the comparison: a view's stages over JSON lines, one process per bucket.

Each worker is what a Spark worker is to a replica: it decodes its share of the messages, runs
level 0 over it, sends packets to the buckets by a file for each exchange, and advances its own
bucket level by level over run files. All go through a micro-batch together, with a barrier for
each exchange. What is left out is Spark's and Kafka's part: scheduling, fetching and the write
of the output, which stays in memory here.

The clock runs from the first byte read to the last micro-batch's output. Starting processes,
compiling the view and its birth over nothing are outside. Phases are CPU seconds, for where
more runs than there are cores a wall clock says who was interrupted.
"""

import itertools
import multiprocessing as mp
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from streams.bench.nexmark.cases import CASES, Case
from streams.bench.nexmark.event_times import EventTimes, Greatest, milliseconds
from streams.errors import SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId
from streams.operators import engine
from streams.operators.context import Context, EngineOutput, Packet, RunsByOperator
from streams.operators.rounds import inbox, scheduled_levels
from streams.plan.compile import compile_view
from streams.plan.physical import Dataflow, NodeId
from streams.progress import Interval, interval_of
from streams.replica.ingest.decode import Decoder
from streams.replica.ingest.template import between
from streams.replica.tasks.exchange_blobs import pack_packet, unpack
from streams.trace import updates as trace
from streams.trace.kernel.kernel import Kernel, arrow_schema

Phases = dict[str, float]
T = TypeVar("T")

NEWLINE = ord("\n")
BLOCK_BYTES = 1 << 20
PATIENCE_S = 900


class WorkerFailed(SlackwaterError):
    """A worker of the benchmark ended without an answer."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The cost of a run: wall clock, CPU of all workers, and CPU by phase.

    `waited` is the most that a worker waited for others, by the clock.
    """

    seconds: float
    cpu_seconds: float
    updates: int
    phases: Mapping[str, float]
    waited: float

    @property
    def dominated(self) -> tuple[str, float]:
        """The phase that takes the most, and its share."""
        phase = max(self.phases, key=lambda phase: self.phases[phase])
        return phase, self.phases[phase] / max(self.cpu_seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Task:
    """Arguments of a worker. `batches` is in how many micro-batches the events are cut."""

    case: str
    inputs: Path
    directory: Path
    batches: int
    workers: int


def run(task: Task) -> Ran:
    """Maintain the case's view; its contents at the end are left for `contents`.

    Errors: WorkerFailed.
    """
    spawn = mp.get_context("spawn")
    barrier = spawn.Barrier(task.workers)
    greatest = spawn.Array("q", task.workers)
    answers = spawn.SimpleQueue()
    started = [
        spawn.Process(
            target=_main, args=(task, number, barrier, greatest, answers), daemon=True
        )
        for number in range(task.workers)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(PATIENCE_S)
    if any(process.exitcode != 0 for process in started):
        for process in started:
            process.kill()
        raise WorkerFailed(f'workers of "{task.case}" failed; what they said is above')
    reports = [answers.get() for _ in started]
    names = dict.fromkeys(name for report in reports for name in report.phases)
    return Ran(
        max(report.seconds for report in reports),
        sum(report.cpu_seconds for report in reports),
        sum(report.updates for report in reports),
        {name: sum(report.phases.get(name, 0.0) for report in reports) for name in names},
        max(report.waited for report in reports),
    )


def contents(task: Task) -> pa.Table:
    """The rows c0 .. cn of the view after `run`, with `diff`, their multiplicity."""
    files = [task.directory / f"result{number}.arrow" for number in range(task.workers)]
    return pa.concat_tables(
        pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in files
    )


def _main(
    task: Task,
    number: int,
    barrier: Barrier,
    greatest: Greatest,
    answers: "mp.SimpleQueue[Ran]",
) -> None:
    try:
        worker = Worker(task, number, barrier, greatest)
        worker.step(interval_of(0, 1, as_of=True), {})
        worker.phases.clear()
        worker.waited = 0.0
        barrier.wait(PATIENCE_S)
        began, cpu = time.perf_counter(), time.process_time()
        for at in range(1, task.batches + 1):
            worker.step(*worker.taken(at))
        barrier.wait(PATIENCE_S)
        taken, cpu = time.perf_counter() - began, time.process_time() - cpu
        worker.phases["rest"] = cpu - sum(worker.phases.values())
        answers.put(Ran(taken, cpu, worker.write(), dict(worker.phases), worker.waited))
    except BaseException:
        barrier.abort()
        raise


class Worker:
    """One process: its share of the messages, its bucket's runs, and what was put out."""

    def __init__(self, task: Task, number: int, barrier: Barrier, greatest: Greatest) -> None:
        self.task, self.number, self.barrier = task, number, barrier
        self.case: Case = CASES[task.case]
        self.plan: Dataflow = compile_view(
            self.case.view, self.case.catalog, born=MINIMUM_TIME
        ).dataflow
        names = map(f"w{number}-{{:06d}}".format, itertools.count())
        self.kernel = Kernel()
        self.kernel.open()  # a worker opens it once: it is not timed
        self.context = Context(task.directory, self.kernel, names.__next__, watch=self._watch)
        self.decoders = {
            kind: Decoder(self.case.columns(kind), self.kernel) for kind in self.case.reads
        }
        files = {kind: task.inputs / kind / f"{number}.json" for kind in self.case.reads}
        self.shares = {kind: Lines(file) for kind, file in files.items()}
        self.runs: RunsByOperator = {}
        self.output: list[pa.Table] = []
        self.phases: Phases = defaultdict(float)
        self.waited = 0.0
        self.exchanges = itertools.count()
        self.upper = MINIMUM_TIME
        self.event_times = EventTimes(number, greatest, self._meet)

    def step(self, interval: Interval, imports: Mapping[int, pa.Table]) -> None:
        """A micro-batch: level 0 over this share, then this bucket's levels, all in step."""
        before, self.upper = self.runs, interval.upper
        waiting: dict[int, list[Packet]] = defaultdict(list)
        emitted = engine.start(self.plan, imports, interval, self.task.workers, self.context)
        for level in range(1, self.plan.depth + 1):
            for packet in self._exchanged(emitted):
                waiting[packet.level].append(packet)
            packets = waiting.pop(level, [])
            emitted = self._advance(level, packets, interval, before)
        self._keep(emitted)

    def _advance(
        self, level: int, packets: Sequence[Packet], interval: Interval, before: RunsByOperator
    ) -> EngineOutput:
        if not packets and level not in scheduled_levels(self.plan, before, interval):
            return EngineOutput((), None, None)
        context = self.context.of_task()
        emitted, after = engine.advance(
            self.plan, level, self.number, inbox(packets), before, interval, context,
            buckets=self.task.workers,
        )  # fmt: skip
        self.runs = {**self.runs, **after}
        return emitted

    def _keep(self, emitted: EngineOutput) -> None:
        if emitted.errors is not None:
            raise WorkerFailed(
                f"expected no errors, actual {emitted.errors.slice(0, 3).to_pylist()}"
            )
        if emitted.output is not None:
            self.output.append(emitted.output)

    def _exchanged(self, emitted: EngineOutput) -> list[Packet]:
        """The packets for this bucket from all workers, once all have sent."""
        self._keep(emitted)
        exchange, others = next(self.exchanges), set(range(self.task.workers)) - {self.number}
        for other in others:
            packets = [packet for packet in emitted.packets if packet.bucket == other]
            file = self._file(exchange, self.number, other)
            self._timed("exchange", partial(_send, file, packets))
        self._meet()
        own_packets = [packet for packet in emitted.packets if packet.bucket == self.number]
        for other in others:
            file = self._file(exchange, other, self.number)
            own_packets += self._timed("exchange", partial(_receive, file))
        return own_packets

    def _meet(self) -> None:
        """Wait for the other workers."""
        began = time.perf_counter()
        self.barrier.wait(PATIENCE_S)
        self.waited += time.perf_counter() - began

    def _file(self, exchange: int, sender: int, receiver: int) -> Path:
        return self.task.directory / f"x{exchange}-{sender}-{receiver}"

    def taken(self, at: int) -> tuple[Interval, dict[int, pa.Table]]:
        """The interval of a micro-batch, and the updates in it by import."""
        tables = self.decode(at)
        if not self.case.closes:
            return interval_of(at, at + 1), tables
        ((index, rows),) = tables.items()
        due = partial(self.event_times.due, rows, is_last=at == self.task.batches)
        interval, rows = self._timed("pending", due)
        return interval, {index: rows}

    def decode(self, at: int) -> dict[int, pa.Table]:
        """The updates of the micro-batch at a time, or at their event times, by import."""
        tables: dict[int, pa.Table] = {}
        for index, imported in enumerate(self.plan.imports):
            kind = str(imported.collection)
            part = partial(self.shares[kind].part, self.task.batches - at + 1)
            texts = self._timed("read", part)
            decode = partial(self.decoders[kind].decode, texts)
            decoded = self._timed("decode", decode)
            assert decoded.reasons.null_count == len(decoded.reasons)
            place = {
                column.name: number for number, column in enumerate(self.case.columns(kind))
            }
            columns = [
                decoded.columns.column(place[column.name]) for column in imported.columns
            ]
            count = decoded.columns.num_rows
            times = np.full(count, at)
            if self.case.closes:
                times = milliseconds(decoded.columns.column(place["dateTime"]))
            columns += [pa.array(times), pa.array(np.ones(count, np.int64))]
            tables[index] = pa.table(
                columns, schema=arrow_schema([c.type for c in imported.columns])
            )
        return tables

    def write(self) -> int:
        """Leave the contents that the output adds up to; the number of its updates."""
        schema = arrow_schema(self.plan.types[-1])
        rows = trace.contents_at(
            trace.flatten(self.output, schema), self.upper - 1, self.kernel
        )
        rows = rows.drop_columns(["time"])
        with pa.ipc.new_file(
            str(self.task.directory / f"result{self.number}.arrow"), rows.schema
        ) as to:
            to.write_batch(rows)
        return sum(batch.num_rows for batch in self.output)

    def _timed(self, phase: str, work: Callable[[], T]) -> T:
        with self._phase(phase):
            return work()

    def _watch(self, node: NodeId) -> AbstractContextManager[None]:
        return self._phase(type(self.plan.nodes[node]).__name__)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Add the CPU seconds of the block to a phase."""
        began = time.process_time()
        try:
            yield
        finally:
            self.phases[name] += time.process_time() - began


class Lines:
    """The lines of a file, without their ends, some at a time."""

    def __init__(self, file: Path) -> None:
        self._file, self._at, self._rest = file, 0, b""

    def part(self, parts: int) -> pa.ChunkedArray:
        """One of so many equal parts of what is left; the next has a line that is cut."""
        buffers = []
        goal = self._at + (self._file.stat().st_size - self._at) // parts
        with self._file.open("rb") as source:
            source.seek(self._at)
            # Blocks that a cache holds: each is taken apart while it is at hand.
            while block := source.read(min(goal - self._at, BLOCK_BYTES)):
                self._at += len(block)
                whole = self._rest + block
                ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == NEWLINE)
                begins = np.concatenate(([0], ends + 1))
                self._rest = whole[begins[-1] :]
                if len(ends):
                    buffers.append(between(pa.py_buffer(whole), begins[:-1], ends))
        assert parts > 1 or not self._rest, "a file of lines ends with one"
        return pa.chunked_array(buffers, pa.binary())


def _send(file: Path, packets: Sequence[Packet]) -> None:
    with file.open("wb") as to:
        for packet in packets:
            blob = pack_packet(packet, "", CollectionId("view"))
            to.write(len(blob).to_bytes(8, "little"))
            to.write(blob)


def _receive(file: Path) -> list[Packet]:
    packets, data = [], pa.py_buffer(file.read_bytes())
    at = 0
    while at < data.size:
        size = int.from_bytes(data.slice(at, 8).to_pybytes(), "little")
        packets.append(unpack(data.slice(at + 8, size)).packet())
        at += 8 + size
    file.unlink()
    return packets
