"""Reads what a subscribe delivers next from the shard, and cuts it into intervals.

What is read is in memory at once, within the limit of peeks; what goes beyond the allowance is
dropped and read again, so that a slow client keeps no memory of the replica.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.compute.parameters import ComputeParameters
from streams.compute.subscribe_session import ReadChanges
from streams.compute.subscribes import (
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
)
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import Timestamp
from streams.plan.physical import Dataflow
from streams.progress import EMPTY, END, Antichain, Interval, end_of, frontier
from streams.replica.peeks.evaluation import import_types, made_of, plan_with
from streams.replica.peeks.passing_failures import may_pass
from streams.replica.peeks.shard_read import PeekSelection
from streams.storage.client.shards import Shards
from streams.storage.read.reader import changes, snapshot
from streams.storage.read.soundness import first_error, present_errors
from streams.trace.columns import Ints, int64
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import advance, consolidate, flatten


def deliveries(
    shards: Shards, read: ReadChanges, kernel: Kernel, parameters: ComputeParameters
) -> list[SubscribeOutcome]:
    """Return contiguous intervals from the lower of a read on, and what kept it from more.

    The shard is complete beyond the lower. What cannot be read is an error, unless a retry may
    heal it.
    """
    delivered: list[SubscribeOutcome] = []
    lower, total = read.lower, 0
    try:
        for batch in _batches(shards, read, kernel, parameters):
            if total >= read.allowance:
                return delivered
            delivered.append(batch)
            lower, total = end_of(batch.upper), total + len(batch.updates)
    except SlackwaterError as failure:
        ended = SubscribeInterrupted if may_pass(failure) else SubscribeError
        delivered.append(ended(lower, str(failure)))
    return delivered


class CollectionInError(InvalidUsage):
    """The text of an error of the collection, or of an expression over a row of it."""


def _batches(
    shards: Shards, read: ReadChanges, kernel: Kernel, parameters: ComputeParameters
) -> Iterator[SubscribeBatch]:
    """Yield contiguous intervals. Errors: CollectionInError behind all that come before it."""
    subscribe, lower = read.subscribe, read.lower
    dataflow = plan_with(subscribe.plan, subscribe.project)
    held, errors, reached = _read(shards, read, dataflow, kernel, parameters.max_read_bytes)
    interval = Interval(lower, end_of(reached), as_of=read.is_snapshot)
    computed = made_of(dataflow, held, interval, kernel)
    wrong = errors if computed.errors is None else pa.concat_tables([errors, computed.errors])
    failed_at = first_error(wrong)
    schema = arrow_schema(dataflow.types[-1])
    rows = consolidate(
        flatten([] if computed.output is None else [computed.output], schema), kernel
    )
    if failed_at is not None:
        rows = rows.filter(pc.less(rows.column("time"), failed_at))
        reached = frontier(failed_at)
    shown = _shown(rows, subscribe.project)
    if failed_at != lower:
        yield from _cut(shown, lower, reached, parameters.max_result_bytes)
    if failed_at is not None:
        present = present_errors(wrong, failed_at)
        raise CollectionInError(present.column("error")[0].as_py())


def _read(
    shards: Shards, read: ReadChanges, dataflow: Dataflow, kernel: Kernel, most_bytes: int
) -> tuple[pa.RecordBatch, pa.Table, Antichain]:
    """Return updates, errors, and the frontier up to which they are complete."""
    subscribe, lower = read.subscribe, read.lower
    types = import_types(dataflow)
    selection = PeekSelection((), None, types, kernel, most_bytes)
    until = END if subscribe.until is None else subscribe.until
    schema = arrow_schema(types)
    if read.is_snapshot:
        updates, errors = snapshot(shards, subscribe.collection, lower, selection=selection)
        upper = Timestamp(lower + 1)
        held = consolidate(advance(flatten([updates], schema), lower), kernel)
        return held, errors, EMPTY if upper >= until else frontier(upper)
    state = shards.state(subscribe.collection)
    news = changes(shards, state, lower, until=until, selection=selection)
    reached = EMPTY if news.upper >= until else news.reached
    return flatten([news.updates], schema), news.errors, reached


def _shown(rows: pa.RecordBatch, project: tuple[int, ...]) -> pa.RecordBatch:
    """Return the projected columns as c0 .. cn with time and diff, in the order of times."""
    order = pc.sort_indices(rows.column("time"))
    columns = [rows.column(position) for position in project]
    names = [f"c{number}" for number in range(len(project))]
    batch = pa.RecordBatch.from_arrays(
        [*columns, rows.column("time"), rows.column("diff")], names=[*names, "time", "diff"]
    )
    return batch.take(order)


def _cut(
    rows: pa.RecordBatch, lower: Timestamp, reached: Antichain, most_bytes: int
) -> Iterator[SubscribeBatch]:
    """Yield the rows in intervals of at most so many bytes, up to `reached`."""
    times = int64(rows.column("time"))
    for first, end, updates in _pieces(rows, times, (0, len(times)), most_bytes):
        is_last = end == len(times)
        upper = reached if is_last else frontier(int(times[end]))
        yield SubscribeBatch(lower, upper, end - first, updates)
        if not is_last:
            lower = upper.time


def _pieces(
    rows: pa.RecordBatch, times: Ints, within: tuple[int, int], most_bytes: int
) -> Iterator[tuple[int, int, bytes]]:
    """Yield encoded runs of rows; a time is never divided. Errors: InvalidUsage."""
    first, end = within
    encoded = _encoded(rows.slice(first, end - first))
    if len(encoded) <= most_bytes or first == end:
        yield first, end, encoded
        return
    time = times[(first + end) // 2]
    middle = int(np.searchsorted(times[first:end], time, "left")) + first
    if middle == first:
        middle = int(np.searchsorted(times[first:end], time, "right")) + first
    if middle == end:
        raise InvalidUsage(
            f"expected updates of at most {most_bytes} bytes at {time}, actual {len(encoded)}"
        )
    yield from _pieces(rows, times, (first, middle), most_bytes)
    yield from _pieces(rows, times, (middle, end), most_bytes)


def _encoded(rows: pa.RecordBatch) -> bytes:
    if not rows.num_rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
