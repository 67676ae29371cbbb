"""Reads a shard's contents and changes directly from its topics, for display.

What is read is what the shard holds: rows with their multiplicities, negative ones and error
rows included, where a SELECT would refuse. The columns are the shard's, then
`slackwater_error`, which is null in a row of contents; in an error row all others are null.

No capability is taken. A read is exact all the same, or refused: since is looked at in the very
state whose chunks are read.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from streams.adapter.results import Columns, Complete, Notice, Progress, Result
from streams.adapter.row_encoding import rows
from streams.adapter.timestamp_selection import freshest
from streams.app.error_output import Refused
from streams.app.shard.shard_info import described
from streams.app.signals import Stop
from streams.compute.as_of import ReadableInterval
from streams.errors import Determinate
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.kafka.log import Truncated
from streams.plan.physical import Column
from streams.progress import END, frontier
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import (
    SinceViolation,
    advance_times,
    changes,
    check_readable,
    end,
    is_complete,
    load_stable,
)
from streams.storage.read.soundness import present_errors, sum_diffs
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, contents_at, flatten

BEAT_MS = 1000
LOOK_MS = 100
TIME = Column("slackwater_time", "BIGINT")
DIFF = Column("slackwater_diff", "BIGINT")
ERROR = Column("slackwater_error", "VARCHAR")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one shard of an open group."""

    shards: Shards
    id: CollectionId
    kernel: Kernel
    stopping: Stop = field(default_factory=Stop)

    def read(self, as_of: Timestamp | None, wait_ms: int = 0) -> Iterator[Result]:
        """The contents at a time, the latest complete one if none is named.

        Waits so long for the time to be complete. Errors: Refused; Corrupt, Determinate;
        Stopped when it is asked to.
        """
        columns = self._columns()
        time = self._time(as_of)
        if not self._is_complete_within(time, wait_ms):
            raise incomplete(self._state(), time)
        yield Columns((DIFF, *columns, ERROR))
        table = self._contents(time, columns)
        yield from rows(table.drop_columns(["time"]), _types(DIFF, columns), self.kernel)
        yield Complete(f"READ {table.num_rows}", {"as_of": time})

    def tail(
        self, as_of: Timestamp | None, until: Timestamp | None, *, snapshot: bool
    ) -> Iterator[Result]:
        """The contents at a time and then every change, without end or until the time `until`.

        Each interval is followed by a progress. Without `snapshot` the changes alone. Ends when
        the shard is sealed. Goes on when brokers were away for a while. Errors: as `read`;
        Refused too when compaction overtakes us.
        """
        columns = self._columns()
        time = self._time(as_of)
        yield Columns((TIME, DIFF, *columns, ERROR))
        types = [TIME.type, *_types(DIFF, columns)]
        if snapshot:
            yield from self._until_complete(time)
            yield from rows(self._contents(time, columns), types, self.kernel)
            yield Progress(frontier(time + 1))
        yield from self._follow(Timestamp(time + 1), until, columns)
        yield Complete("TAIL")

    def _follow(
        self, lower: Timestamp, until: Timestamp | None, columns: Sequence[Column]
    ) -> Iterator[Result]:
        types = [TIME.type, *_types(DIFF, columns)]
        while until is None or lower < until:
            yield from self._until_complete(lower)
            bound = END if until is None else until
            try:
                news = changes(self.shards, self._state(), lower, until=bound, may_hold=False)
            except SinceViolation as passed:
                raise compacted(passed) from passed
            except Truncated:
                raise
            except Determinate as failure:
                yield Notice(f"{failure}; retrying")
                self.stopping.wait(BEAT_MS / 1000)
                self.stopping.check()
                continue
            changed = self._changes(news.updates, news.errors, columns)
            yield from rows(changed, types, self.kernel)
            yield Progress(news.reached)
            if news.reached.is_empty:
                return
            lower = news.upper

    def _columns(self) -> tuple[Column, ...]:
        description = described(self._state())
        if description is None:
            raise Refused(
                f"shard {self.id} cannot be read: its description is not valid",
                self._state().description,
            )
        return tuple(Column(*column) for column in description.columns)

    def _state(self) -> CollectionState:
        """The shard. Errors: Refused when it was dropped."""
        state = self.shards.state(self.id)
        if state.is_dropped:
            raise dropped(self.id)
        return state

    def _time(self, as_of: Timestamp | None) -> Timestamp:
        """When to read, now or once it is complete. Errors: Refused."""
        if as_of is not None:
            return self._readable(as_of)
        state = self._state()
        return freshest((ReadableInterval(self.id, state.since, state.upper),))

    def _readable(self, time: Timestamp) -> Timestamp:
        """The time itself. Errors: Refused when since has passed it."""
        try:
            check_readable(self._state(), time)
        except SinceViolation as passed:
            raise compacted(passed) from passed
        return time

    def _until_complete(self, time: Timestamp) -> Iterator[Result]:
        """Beats until the updates at `time` are all there; says when no broker answers."""
        was_silent = False
        while not self._is_complete_within(time, BEAT_MS):
            status = self.shards.status()
            if bool(status.silent_ms) != was_silent:
                was_silent = not was_silent
                yield Notice(str(status))
            yield Progress(frontier(min(end(self._state()), time)))

    def _is_complete_within(self, time: Timestamp, wait_ms: int) -> bool:
        """Whether the updates at `time` are all there in time. Errors: Stopped."""
        deadline = time_ms() + wait_ms
        while True:
            self.stopping.check()
            left = max(0, min(LOOK_MS, deadline - time_ms()))
            if self.shards.wait(lambda: is_complete(self._state(), time), left):
                return True
            if time_ms() >= deadline:
                return False

    def _contents(self, time: Timestamp, columns: Sequence[Column]) -> pa.Table:
        """The rows at a time: time, diff, the data, error."""
        past = (MINIMUM_TIME, Timestamp(time + 1))
        try:
            loaded = load_stable(self.shards, self.id, past, time, may_hold=False)
        except SinceViolation as passed:
            raise compacted(passed) from passed
        updates, errors = (advance_times(table, time) for table in loaded)
        schema = arrow_schema([column.type for column in columns])
        now = contents_at(flatten([updates], schema), time, self.kernel)
        wrong = present_errors(errors, time)
        times = pa.repeat(pa.scalar(time, pa.int64()), wrong.num_rows)
        return together(now, wrong.append_column("time", times))

    def _changes(
        self, updates: pa.Table, errors: pa.Table, columns: Sequence[Column]
    ) -> pa.Table:
        """The changes in the order of their times: time, diff, the data, error."""
        schema = arrow_schema([column.type for column in columns])
        news = consolidate(flatten([updates], schema), self.kernel)
        every = together(news, sum_diffs(errors, ["error", "time"]))
        return every.take(pc.sort_indices(every, [("time", "ascending")]))


