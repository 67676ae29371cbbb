"""The rounds of a micro-batch, as functions that Spark runs in its workers.

    start_round    round 0, in the source's `read`: load, run level 0, split by bucket
    advance_round  round k, in `mapInArrow`: advance every dataflow that has something to do in
                   this bucket in round k; everything else passes through

A dataflow's level k is round `base + k`. Its output is the input of fused dataflows in the task
and round that produced it: level 0 works on any part of the updates.

These are module-level functions, given to Spark as `functools.partial`: a closure is pickled
by value with the globals it touches, and finds every cache empty in every task.

An exception of a dataflow affects only that dataflow: it goes to the driver as a message and
the others continue. Only if Kafka cannot be reached does the task itself fail, so that Spark
retries it. Tasks may run twice or partially: they write under fresh names, and only files and
chunks that a finished task reports are used.
"""

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

import pyarrow as pa

from streams.compute.event_time import Seen
from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId
from streams.operators import emit_on_close, engine
from streams.operators.engine import Context, EngineOutput
from streams.operators.linear import Computed
from streams.operators.node_meter import MeteredNode, NodeMeter
from streams.operators.rounds import inbox, scheduled_levels
from streams.plan.physical import Dataflow, NodeId
from streams.replica.ingest.event_times import NOTHING, together
from streams.replica.ingest.refusals import Undecodable
from streams.replica.tasks import (
    common_subexpressions,
    load_inputs,
    report,
    worker,
    write_chunks,
)
from streams.replica.tasks.common_subexpressions import SharedExpressions
from streams.replica.tasks.descriptor import Descriptor, Load, Runs, Share, Undo
from streams.replica.tasks.exchange_blobs import (
    Head,
    Kind,
    Message,
    blobs,
    pack,
    pack_packet,
    rows,
    unpack,
)
from streams.replica.tasks.load_inputs import Loader
from streams.replica.tasks.memory import released
from streams.trace.arrange.runs import file_of
from streams.trace.kernel.kernel import arrow_schema
from streams.trace.updates import flatten

log = logging.getLogger(__name__)

Loads = Mapping[CollectionId, Sequence[Load]]
"""The loads of a task, by dataflow."""


@dataclass(slots=True)
class DataflowResult:
    """The result of one dataflow in one task, before its output is written."""

    share: Share
    types: tuple[str, ...]
    level: int
    bucket: int
    emitted: EngineOutput
    runs: Runs | None
    rows_in: int
    milliseconds: float
    letters: pa.Table | None = None
    """A source's dead letters."""
    seen: Seen = NOTHING
    nodes: Mapping[NodeId, MeteredNode] = field(default_factory=dict)
    """The work of its operators."""
    runs_read: int = 0
    runs_brought: int = 0


@dataclass(slots=True)
class Task:
    """A running task: the results of its dataflows, and the blobs to send on."""

    place: str = field(repr=False)
    batch: Descriptor
    context: Context
    sharing: SharedExpressions
    done: list[DataflowResult] = field(default_factory=list)
    out: list[tuple[int, bytes]] = field(default_factory=list)
    handed: dict[CollectionId, pa.Table] = field(default_factory=dict)
    """Output of dataflows in this task for others that await it."""
    run_files: list[str] = field(default_factory=list)
    """Those that this task has begun to write."""

    @staticmethod
    def of(place: str, batch: Descriptor, loads: Loads = MappingProxyType({})) -> "Task":
        """Return a new task."""
        run_files: list[str] = []

        def new_name() -> str:
            run_files.append(worker.new_run_name())
            return run_files[-1]

        context = worker.context(place).of_task(batch.merge_factor)
        readers = common_subexpressions.readers(batch.shares, loads)
        means = SharedExpressions(context.kernel, readers, partial(worker.wanted, place))
        context = replace(context, new_name=new_name)
        return Task(place, batch, context, means, run_files=run_files)

    def attempt(self, dataflow: CollectionId, work: Callable[[], DataflowResult]) -> None:
        """Run a dataflow's work; any exception becomes that dataflow's failure."""
        try:
            self.done.append(work())
        except (Determinate, Indeterminate):
            raise
        except Undecodable as message:  # its text has what users sent: no trace around it
            self.say(0, self.head("failure", dataflow, 0, body=str(message)))
        except Exception as cause:  # a plan may fail in any way; others continue
            log.debug("a dataflow failed", extra={"dataflow": dataflow}, exc_info=True)
            text = "".join(traceback.format_exception(cause, limit=-3))
            self.say(0, self.head("failure", dataflow, 0, body=text))

    def head(
        self, kind: Kind, dataflow: CollectionId, bucket: int, level: int = 0, body: str = ""
    ) -> Head:
        """Return the head of a message without updates."""
        return Head(
            kind=kind, step=self.batch.step, dataflow=dataflow,
            bucket=bucket, level=level, body=body,
        )  # fmt: skip

    def say(self, bucket: int, head: Head) -> None:
        """Send a message without updates."""
        self.out.append((bucket, pack(head)))

    def chain(self) -> None:
        """Start the fused dataflows of this task, each after its imports."""
        for share in self.batch.shares.values():
            handed = [done for done in self.done if done.share.dataflow in share.in_hand]
            if handed:
                self.attempt(share.dataflow, partial(_take, self, share, handed))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Write every output, report, and return all blobs to Spark."""
        self.chain()
        outputs = [
            write_chunks.encode(done.emitted, done.share.output, done.types)
            for done in self.done
        ]
        letters = [
            None
            if done.letters is None
            else write_chunks.encode_rows(done.letters, done.share.letters)
            for done in self.done
        ]
        wanted = [*outputs, *letters]
        if any(wanted):
            self.batch.crash("before-chunks")
        refs = write_chunks.write(worker.chunks(self.batch.clients), wanted)
        if self.run_files:
            worker.keep(self.place, self._named() & frozenset(self.run_files))
        written = zip(refs[: len(outputs)], refs[len(outputs) :], strict=True)
        for done, (chunks, of_letters) in zip(self.done, written, strict=True):
            self._send(done)
            text = report.dumps(
                report.Report(
                    level=done.level,
                    bucket=done.bucket,
                    runs=done.runs,
                    chunks=chunks,
                    rows_in=done.rows_in,
                    milliseconds=done.milliseconds,
                    letters=of_letters,
                    seen=done.seen,
                    nodes=done.nodes,
                    runs_read=done.runs_read,
                    runs_brought=done.runs_brought,
                )
            )
            self.say(
                done.bucket, self.head("report", done.share.dataflow, done.bucket, body=text)
            )
        return rows(self.out)

    def _named(self) -> frozenset[str]:
        """The run files of the new state."""
        return frozenset(
            file_of(str(name))
            for done in self.done
            for runs in (done.runs or {}).values()
            for name, *_ in runs
        )

    def _send(self, done: DataflowResult) -> None:
        for packet in done.emitted.packets:
            share = done.share
            blob = pack_packet(packet, self.batch.step, share.dataflow, share.base)
            self.out.append((packet.bucket, blob))


def start_round(place: str, step: str, index: int) -> Iterator[pa.RecordBatch]:
    """Run round 0: this task's loads, through level 0 of their dataflows."""
    return released(_start_round(place, step, index))


