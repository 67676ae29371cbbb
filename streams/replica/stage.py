"""The rounds of a micro-batch, as functions that Spark runs in its workers.

    start_round    round 0, in the source's `read`: load, run level 0, split by bucket
    advance_round  round k, in `mapInArrow`: advance every dataflow that has something to do in
                   this bucket at level k; everything else passes through

These are module-level functions, given to Spark as `functools.partial`: a closure is pickled
by value with the globals it touches, and finds every cache empty in every task.

A dataflow that raises here fails alone: its failure goes to the driver as a message and the
others go on. Only when Kafka cannot be reached is the task itself failed, for Spark to retry.
Tasks may run twice or half: what they write has fresh names, and only what the driver learns of
from the task that finished is ever used.
"""

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId
from streams.operators import engine
from streams.operators.engine import Context, Emitted, Interval
from streams.operators.linear import Computed
from streams.replica import loading, report, worker, writing
from streams.replica.descriptor import Descriptor, Load, Runs, Share, Undo
from streams.replica.loading import Loader, Sharing
from streams.replica.packed import Head, Kind, Message, blobs, pack, rows, unpack
from streams.trace.kernel import arrow_schema
from streams.trace.updates import flatten

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Done:
    """What came of one dataflow in one task, before its output is written."""

    share: Share
    types: tuple[str, ...]
    level: int
    bucket: int
    emitted: Emitted
    runs: Runs | None
    rows_in: int
    milliseconds: float


@dataclass(slots=True)
class Task:
    """A task at work: what its dataflows came to, and the blobs that go on."""

    state: str
    batch: Descriptor
    context: Context
    done: list[Done] = field(default_factory=list)
    out: list[tuple[int, bytes]] = field(default_factory=list)

    def attempt(self, dataflow: CollectionId, work: Callable[[], Done]) -> None:
        """Do a dataflow's work; whatever it raises is that dataflow's failure alone."""
        try:
            self.done.append(work())
        except (Determinate, Indeterminate):
            raise
        except Exception as cause:  # a plan may fail in any way; others go on
            log.debug("a dataflow failed", extra={"dataflow": dataflow}, exc_info=True)
            text = "".join(traceback.format_exception(cause, limit=-3))
            self.say(0, self.head("failure", dataflow, 0, body=text))

    def head(
        self, kind: Kind, dataflow: CollectionId, bucket: int, level: int = 0, body: str = ""
    ) -> Head:
        """The head of a message without updates."""
        return Head(
            kind=kind, step=self.batch.step, dataflow=dataflow,
            bucket=bucket, level=level, body=body,
        )  # fmt: skip

    def say(self, bucket: int, head: Head) -> None:
        """Send a message without updates on."""
        self.out.append((bucket, pack(head)))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Write every output, report, and give Spark all blobs."""
        wanted = [
            (done.share.output, writing.bodies(done.emitted, done.share.output, done.types))
            for done in self.done
        ]
        if any(found for _, found in wanted):
            self.batch.crash("before-chunks")
        refs = writing.write(worker.chunks(self.batch.kafka), wanted)
        for done, written in zip(self.done, refs, strict=True):
            self._send(done)
            text = report.dumps(
                report.Report(
                    level=done.level,
                    bucket=done.bucket,
                    runs=done.runs,
                    chunks=written,
                    rows_in=done.rows_in,
                    milliseconds=done.milliseconds,
                )
            )
            self.say(
                done.bucket, self.head("report", done.share.dataflow, done.bucket, body=text)
            )
        return rows(self.out)

    def _send(self, done: Done) -> None:
        for packet in done.emitted.packets:
            head = Head(
                kind="update", step=self.batch.step, dataflow=done.share.dataflow,
                bucket=packet.bucket, level=packet.level, node=packet.node, port=packet.port,
            )  # fmt: skip
            self.out.append((packet.bucket, pack(head, packet.table)))


def start_round(state: str, step: str, index: int) -> Iterator[pa.RecordBatch]:
    """Round 0: this task's loads, through level 0 of their dataflows."""
    batch = worker.micro_batch(state, step)
    task = Task(state, batch, worker.context(state).of_task())
    loads = loading.by_dataflow(batch.tasks[index])
    loader = Loader(worker.chunks(batch.kafka), worker.resources(batch.kafka, state))
    sharing = _sharing(task, loads)
    for dataflow, share in batch.shares.items():
        # a birth over nothing still has its constants
        if dataflow in loads or (share.as_of and index == 0):
            mine = loads.get(dataflow, ())
            task.attempt(dataflow, partial(_start, task, share, mine, (loader, sharing), index))
        if share.as_of and index == 0:
            _wake(task, share)
    yield from task.finish()