def incomplete(state: CollectionState, time: Timestamp) -> Refused:
    """The answer to a read of what is not final yet."""
    return Refused(
        f"shard {state.id} is not complete at {time}",
        f"expected a time before upper {state.upper}",
        "read an earlier time, or wait for it with --wait SECONDS",
    )


def compacted(passed: SinceViolation) -> Refused:
    """The answer to a read of what since has passed, before it began or meanwhile."""
    if passed.since.is_empty:
        return dropped(passed.collection)
    since = passed.since
    return Refused(
        f"shard {passed.collection} cannot be read at {passed.as_of}",
        f"expected a time at or beyond since {since}: earlier history is compacted",
        f"read it at {since.time} or later",
    )


def dropped(collection: CollectionId) -> Refused:
    """The error for a read below since."""
    return Refused(
        f"shard {collection} cannot be read", "it was dropped", "its id is never used again"
    )


def time_ms() -> int:
    """A clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


def _types(first: Column, columns: Sequence[Column]) -> list[str]:
    return [first.type, *(column.type for column in columns), ERROR.type]


def together(updates: pa.RecordBatch, errors: pa.Table) -> pa.Table:
    """Contents and errors in one table: time, diff, c0 .. cn, error.

    Shape: `updates` has c0 .. cn, time, diff; `errors` has error, time, diff.
    """
    width = updates.num_columns - 2
    data = list(updates.schema)[:width]
    schema = pa.schema(
        [("time", pa.int64()), ("diff", pa.int64()), *data, ("error", pa.utf8())]
    )
    times, diffs = updates.column("time"), updates.column("diff")
    absent = pa.nulls(updates.num_rows, pa.utf8())
    parts = [pa.table([times, diffs, *updates.columns[:width], absent], schema=schema)]
    if errors.num_rows:
        nulls = [pa.nulls(errors.num_rows, field.type) for field in data]
        columns = [errors.column("time"), errors.column("diff"), *nulls, errors.column("error")]
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts)
