"""The service of the command topics: reads commands, carries them out, answers in order.

A batch is what has come, at most `BATCH` records, cut into waves of what may be asked for
together. The effects of a wave are made and read back, then its responses are committed in one
transaction. Whatever fails in between, the session begins anew from what the topics say;
nothing is remembered that they do not hold. After a failure commands are taken one by one for
a while, so that one which fails by itself is found, and answered as FAILED in the end.

It ends when a newer session has begun (`Fenced`): of two services the younger goes on.
"""

import itertools
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import Offset, Topic
from streams.kafka.log import Entry, Logs, Tail
from streams.kafka.raw import Range
from streams.kafka.topics import TopicKind, Topics, TopicSpec
from streams.kafka.transactions import Fenced, OutRecord
from streams.storage.commands.answering import Answering, failed
from streams.storage.commands.ledger import (
    REMEMBERED,
    Answered,
    Ledger,
    Report,
    Sorted,
    malformed,
    read_answer,
    sort,
    waves,
)
from streams.storage.commands.marks import Careful, Marks
from streams.storage.commands.wire import (
    Malformed,
    Outcome,
    Request,
    Response,
    decode,
    encode,
)
from streams.storage.shards import Shards

log = logging.getLogger(__name__)

BATCH = 256
"""Records that are answered at once. `streams.storage.commands` says what hangs on it."""

BATCH_BYTES = 8 << 20
"""Bytes of commands after which a batch ends, however few they are."""

TRIES = 5
"""How often a command may fail by itself before that is its answer."""

WAIT_MS = 500
RETRY_S = 0.5
_AT_ONCE = 4096


class Records(Protocol):
    """Reads what is committed (`streams.kafka.raw`)."""

    def ends(self, topic: Topic) -> Mapping[int, Range]:
        """What can be read of each partition now."""

    def fetch(
        self, topic: Topic, partition: int, lo: Offset, hi: Offset, limit: int | None = None
    ) -> pa.Table:
        """The first `limit` records of `[lo, hi)`."""


class Writer(Protocol):
    """Transactions under one name (`streams.kafka.transactions`)."""

    def init(self) -> None:
        """Fence the earlier sessions."""

    def commit(self, records: Sequence[OutRecord]) -> None:
        """Make the records visible at once. Errors: Fenced, Determinate, Indeterminate."""


@dataclass(frozen=True, slots=True)
class Names:
    """The topics of a namespace, and the name under which its services write."""

    namespace: str

    @property
    def commands(self) -> Topic:
        """Where clients write."""
        return Topic(f"{self.namespace}.storage.commands")

    @property
    def responses(self) -> Topic:
        """Where clients read."""
        return Topic(f"{self.namespace}.storage.responses")

    @property
    def transactional_id(self) -> str:
        """Of two sessions under this name only the newer can answer."""
        return f"{self.namespace}.storage.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a service is made of. `follow` reads a topic from an offset on, as committed."""

    names: Names
    shards: Shards
    topics: Topics
    logs: Logs
    follow: Callable[[Topic, Offset], Tail]
    records: Records
    writer: Writer
    marks: Marks | None = None
    reached: Callable[[str], None] = lambda _: None


class CommandService:
    """One service. One thread; `run` is its life, `step` a batch."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._session: _Session | None = None
        self._alone = 0  # so many records are taken one by one
        self._tries: dict[Offset, int] = {}
        self._hopeless: dict[Offset, Outcome] = {}
        self._careful: Careful | None = None  # from the first session on

    def run(self, stopping: threading.Event) -> None:
        """Answer until told to stop.

        Errors: Fenced when another service has begun; InvalidUsage when the topics are there
        otherwise than they have to be; a defect after which only a new process helps.
        """
        try:
            while not stopping.is_set():
                defect = self._wiring.shards.defect
                if defect is not None:
                    raise defect
                if not self.step(WAIT_MS):
                    stopping.wait(RETRY_S)
        finally:
            self.close()

    def step(self, wait_ms: int) -> bool:
        """Answer what has come, if need be waiting for it; whether nothing went wrong.

        Errors: as `run`.
        """
        entries: Sequence[Entry] = ()
        try:
            session, careful = self._opened()
            entries = session.take(1 if self._alone else BATCH, wait_ms, careful.is_suspect)
            if entries:
                session.answer(entries, self._hopeless, careful.begin(entries))
        except (Determinate, Indeterminate, Corrupt) as failure:
            self._give_up(entries, failure)
            return False
        except Fenced:
            self._release()
            raise
        self._alone = max(0, self._alone - len(entries))
        if entries:
            self._tries, self._hopeless = {}, {}
        return True

    def close(self) -> None:
        """End the session; another may begin."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _opened(self) -> tuple["_Session", Careful]:
        if self._session is None:
            self._session = _Session(self._wiring)
        if self._careful is None:
            self._careful = Careful(self._wiring.marks, self._wiring.names.commands)
            self._careful.start(*self._session.backlog)
        return self._session, self._careful

    def _release(self) -> None:
        if self._careful is not None:
            self._careful.release()

    def _give_up(self, entries: Sequence[Entry], failure: Exception) -> None:
        """End the session. A command that failed alone has had one of its tries."""
        log.warning("commands will be tried again", extra={"cause": str(failure)})
        self.close()
        self._release()
        self._alone = BATCH if entries else self._alone
        if len(entries) == 1:
            (entry,) = entries
            self._tries[entry.offset] = self._tries.get(entry.offset, 0) + 1
            if self._tries[entry.offset] >= TRIES:
                self._hopeless[entry.offset] = failed(failure)