def _start_round(place: str, step: str, index: int) -> Iterator[pa.RecordBatch]:
    batch = worker.micro_batch(place, step)
    loads = load_inputs.by_dataflow(batch.tasks[index])
    task = Task.of(place, batch, loads)
    loader = Loader(worker.chunks(batch.clients), worker.resources(batch.clients, place))
    for dataflow, share in batch.shares.items():
        # a birth over empty imports still has its constants
        if dataflow in loads or (share.interval.as_of and index == 0):
            mine = loads.get(dataflow, ())
            task.attempt(dataflow, partial(_start, task, share, mine, loader, index))
        if index == 0:
            _wake(task, share)
    yield from task.finish()


def timed_start_round(place: str, step: str, index: int) -> Iterator[pa.RecordBatch]:
    """Run round 0 of a lane with a watermark: its rows carry what it may follow.

    There is a row even if there is no work: it goes through all rounds, and is no dataflow's.
    """
    batch = worker.micro_batch(place, step)
    unclaimed = Head(kind="wake", step=step, dataflow=CollectionId(""), bucket=0, level=-1)
    micros = None if batch.candidate_ms is None else batch.candidate_ms * 1_000
    for packed in chain(start_round(place, step, index), rows([(0, pack(unclaimed))])):
        times = pa.repeat(pa.scalar(micros, pa.int64()), packed.num_rows)
        yield packed.append_column("event_time", times.cast(pa.timestamp("us", tz="UTC")))


def _wake(task: Task, share: Share) -> None:
    """Wake buckets that may have no input: at a birth all, else those with due updates."""
    plan = worker.plan(task.place, share.plan)
    for bucket in range(task.batch.buckets):
        runs = share.runs.get(bucket, {})
        for level in scheduled_levels(plan, runs, share.interval):
            head = task.head("wake", share.dataflow, bucket, share.base + level)
            task.say(bucket, head)


def _start(
    task: Task, share: Share, loads: Sequence[Load], loader: Loader, index: int
) -> DataflowResult:
    began = time.perf_counter()
    plan = worker.plan(task.place, share.plan)
    tables: dict[int, pa.Table] = {}
    computed: dict[int, Computed] = {}
    undone: list[pa.Table] = []
    errors: list[pa.Table] = []
    letters: list[pa.Table] = []
    seen: list[Seen] = []
    for load in loads:
        loaded = loader.load(load)
        updates, failed = loaded.updates, loaded.errors
        if isinstance(load, Undo):
            undone.append(updates)
        else:
            number = load_inputs.index_of(load)
            if number in tables:  # messages that a source reads for several reasons
                updates = pa.concat_tables([tables[number], updates])
            tables[number] = updates
            what = plan.imports[number]
            origin = common_subexpressions.origin_of(load)
            computed[number] = task.sharing.of(origin, what, updates)
        if failed.num_rows:
            errors.append(failed)
        if loaded.letters.num_rows:
            letters.append(loaded.letters)
        seen.append(loaded.seen)
    interval, meter = share.interval, NodeMeter()
    context = meter.on(task.context)
    emitted = engine.start(
        plan, tables, interval, task.batch.buckets, context, computed=computed
    )
    emitted = _with(emitted, undone, errors, plan)
    read = sum(table.num_rows for table in tables.values())
    done = DataflowResult(
        share, plan.types[-1], 0, index, emitted, None, read, _since_ms(began)
    )
    done.letters = pa.concat_tables(letters) if letters else None
    done.seen, done.nodes = together(seen), meter.nodes
    return done