def _wake(task: Task, share: Share) -> None:
    """Every bucket is advanced at a birth, at every level, though nothing may arrive."""
    plan = worker.plan(task.state, share.plan)
    for level in range(1, plan.depth + 1):
        for bucket in range(task.batch.buckets):
            task.say(bucket, task.head("wake", share.dataflow, bucket, level))


def _sharing(task: Task, loads: Mapping[CollectionId, Sequence[Load]]) -> Sharing:
    sharing = Sharing(task.context.kernel)
    for dataflow, mine in loads.items():
        # a plan that cannot be read is that dataflow's failure, when its turn comes
        with suppress(Exception):
            plan = worker.plan(task.state, task.batch.shares[dataflow].plan)
            for load in mine:
                sharing.expect(load, plan)
    return sharing


def _start(
    task: Task,
    share: Share,
    loads: Sequence[Load],
    means: tuple[Loader, Sharing],
    index: int,
) -> Done:
    began = time.perf_counter()
    plan, (loader, sharing) = worker.plan(task.state, share.plan), means
    tables: dict[int, pa.Table] = {}
    computed: dict[int, Computed] = {}
    undone: list[pa.Table] = []
    errors: list[pa.Table] = []
    for load in loads:
        updates, failed = loader.load(load)
        if isinstance(load, Undo):
            undone.append(updates)
        else:
            number = loading.index_of(load)
            tables[number] = updates
            computed[number] = sharing.of(load, plan, updates)
        if failed.num_rows:
            errors.append(failed)
    interval = _interval(share)
    emitted = engine.start(
        plan, tables, interval, task.batch.buckets, task.context, computed=computed
    )
    emitted = _with(emitted, undone, errors, plan.types[-1])
    read = sum(table.num_rows for table in tables.values())
    return Done(share, plan.types[-1], 0, index, emitted, None, read, _since_ms(began))


def advance_round(
    level: int, state: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Round `level`, over everything that came to one bucket."""
    mine: dict[CollectionId, list[Message]] = {}
    passed: list[tuple[int, bytes]] = []
    for bucket, blob in blobs(batches):
        message = unpack(blob)
        head = message.head
        if head.kind in {"update", "wake"} and head.level == level:
            mine.setdefault(head.dataflow, []).append(message)
        else:
            passed.append((bucket, blob.to_pybytes()))
    if not mine:
        yield from rows(passed)
        return
    first = next(iter(mine.values()))[0].head
    batch = worker.micro_batch(state, first.step)
    task = Task(state, batch, worker.context(state).of_task(), out=passed)
    for dataflow, messages in mine.items():
        task.attempt(dataflow, partial(_advance, task, level, dataflow, messages))
    yield from task.finish()


def _advance(
    task: Task, level: int, dataflow: CollectionId, messages: Sequence[Message]
) -> Done:
    began = time.perf_counter()
    share = task.batch.shares[dataflow]
    plan = worker.plan(task.state, share.plan)
    bucket = messages[0].head.bucket
    inbox: dict[tuple[int, str], list[pa.Table]] = {}
    for message in messages:
        if message.head.kind == "update":
            port = (message.head.node, message.head.port)
            inbox.setdefault(port, []).append(message.table.replace_schema_metadata())
    before = report.of_levels(plan, share.runs.get(bucket, {}), [level])
    emitted, after = engine.advance(
        plan,
        level,
        bucket,
        inbox,
        before,
        _interval(share),
        task.context,
        buckets=task.batch.buckets,
    )
    read = sum(table.num_rows for tables in inbox.values() for table in tables)
    runs = report.of_levels(plan, after, [level])
    return Done(share, plan.types[-1], level, bucket, emitted, runs, read, _since_ms(began))


def _interval(share: Share) -> Interval:
    return Interval(share.lower, share.upper, share.as_of)


def _since_ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def _with(
    emitted: Emitted,
    undone: Sequence[pa.Table],
    errors: Sequence[pa.Table],
    types: tuple[str, ...],
) -> Emitted:
    """What was emitted, and beside it what goes to the output as it came."""
    if not undone and not errors:
        return emitted
    output, failed = emitted.output, emitted.errors
    if undone:
        own = [] if output is None else [output]
        output = pa.Table.from_batches([flatten([*own, *undone], arrow_schema(types))])
    if errors:
        failed = pa.concat_tables([*([] if failed is None else [failed]), *errors])
    return Emitted(emitted.packets, output, failed)
