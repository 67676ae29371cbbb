"""One session of the command service: from its fencing to the next failure of its topics.

A record is taken, marked as begun, decoded and given to the desk. When no record that it
depends on is in progress, the crew executes it; a command that fails alone is retried up to a
limit. Finished commands are answered in one transaction. Only then may commands that depend on
them begin.
"""

import itertools
import logging
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.client.transactions import Fenced, OutRecord
from streams.kafka.log import Entry, Logs, Tail
from streams.kafka.topics import OffsetRange, TopicKind, Topics, TopicSpec
from streams.storage.client.id_registry import Directory
from streams.storage.client.shards import Shards
from streams.storage.commands.dedup import (
    REMEMBERED,
    SPAN,
    AnsweredRecord,
    Ledger,
    Report,
    Sorted,
    malformed,
    read_answer,
    sort,
)
from streams.storage.commands.dispatch import (
    BATCH,
    BATCH_BYTES,
    Crowd,
    PendingRecord,
    PendingRecords,
)
from streams.storage.commands.executor import CrowdExecutor, failed_outcome
from streams.storage.commands.marks import Marks, SessionMarks
from streams.storage.commands.wire import (
    Malformed,
    Outcome,
    Request,
    Response,
    decode,
    encode,
)
from streams.storage.commands.worker_pool import (
    CommandStuck,
    CrowdResult,
    InlinePool,
    WorkerPool,
)
from streams.trace.kernel.pool import KernelPool

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Bytes of queued commands from which on no more are taken."""

TRIES = 5
"""How often a command may fail alone before FAILED is its response."""

DEADLINE_S = 600.0
"""How long a crowd may take while brokers answer. Its own deadlines are far shorter."""

SHOWN = 3
"""Number of commands of a crowd that the log names."""

TICK_S = 0.01
"""Poll interval for more commands while others are running."""

_AT_ONCE = 4096


class Records(Protocol):
    """Reads committed records (`streams.kafka.client.raw`)."""

    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the end offset of each partition."""

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        """The first `limit` records of `[lo, hi)`."""


class ResponseWriter(Protocol):
    """Transactions under one name (`streams.kafka.client.transactions`)."""

    def init(self) -> None:
        """Fence the earlier sessions."""

    def commit(self, records: Sequence[OutRecord]) -> None:
        """Make the records visible at once. Errors: Fenced, Determinate, Indeterminate."""


@dataclass(frozen=True, slots=True)
class CommandTopics:
    """The topics of a namespace, and the transactional id of its services."""

    namespace: str

    @property
    def commands(self) -> Topic:
        """The topic that clients write to."""
        return Topic(f"{self.namespace}.storage.commands")

    @property
    def responses(self) -> Topic:
        """The topic that clients read from."""
        return Topic(f"{self.namespace}.storage.responses")

    @property
    def transactional_id(self) -> str:
        """The transactional id: of two sessions only the newer can answer."""
        return f"{self.namespace}.storage.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDependencies:
    """What a service depends on. `follow` reads committed records of a topic from an offset."""

    names: CommandTopics
    shards: Shards
    topics: Topics
    logs: Logs
    follow: Callable[[Topic, Offset], Tail]
    records: Records
    writer: ResponseWriter
    marks: Marks | None = None
    reached: Callable[[str], None] = lambda _: None
    workers: Callable[[], WorkerPool] = InlinePool


Finished = tuple[PendingRecord, Report]
"""A record, and the response to it."""


@dataclass(slots=True)
class ServiceState:
    """State that one process keeps from session to session.

    `alone` is how many records still have to be taken one by one, because one of them failed a
    session. `tries` is how often a command has failed alone. A reader of responses holds
    `reading`, because threads of a former session may still look for them. `answered` counts
    responses by status.
    """

    careful: SessionMarks
    tries: dict[Offset, int] = field(default_factory=dict)
    alone: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    reading: threading.Lock = field(default_factory=threading.Lock)


