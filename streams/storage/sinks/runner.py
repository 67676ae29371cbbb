"""Runs a sink: a thread that writes a collection's changes to its topic exactly once.

A session begins by fencing every earlier one (`Transactions.init`), so that of two runners of
one sink only the newer one writes, and then reads the committed progress. From there on each
interval is decided (`streams.storage.sinks.sink`) and written in short transactions, whose last
record is the progress. After a failure whose result is unknown a new session begins: the
committed progress says what is in the topic. So it does after an internal error, with pauses
that grow while the sink makes no progress. A runner that is fenced waits for `FENCED_S`: either
it is stopped, since its replica is the owner no longer, or the one that fenced it is (a
process that went on after a pause), and then the next session fences that one.

The hold on the collection stays before the committed progress, so that a session can always
rebuild the keys in the topic from the contents just before it (rule 5).

A reader with `isolation.level=read_committed` sees each change once.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CapabilityId, CollectionId, Timestamp, Topic
from streams.kafka.client.transactions import Fenced, Out, OutRecord, OutRecords
from streams.progress import END, frontier
from streams.storage.client.backoff import longer_s
from streams.storage.client.shards import Shards
from streams.storage.description import loads
from streams.storage.log.events import Downgrade
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import changes, end, is_complete, load_stable
from streams.storage.sinks.progress import Progress, decode, encode, limit_of, transactions
from streams.storage.sinks.records import IntervalRecords, RecordEncoder
from streams.storage.sinks.sink import NO_KEYS, Hashes
from streams.trace.kernel.kernel import Kernel

log = logging.getLogger(__name__)

WAIT_MS = 500
RETRY_S = 1.0
CHECK_MS = 60_000
"""How often the partitions of the topic are counted."""

FENCED_S = 15.0
"""Longer than it takes to hear that another replica is the owner."""


class Writer(Protocol):
    """Transactions under one name (`streams.kafka.client.transactions`)."""

    def init(self) -> None:
        """Fence the earlier sessions."""

    def commit(self, records: tuple[Out, ...]) -> None:
        """Make the records visible at once. Errors: Fenced, Determinate, Indeterminate."""

    def last_value(self, topic: Topic, key: bytes, partition: int = 0) -> bytes | None:
        """Return the newest committed value of a key."""

    def partitions(self, topic: Topic) -> int:
        """Return the number of partitions of a topic. Errors: Determinate."""

    def close(self) -> None:
        """Release the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """What to write to which topic. `hold` is the sink's read capability on `collection`.

    A key's records are in the one of the topic's `partitions` that its hash gives. `as_of` is
    the time of the first contents. `idle_ms` bounds how far the committed progress
    stays behind while nothing changes.
    """

    sink: CollectionId
    collection: CollectionId
    group: str
    topic: Topic
    keys: tuple[str, ...]
    as_of: Timestamp
    hold: CapabilityId
    namespace: str
    partitions: int = 1
    idle_ms: int = 5_000

    @property
    def progress_topic(self) -> Topic:
        """The topic of the progress of all sinks."""
        return Topic(f"{self.namespace}.sinks.progress")

    @property
    def schema_topic(self) -> Topic:
        """The topic of the schemas of all output topics."""
        return Topic(f"{self.namespace}.schemas")

    @property
    def transactional_id(self) -> str:
        """The transactional id of every session of this sink."""
        return f"{self.namespace}.sink.{self.sink}"


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The status of a sink. `state` is starting, hydrating, running, stalled or failed.

    `frontier` is the committed progress: the changes before it are in the topic.
    """

    state: str
    message: str = ""
    frontier: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class _At:
    """Position of a session: progress, records committed beyond it, keys in the topic."""

    progress: Progress
    live: Hashes
    committed: Progress | None


def _one_ahead(
    encode: Callable[[int, int], OutRecords], ranges: Sequence[tuple[int, int]]
) -> Iterator[OutRecords]:
    """Yield the records of each range; the next ones are encoded while the caller writes."""
    with ThreadPoolExecutor(1, "sink encoder") as encoder:
        coming: deque[Future[OutRecords]] = deque()
        for first, last in ranges:
            coming.append(encoder.submit(encode, first, last))
            if len(coming) > 1:
                yield coming.popleft().result()
        yield from (encoded.result() for encoded in coming)


class SinkRunner:
    """The thread of one sink. It calls `report` whenever the status changes."""

    def __init__(  # noqa: PLR0913  dependencies, passed by name
        self,
        spec: SinkSpec,
        shards: Shards,
        writer: Writer,
        *,
        now_ms: Callable[[], int],
        report: Callable[[SinkStatus], None] = lambda _: None,
        crash: Callable[[str], None] = lambda _: None,
        kernel: Kernel | None = None,
    ) -> None:
        self._spec, self._shards, self._writer = spec, shards, writer
        self._now_ms, self._report, self._crash = now_ms, report, crash
        self._kernel = kernel or Kernel()
        self._status = SinkStatus("starting")
        self._stopped = threading.Event()
        self._written_ms = self._checked_ms = 0
        self._stuck_at: Timestamp | None = None
        self._pause_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"sink {spec.sink}", daemon=True)

    @property
    def status(self) -> SinkStatus:
        """The current status of the sink."""
        return self._status

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current transaction, stop writing, release the connections."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._session()
                except Fenced as failure:
                    self._say(SinkStatus("stalled", str(failure), self._status.frontier))
                    self._stopped.wait(FENCED_S)
                except SlackwaterError as failure:
                    log.warning(
                        "sink session failed; restarting",
                        extra={"sink": self._spec.sink, "cause": str(failure)},
                    )
                    self._say(SinkStatus("stalled", str(failure), self._status.frontier))
                    self._stopped.wait(RETRY_S)
                except Exception as defect:
                    log.exception(
                        "sink session failed; restarting", extra={"sink": self._spec.sink}
                    )
                    self._stopped.wait(self._failed(defect))
        finally:
            self._writer.close()

    def _failed(self, defect: Exception) -> float:
        """Report an internal error; return the seconds to wait before the next session."""
        reached = self._status.frontier
        self._say(SinkStatus("failed", repr(defect), reached))
        self._pause_s = longer_s(self._pause_s if reached == self._stuck_at else 0.0)
        self._stuck_at = reached
        return self._pause_s

    def _session(self) -> None:
        self._writer.init()
        self._check_partitions()
        self._shards.open(self._spec.group)
        self._shards.sync(self._spec.collection)
        recorder = self._recorder()
        self._publish(recorder)
        at = self._resume(recorder)
        while not self._stopped.is_set():
            if at.progress.frontier == END:
                self._say(SinkStatus("running", "the collection is sealed", END))
                self._stopped.wait()
            elif self._wait_for_work(at.progress):
                at = self._interval(recorder, at)

    def _check_partitions(self) -> None:
        """Check that a key's records are still where they were.

        Errors: InvalidUsage if the topic has got more partitions; Determinate.
        """
        spec, actual = self._spec, self._writer.partitions(self._spec.topic)
        if actual != spec.partitions:
            raise InvalidUsage(
                f"topic {spec.topic}: expected {spec.partitions} partitions, actual {actual}:"
                " records of a key would be in two of them, in no order; drop the sink, and"
                " create one with another topic"
            )
        self._checked_ms = self._now_ms()

    def _recorder(self) -> RecordEncoder:
        state = self._shards.state(self._spec.collection)
        return RecordEncoder(
            self._spec.topic, loads(state.description), self._spec.keys, self._kernel
        )

    def _publish(self, recorder: RecordEncoder) -> None:
        """Publish the schema of our values, unless it is published already."""
        key, text = recorder.rows.fingerprint, recorder.rows.text.encode()
        topic = self._spec.schema_topic
        if self._writer.last_value(topic, key) != text:
            name = ("slackwater-topic", self._spec.topic.encode())
            self._writer.commit((OutRecord(topic, key, text, (name,), 0),))

    def _resume(self, recorder: RecordEncoder) -> _At:
        """Where the earlier sessions stopped, and the keys in the topic at that point."""
        spec = self._spec
        record = self._writer.last_value(spec.progress_topic, spec.sink.encode())
        progress = None if record is None else decode(record)
        # Progress from before the sink's birth is that of an earlier sink of this id, whose
        # catalog is gone.
        if progress is None or progress.frontier < spec.as_of:
            self._say(SinkStatus("hydrating"))
            return _At(Progress(spec.as_of), NO_KEYS, None)
        self._say(SinkStatus("running", "", progress.frontier))
        live = NO_KEYS
        if progress.frontier > spec.as_of:
            before = Timestamp(progress.frontier - 1)
            past = (MINIMUM_TIME, progress.frontier)
            updates, _ = load_stable(self._shards, spec.collection, past, before)
            live = recorder.live(updates, before)
        return _At(progress, live, progress)

    def _wait_for_work(self, progress: Progress) -> bool:
        """Whether an interval can be decided: the current one, or the next."""
        last = progress.frontier if progress.until is None else progress.until - 1
        needed = Timestamp(max(last, self._spec.as_of))

        def ready() -> bool:
            state = self._shards.state(self._spec.collection)
            return self._stopped.is_set() or is_complete(state, needed)

        is_ready = self._shards.wait(ready, WAIT_MS, (self._spec.group,))
        return is_ready and not self._stopped.is_set()

    def _interval(self, recorder: RecordEncoder, at: _At) -> _At:
        """Decide and write the changes that have become final; return the new position."""
        state = self._shards.state(self._spec.collection)
        upper = at.progress.until or end(state)
        interval = self._decided(recorder, at, state, upper)
        if interval.upper == at.progress.frontier and interval.stall:
            self._say(SinkStatus("stalled", interval.stall, self._status.frontier))
            self._await_news(upper)
            return at
        committed = at.committed
        if self._now_ms() - self._checked_ms >= CHECK_MS:
            self._check_partitions()
        if interval.records or committed is None or self._is_due():
            committed = self._write(at.progress, interval)
        state_now = "stalled" if interval.stall else "running"
        self._say(SinkStatus(state_now, interval.stall, committed.frontier))
        return _At(Progress(interval.upper), interval.live, committed)

    def _decided(
        self, recorder: RecordEncoder, at: _At, state: CollectionState, upper: Timestamp
    ) -> IntervalRecords:
        """Return the records from the progress on; the first ones are the contents at as_of."""
        spec, lower = self._spec, at.progress.frontier
        if lower > spec.as_of:
            news = changes(self._shards, state, lower, until=upper)
            return recorder.decide(at.live, news.updates, news.errors, upper)
        past = (MINIMUM_TIME, upper)
        updates, errors = load_stable(self._shards, spec.collection, past, spec.as_of)
        return recorder.decide(at.live, updates, errors, upper, since=spec.as_of)

    def _write(self, before: Progress, interval: IntervalRecords) -> Progress:
        """Write the interval's records; return the progress that the last one commits."""
        if len(interval.records) < before.written:
            raise InvalidUsage(
                f"sink {self._spec.sink}: expected at least {before.written} records below "
                f"{interval.upper}, actual {len(interval.records)}"
            )
        columns = interval.records
        limit = limit_of(len(columns), columns.nbytes)
        planned = list(transactions(before, interval.upper, len(columns), limit))
        encoded = _one_ahead(columns.between, [(first, last) for first, last, _ in planned])
        for (_, _, progress), records in zip(planned, encoded, strict=True):
            self._crash("before-transaction")
            self._writer.commit((records, self._progress_record(progress)))
            self._crash("after-transaction")
        self._written_ms = self._now_ms()
        self._downgrade(interval.upper)
        return Progress(interval.upper)

    def _progress_record(self, progress: Progress) -> OutRecord:
        key, value = self._spec.sink.encode(), encode(self._spec.sink, progress)
        return OutRecord(self._spec.progress_topic, key, value, (), 0)

    def _downgrade(self, committed: Timestamp) -> None:
        spec = self._spec
        if committed > spec.as_of:
            move = Downgrade(
                collection=spec.collection,
                capability=spec.hold,
                frontier=frontier(committed - 1),
            )
            self._shards.submit([(spec.group, move)])

    def _is_due(self) -> bool:
        return self._now_ms() - self._written_ms >= self._spec.idle_ms

    def _await_news(self, upper: Timestamp) -> None:
        """While stalled: nothing can change before the collection's upper has moved."""

        def moved() -> bool:
            state = self._shards.state(self._spec.collection)
            return self._stopped.is_set() or is_complete(state, upper)

        self._shards.wait(moved, WAIT_MS, (self._spec.group,))

    def _say(self, status: SinkStatus) -> None:
        if status != self._status:
            self._status = status
            self._report(status)