class _Session:
    """From one fencing to the next failure."""

    def __init__(self, wiring: Wiring) -> None:
        """Errors: Determinate, Indeterminate, InvalidUsage."""
        self._wiring = wiring
        names = wiring.names
        wiring.topics.create(
            [
                TopicSpec(names.commands, 1, TopicKind.COMMANDS),
                TopicSpec(names.responses, 1, TopicKind.RESPONSES),
            ]
        )
        info = wiring.topics.describe(names.commands)
        if info is None:
            raise Determinate(f"topic {names.commands} was deleted a moment ago")
        wiring.writer.init()
        self._origin = info.id
        self._looked = Offset(0)
        self._ledger = Ledger(self._origin)
        self._recover()
        self.backlog = self._unanswered()
        self._tail = wiring.follow(names.commands, self.backlog.low)
        self._waiting: list[Entry] = []
        self._answering = Answering(wiring.shards, self._origin, self._check, wiring.reached)
        log.info("answering commands", extra={"offset": self._ledger.position})

    def _recover(self) -> None:
        """Fold the responses, as far back as ids are remembered."""
        low, high = self._wiring.records.ends(self._wiring.names.responses)[0]
        # each transaction has one offset more than records
        self._looked = Offset(max(low, high - 2 * REMEMBERED))
        for answers in self._answers(high):
            self._ledger = self._ledger.answered(answers)

    def _answers(self, high: Offset) -> Iterator[list[Answered]]:
        """The responses from where was looked last to `high`."""
        while self._looked < high:
            topic = self._wiring.names.responses
            found = self._wiring.records.fetch(topic, 0, self._looked, high, _AT_ONCE)
            yield list(readable(found.column("value").to_pylist()))
            is_all = found.num_rows < _AT_ONCE
            self._looked = high if is_all else Offset(found.column("offset")[-1].as_py() + 1)

    def _unanswered(self) -> Range:
        low, high = self._wiring.logs.bounds(self._wiring.names.commands)
        position = self._ledger.position
        if 0 < position < low:
            log.error(
                "commands were deleted unanswered", extra={"from": position, "before": low}
            )
        return Range(max(low, position), high)

    def take(
        self, most: int, wait_ms: int, is_suspect: Callable[[Offset], bool]
    ) -> Sequence[Entry]:
        """The next records, waited for; a suspect one by itself."""
        if not self._waiting:
            self._waiting = list(self._tail.poll(wait_ms))
        if self._waiting and is_suspect(self._waiting[0].offset):
            most = 1
        sizes = itertools.accumulate(len(each.value) for each in self._waiting[:most])
        fitting = sum(1 for _ in itertools.takewhile(lambda size: size <= BATCH_BYTES, sizes))
        return self._waiting[: max(1, fitting)]

    def answer(
        self,
        entries: Sequence[Entry],
        hopeless: Mapping[Offset, Outcome],
        unread: Mapping[Offset, Report],
    ) -> None:
        """Carry out commands and commit their responses. Errors: as `Answering`, Fenced."""
        records = [unread.get(entry.offset) or read(entry) for entry in entries]
        todo = sort(self._ledger, records)
        self._wiring.reached("read")
        for wave in waves(todo):
            self._answer(wave, hopeless)

    def _answer(self, wave: Sequence[Sorted], hopeless: Mapping[Offset, Outcome]) -> None:
        outcomes = dict(hopeless)
        requests = [
            each for each in wave if isinstance(each, Request) and each.offset not in outcomes
        ]
        for request, outcome in zip(requests, self._answering.answer(requests), strict=True):
            outcomes[request.offset] = outcome
        self._wiring.reached("decided")
        responses = [self._response(each, outcomes) for each in wave]
        self._wiring.writer.commit([self._record(each) for each in responses])
        self._wiring.reached("answered")
        self._waiting = self._waiting[len(wave) :]
        self._ledger = self._ledger.answered(
            Answered(each.command, each.origin, each.offset, each.checksum)
            for each in responses
        )

    def _response(self, each: Request | Report, outcomes: Mapping[Offset, Outcome]) -> Response:
        if isinstance(each, Report):
            return Response(each.id, self._origin, each.offset, each.checksum, each.outcome)
        outcome = outcomes[each.offset]
        return Response(each.id, self._origin, each.offset, each.checksum, outcome)

    def _record(self, response: Response) -> OutRecord:
        key = response.command.encode() or None
        topic = self._wiring.names.responses
        return OutRecord(topic, key, encode(response), partition=0)

    def _check(self) -> None:
        """Errors: Fenced when another service has answered anything."""
        high = self._wiring.records.ends(self._wiring.names.responses)[0].high
        newest = list(itertools.chain.from_iterable(self._answers(high)))[-1:]
        if any(self._ledger.is_overtaken(each) for each in newest):
            raise Fenced(self._wiring.names.transactional_id)

    def close(self) -> None:
        """Read no more."""
        self._tail.close()


def readable(values: Iterable[bytes | None]) -> Iterator[Answered]:
    """The responses among the records; what else somebody has written there says nothing."""
    for value in values:
        try:
            yield read_answer(value or b"")
        except Corrupt as problem:
            log.warning("a record is no response", extra={"cause": str(problem)})


def read(entry: Entry) -> Request | Report:
    """What a record of the topic of commands is."""
    try:
        return decode(entry.offset, entry.value)
    except Malformed as problem:
        log.warning("a record is no command", extra={"cause": str(problem)})
        return malformed(entry.offset, zlib.crc32(entry.value), problem)