class Session:
    """One session, from its fencing to its failure. One thread; the crew has others."""

    def __init__(self, wiring: ServiceDependencies, history: ServiceState) -> None:
        """Errors: Determinate, Indeterminate, InvalidUsage."""
        self._wiring, self._history = wiring, history
        names = wiring.names
        wiring.topics.create(
            [
                TopicSpec(names.commands, 1, TopicKind.COMMANDS),
                TopicSpec(names.responses, 1, TopicKind.RESPONSES),
            ]
        )
        info = wiring.topics.describe(names.commands)
        if info is None:
            raise Determinate(f"topic {names.commands} was deleted meanwhile")
        wiring.writer.init()
        self._origin = info.id
        self._looked = Offset(0)
        self._ledger = Ledger(self._origin)
        with history.reading:
            self._recover()
        self.backlog = self._unanswered()
        self._tail = wiring.follow(names.commands, self.backlog.low)
        self._waiting: list[Entry] = []
        self._directory = Directory(wiring.shards)
        self._directory.follow_registry()  # or the group of an id would be unknown
        self._pending = PendingRecords()
        self._workers = wiring.workers()
        self._kernels = KernelPool()
        log.info("answering commands", extra={"offset": self._ledger.end})

    def _recover(self) -> None:
        """Fold the responses, as far back as ids are remembered."""
        low, high = self._wiring.records.ends(self._wiring.names.responses)[0]
        # each transaction has one offset more than records
        self._looked = Offset(max(low, high - 2 * REMEMBERED))
        is_whole = self._looked == 0
        for answers in self._answers(high):
            here = (answer.offset for answer in answers if answer.origin == self._origin)
            first = None if is_whole else next(here, None)
            if first is not None:
                self._ledger, is_whole = replace(self._ledger, floor=first), True
            self._ledger = self._ledger.answered(answers)

    def _answers(self, high: Offset) -> Iterator[list[AnsweredRecord]]:
        """Read the responses from the last position to `high`."""
        while self._looked < high:
            topic = self._wiring.names.responses
            records = self._wiring.records.fetch(topic, 0, self._looked, high, _AT_ONCE)
            yield list(readable_responses(records.column("value").to_pylist()))
            is_all = records.num_rows < _AT_ONCE
            self._looked = high if is_all else Offset(records.column("offset")[-1].as_py() + 1)

    def _unanswered(self) -> OffsetRange:
        """Return a range with all unanswered records; it may hold others too."""
        low, high = self._wiring.logs.bounds(self._wiring.names.commands)
        if 0 < self._ledger.end < low:
            log.error(
                "commands were deleted unanswered",
                extra={"from": self._ledger.end, "before": low},
            )
        return OffsetRange(max(low, self._ledger.position), high)

    @property
    def pending(self) -> int:
        """How many commands were read and are not answered."""
        return len(self._pending) + len(self._waiting)

    def turn(self, wait_ms: int) -> bool:
        """Take new commands, start some, answer finished ones; return whether none failed.

        Errors: Determinate, Indeterminate when the session is over; Fenced; Stuck, as
        `worker_pool`.
        """
        self._take(0 if len(self._pending) else wait_ms)
        has_begun = is_fine = True
        while has_begun and is_fine:
            has_begun = self._begin_next()
            is_fine = self._settle(self._workers.done(TICK_S) if len(self._pending) else [])
        self._watch()
        return is_fine

    def _begin_next(self) -> bool:
        """Start what may begin."""
        crowds = self._pending.pick(time.monotonic(), self._workers.room())
        for crowd in crowds:
            self._history.careful.go_on(*self._pending.span)
            todo = sort(self._ledger, [item.record for item in crowd])
            is_alone = crowd[0].is_alone
            self._workers.begin(crowd, partial(self._carried_out, todo, is_alone=is_alone))
        return bool(crowds)

    def _take(self, wait_ms: int) -> None:
        """Give the next records to the desk, waiting for them; a suspect is taken alone."""
        if not self._waiting:
            polled = self._tail.poll(wait_ms)
            is_answered = self._ledger.is_answered
            self._waiting = [entry for entry in polled if not is_answered(entry.offset)]
        entries = self._fitting()
        if not entries:
            return
        careful, pending = self._history.careful, self._pending
        crashed = careful.begin(entries, pending.first)
        commands = (crashed.get(entry.offset) or read(entry) for entry in entries)
        records = [item for record in commands for item in sort(self._ledger, [record])]
        self._waiting = self._waiting[len(entries) :]
        sized = zip(records, (len(entry.value) for entry in entries), strict=True)
        is_alone = self._history.alone > 0 or careful.is_suspect(entries[0].offset)
        home, registered = self._wiring.shards.following.home, self._directory.given
        pending.lay(sized, home, registered, is_alone=is_alone)
        self._wiring.reached("read")

    def _fitting(self) -> Sequence[Entry]:
        """Return the records that may be taken now."""
        is_suspect, pending = self._history.careful.is_suspect, self._pending
        if not self._waiting or pending.size > MOST_BYTES:
            return ()
        if pending.first is not None and is_suspect(pending.first):
            return ()
        if is_suspect(self._waiting[0].offset):
            return () if len(pending) else self._waiting[:1]
        first = self._waiting[0].offset if pending.first is None else pending.first
        near = itertools.takewhile(
            lambda entry: entry.offset < first + SPAN and not is_suspect(entry.offset),
            self._waiting[:BATCH],
        )
        some = list(near)
        sizes = itertools.accumulate(len(entry.value) for entry in some)
        fitting = sum(1 for _ in itertools.takewhile(lambda size: size <= BATCH_BYTES, sizes))
        return some[: max(1, fitting)]

    def _carried_out(self, todo: Sequence[Sorted], *, is_alone: bool) -> list[Report | None]:
        """Return the response to each; None where a command has to run alone and has not yet.

        Errors: as `CrowdExecutor.answer`.
        """
        requests = [request for request in todo if isinstance(request, Request)]
        answering = CrowdExecutor(
            self._wiring.shards,
            self._origin,
            self._check,
            self._wiring.reached,
            self._kernels,
            is_brief=not is_alone,
        )
        outcomes = iter(answering.answer(requests) if requests else ())
        return [
            response_to(item, next(outcomes)) if isinstance(item, Request) else item
            for item in todo
        ]

    def _settle(self, done: Sequence[CrowdResult]) -> bool:
        """Answer finished crowds, and have the others retried."""
        finished: list[Finished] = []
        is_fine = True
        for item in done:
            if item.failure is not None:
                self._failed(item.crowd, item.failure)
                is_fine = False
                continue
            pairs = list(zip(item.crowd, item.reports, strict=True))
            self._pending.put_back([item for item, report in pairs if report is None], 0.0)
            finished += [(item, report) for item, report in pairs if report is not None]
        if finished:
            self._wiring.reached("decided")
            self._answer(finished)
            self._wiring.reached("answered")
        return is_fine

    def _failed(self, crowd: Crowd, failure: BaseException) -> None:
        """Have each command of a failed crowd retried alone; a lone failure uses up a try.

        Errors: the failure, if a crowd did not cause it.
        """
        if not isinstance(failure, Determinate | Indeterminate | Corrupt):
            raise failure
        what = [log_name(item) for item in crowd[:SHOWN]]
        log.warning("commands failed; retrying", extra={"of": what, "cause": str(failure)})
        if len(crowd) == 1 and not self._wiring.shards.following.is_silence():
            self._has_tried(crowd[0], failure)
        self._pending.put_back(crowd, time.monotonic() + self._workers.retry_s)
        if not self._pending.is_under_way:
            self._history.careful.release()

    def _has_tried(self, item: PendingRecord, failure: Exception) -> None:
        tries, at = self._history.tries, item.offset
        tries[at] = tries.get(at, 0) + 1
        if tries[at] >= TRIES:
            record = item.record
            item.record = Report(at, record.checksum, failed_outcome(failure), record.id)

    def _answer(self, finished: Sequence[Finished]) -> None:
        """Errors: as `Writer.commit`; commands that are answered one by one use up a try."""
        alone = [pair for pair in finished if pair[0].is_alone] if self._history.alone else []
        together = [pair for pair in finished if pair not in alone]
        for some in (together, *([pair] for pair in alone)):
            if some:
                self._commit(some)

    def _commit(self, finished: Sequence[Finished]) -> None:
        responses = [self._response(report) for _, report in finished]
        with self._history.reading:  # or `check` takes our own answers for another service's
            try:
                self._wiring.writer.commit([self._record(response) for response in responses])
            except (Determinate, Indeterminate) as failure:
                self._history.alone = BATCH
                if len(finished) == 1:
                    self._has_tried(finished[0][0], failure)
                raise
            self._ledger = self._ledger.answered(
                AnsweredRecord(
                    response.command, response.origin, response.offset, response.checksum
                )
                for response in responses
            )
        self._history.answered.update(report.outcome.status for _, report in finished)
        self._pending.answered([item for item, _ in finished])
        for item, _ in finished:
            self._history.tries.pop(item.offset, None)
        self._history.alone = max(0, self._history.alone - len(finished))

    def _response(self, said: Report) -> Response:
        return Response(said.id, self._origin, said.offset, said.checksum, said.outcome)

    def _record(self, response: Response) -> OutRecord:
        key = response.command.encode() or None
        topic = self._wiring.names.responses
        return OutRecord(topic, key, encode(response), partition=0)

    def _watch(self) -> None:
        """Log slow crowds. Errors: Stuck."""
        for wait in self._workers.waits():
            what = [log_name(item) for item in wait.crowd[:SHOWN]]
            log.warning(
                "a command takes long",
                extra={"of": what, "seconds": round(wait.seconds, 1), "in": wait.where},
            )
            is_silence = self._wiring.shards.following.is_silence()
            if wait.seconds > DEADLINE_S and not is_silence:
                raise CommandStuck(f"{what} for {wait.seconds:.0f} s in {wait.where}")

    def _check(self) -> None:
        """Errors: Fenced when another service has answered anything."""
        with self._history.reading:
            high = self._wiring.records.ends(self._wiring.names.responses)[0].high
            answers = itertools.chain.from_iterable(self._answers(high))
            if any(self._ledger.is_overtaken(record) for record in answers):
                raise Fenced(self._wiring.names.transactional_id)

    def close(self, wait_s: float = 0.0) -> None:
        """Stop reading and wait for running commands; the next session executes the rest."""
        self._tail.close()
        self._workers.leave(wait_s)


def log_name(item: PendingRecord) -> str:
    """Return a command's kind, id and collections for a log line."""
    record = item.record
    kind = type(record.command).__name__ if isinstance(record, Request) else "Report"
    return " ".join([kind, record.id, *sorted(item.collections)])


def response_to(request: Request, outcome: Outcome | None) -> Report | None:
    """Return the response to a command from its outcome."""
    if outcome is None:
        return None
    return Report(request.offset, request.checksum, outcome, request.id)


def readable_responses(values: Iterable[bytes | None]) -> Iterator[AnsweredRecord]:
    """Yield the responses among the records; other records are logged and skipped."""
    for value in values:
        try:
            yield read_answer(value or b"")
        except Corrupt as problem:
            log.warning("a record is not a response", extra={"cause": str(problem)})


def read(entry: Entry) -> Request | Report:
    """Decode a record of the command topic."""
    try:
        return decode(entry.offset, entry.value)
    except Malformed as problem:
        log.warning("a record is not a command", extra={"cause": str(problem)})
        return malformed(entry.offset, zlib.crc32(entry.value), problem)