def advance_round(
    round_: int, place: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run round `round_` on everything that came to one bucket."""
    return released(_advance_round(round_, place, batches))


def _advance_round(
    round_: int, place: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    mine: dict[CollectionId, list[Message]] = {}
    passed: list[tuple[int, bytes]] = []
    for bucket, blob in blobs(batches):
        message = unpack(blob)
        head = message.head
        if head.kind in {"update", "wake"} and head.level == round_:
            mine.setdefault(head.dataflow, []).append(message)
        else:
            passed.append((bucket, blob.to_pybytes()))
    if not mine:
        yield from rows(passed)
        return
    first = next(iter(mine.values()))[0].head
    task = Task.of(place, worker.micro_batch(place, first.step))
    task.out += passed
    for dataflow, messages in mine.items():
        task.attempt(dataflow, partial(_advance, task, round_, dataflow, messages))
    task.batch.crash("after-state")
    yield from task.finish()


def _take(task: Task, share: Share, handed: Sequence[DataflowResult]) -> DataflowResult:
    """Run level 0 over the output of others in this task, each perhaps in several parts."""
    began = time.perf_counter()
    plan, bucket = worker.plan(task.place, share.plan), handed[0].bucket
    tables: dict[int, pa.Table] = {}
    computed: dict[int, Computed] = {}
    for collection in dict.fromkeys(done.share.dataflow for done in handed):
        index, updates = share.in_hand[collection], _handed(task, collection, handed)
        tables[index] = updates
        computed[index] = task.sharing.of(collection, plan.imports[index], updates)
    meter = NodeMeter()
    context = meter.on(task.context)
    emitted = engine.start(
        plan, tables, share.interval, task.batch.buckets, context, computed=computed
    )
    errors = [error for done in handed for error in _some(done.emitted.errors)]
    emitted = _with(emitted, (), errors, plan)
    read = sum(table.num_rows for table in tables.values())
    return DataflowResult(
        share,
        plan.types[-1],
        0,
        bucket,
        emitted,
        None,
        read,
        _since_ms(began),
        nodes=meter.nodes,
    )


def _handed(task: Task, collection: CollectionId, handed: Sequence[DataflowResult]) -> pa.Table:
    """Return all output of a dataflow in this task, concatenated once for all its readers."""
    if collection not in task.handed:
        mine = [done for done in handed if done.share.dataflow == collection]
        parts = [part for done in mine for part in _some(done.emitted.output)]
        whole = flatten(parts, arrow_schema(mine[0].types))
        task.handed[collection] = pa.Table.from_batches([whole])
    return task.handed[collection]


def _some(table: pa.Table | None) -> list[pa.Table]:
    return [] if table is None else [table]


def _advance(
    task: Task, round_: int, dataflow: CollectionId, messages: Sequence[Message]
) -> DataflowResult:
    began = time.perf_counter()
    share = task.batch.shares[dataflow]
    level = round_ - share.base
    plan = worker.plan(task.place, share.plan)
    bucket = messages[0].head.bucket
    updates = (message for message in messages if message.head.kind == "update")
    packets = [message.packet(share.base) for message in updates]
    meter, cache = NodeMeter(), task.context.cache
    before = cache.read, cache.brought
    emitted, runs = engine.advance(
        plan,
        level,
        bucket,
        inbox(packets),
        share.runs.get(bucket, {}),
        share.interval,
        meter.on(task.context),
        buckets=task.batch.buckets,
    )
    read = sum(packet.table.num_rows for packet in packets)
    return DataflowResult(
        share,
        plan.types[-1],
        level,
        bucket,
        emitted,
        runs,
        read,
        _since_ms(began),
        nodes=meter.nodes,
        runs_read=cache.read - before[0],
        runs_brought=cache.brought - before[1],
    )


def _since_ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _with(
    emitted: EngineOutput,
    undone: Sequence[pa.Table],
    errors: Sequence[pa.Table],
    plan: Dataflow,
) -> EngineOutput:
    """Return the emitted updates, with those that go to the output unchanged."""
    if not undone and not errors:
        return emitted
    output, failed = emitted.output, emitted.errors
    if undone:
        own = [] if output is None else [output]
        schema = arrow_schema(plan.types[-1])
        output = pa.Table.from_batches([flatten([*own, *undone], schema)])
    if errors:
        failed = pa.concat_tables([*([] if failed is None else [failed]), *errors])
        failed = emit_on_close.lasting_errors(plan, failed)
    return EngineOutput(emitted.packets, output, failed)
