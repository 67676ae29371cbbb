"""One run: a task over the ledger, a fault, and the sessions that follow it.

A run fails if a check of the tables fails, if the fault does not occur, or if a session ends in
another way than its fault implies.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from connectors.driver import Channel, Driver, Transport
from connectors.protocol.violations import Side, Violation
from connectors.runtime.lane import EndpointDrifted
from connectors.runtime.runner import Runner
from connectors.runtime.session import Forgotten
from connectors.runtime.task import Materialization
from connectors.sql.ddl import CHECKPOINTS
from connectors.sql.fence import Fenced
from connectors.testing.faults import EVENTS, Act, DriverDied, Fault, Faulty
from connectors.transport.errors import causes
from streams.storage.client.shards import Shards
from streams.torture.connectors.databases import REFUSED, Place
from streams.torture.connectors.ledger import ACCOUNTS, BRANCHES, Ledger
from streams.torture.connectors.table_check import (
    RANGES,
    TABLES,
    TASK,
    TableContents,
    TableReader,
)
from streams.trace.kernel.kernel import Kernel

REFUSAL = f"the {Side.DRIVER} broke the rule "
REFUSED_BY_DATABASE = " refuses "
"""In the text of a connector that refuses a message."""
SHARDS = 2
TRANSACTION_ROWS = 4


class Mode(StrEnum):
    """The output of a run, and its number of key ranges."""

    STANDARD = "standard"
    """Tables with keys."""
    DELTA = "delta"
    """A table of every change."""
    SPLIT = "split"
    """All of them; one range before, several when the fault comes."""
    MERGE = "merge"
    """The other way round, and the ranges stand at different times."""
    DEAD_LETTERS = "dead-letters"
    """Tables with keys, one of which refuses some documents."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault in a mode."""

    mode: Mode
    fault: Fault

    def __str__(self) -> str:
        return f"{self.mode}, {self.fault}"


def scenarios(nth: Sequence[int] = (1, 2)) -> Iterator[Scenario]:
    """All there are: each kind of message, where the mode has it."""
    for mode in Mode:
        for act in Act:
            for event in EVENTS:
                for number in nth:
                    scenario = Scenario(mode, Fault(act, event, number))
                    if is_possible(scenario):
                        yield scenario


def is_possible(scenario: Scenario) -> bool:
    """Whether the message comes, and the fault is one that can be seen.

    Delta updates load nothing. A Store of them that came twice would be two changes: that each
    message comes once is what transports are for. A session is opened once a range; a zombie is
    one of before the ranges changed.
    """
    mode, fault = scenario.mode, scenario.fault
    if mode is Mode.DELTA and fault.event in {"load", "loaded"}:
        return False
    if mode is Mode.DELTA and (fault.act, fault.event) == (Act.REPEAT, "store"):
        return False
    several = Mode.MERGE if fault.act is Act.ZOMBIE else Mode.SPLIT
    if fault.event in {"open", "opened"}:
        return fault.nth <= (SHARDS if mode is several else 1)
    return True


@dataclass(slots=True)
class LetterLog:
    """The dead letters: of each account the amount that was refused last."""

    amounts: dict[str, int] = field(default_factory=dict)

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        """As `connectors.runtime.dead_letters.DeadLetterWriter`."""
        letter = json.loads(value)
        document = letter.get("document")
        if document is None:  # of a binding that stands still
            raise AssertionError(f"{topic} {key!r}: {letter['error']}")
        self.amounts[document["account"]] = document["amount"]


@dataclass(slots=True)
class Scene:
    """The task on one database; `transport` reaches its connector."""

    shards: Callable[[], Shards]
    """A new client of the collections'."""
    transport: Transport
    place: Place
    rng: Random
    now_ms: Callable[[], int]
    kill: Callable[[Channel], None] = lambda channel: channel.close()
    """How the connector of a stream dies."""
    is_process: bool = False
    """Whether the connector is a process of its own: its failures are texts without a kind."""
    letters: LetterLog = field(default_factory=LetterLog)
    wrong: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    stack: ExitStack = field(default_factory=ExitStack)
    ledger: Ledger = field(init=False)
    reader: TableReader = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self._client(), self.rng)
        self.reader = TableReader(self.ledger)

    def run(self, scenario: Scenario) -> None:
        """Run from an empty table to the fault, then until the tables hold the whole ledger."""
        try:
            self._run(scenario)
        except Exception as error:  # noqa: BLE001 an unexpected error is a finding
            self.wrong.append(f"{scenario}: {error!r}")

    def _run(self, scenario: Scenario) -> None:
        fault, mode = scenario.fault, scenario.mode
        bindings = bindings_of(scenario)
        if mode is Mode.DEAD_LETTERS:
            self.place.make_choosy()
            self.reader.choosy = REFUSED
        self.ledger.transfer(2)
        if mode is Mode.MERGE:
            self._tear(bindings)
        elif mode is Mode.SPLIT or fault.event in {"load", "loaded"}:
            self._go(bindings, 1)
        self.ledger.transfer(4)
        shards = SHARDS if mode is Mode.SPLIT else 1
        shim = Faulty(self.transport, fault, watch=self._watch, kill=self.kill)
        if fault.act is Act.ZOMBIE:
            self._haunt(bindings, (SHARDS if mode is Mode.MERGE else 1, shards), shim)
        else:
            self._suffer(bindings, shards, shim)
        if not shim.fired.is_set():
            self.wrong.append(f"{fault}: it never came about")
        self.ledger.transfer(2)
        self._go(bindings, shards)
        self._watch("end")
        self._expect_all()

    def wander(self, sessions: int) -> None:
        """Sessions of any number of ranges, some of which die at any of their commits."""
        bindings = [*ACCOUNTS_BOUND, LOG]
        for _ in range(sessions):
            self.ledger.transfer(self.rng.randint(1, 3))
            shards = self.rng.randint(1, 4)
            dies = Fault(Act.DRIVER_DIES, "commit", self.rng.randint(1, 6))
            shim = Faulty(self.transport, dies, watch=self._watch)
            with suppress(DriverDied):
                self._go(bindings, shards, shim)
            self._watch("after")
        self._go(bindings, 1)
        self._watch("end")
        self._expect_all()

    def close(self) -> None:
        """Give up the clients."""
        self.stack.close()

    def _suffer(self, bindings: list[object], shards: int, shim: Faulty) -> None:
        """A session with a fault, which ends as the fault says."""
        ending: BaseException | None = None
        try:
            self._go(bindings, shards, shim)
        except Exception as error:  # noqa: BLE001 it is judged below
            ending = error
        if shim.fired.is_set() and not self._is_expected(shim, ending):
            self.wrong.append(f"{shim.fault}: the session ended with {ending!r}")
        self._watch("after")

    def _is_expected(self, shim: Faulty, ending: BaseException | None) -> bool:
        """Whether a session ends so of its fault: it survives the death of its connector.

        A process that refuses a message that came twice fails with a text, which may pass as
        far as the driver knows: another session follows, without the fault.
        """
        match shim.fault:
            case Fault(act=Act.DRIVER_DIES):
                return isinstance(ending, DriverDied)
            case Fault(act=Act.REPEAT) if self.reader.choosy and _is_refused_first(shim):
                return ending is None
            case Fault(act=Act.REPEAT, is_request=True) if self.is_process:
                return ending is None and any(REFUSAL in text for text in shim.failures)
            case Fault(act=Act.REPEAT):
                return caused(ending, Violation)
            case _:
                return ending is None

    def _haunt(self, bindings: list[object], shards: tuple[int, int], shim: Faulty) -> None:
        """A session stands still, others take over and write on, it wakes up.

        `shards`: in how many ranges it wrote, and the others do.
        """
        endings: list[BaseException | None] = []
        before, after = shards

        def stand_still() -> None:
            try:
                self._go(bindings, before, shim)
            except Exception as error:  # noqa: BLE001 it is judged below
                endings.append(error)
            else:
                endings.append(None)

        thread = threading.Thread(target=stand_still)
        thread.start()
        while thread.is_alive() and not shim.fired.wait(0.005):
            pass
        try:
            if thread.is_alive():
                self._go(bindings, after)
                self.ledger.transfer(2)
                self._go(bindings, after)
        finally:
            shim.resumed.set()
            thread.join()
        (ending,) = endings
        # one that lost its keys ends with that error, or as others wrote what it is to change,
        # or read on; one that was about to begin is the newest now
        is_over = any(caused(ending, kind) for kind in (Fenced, EndpointDrifted, Forgotten))
        if ending is not None and not is_over:
            self.wrong.append(f"{shim.fault}: the session ended with {ending!r}")
        self._watch("after")

    def _tear(self, bindings: list[object]) -> None:
        """Several ranges that stand at different times."""
        self._go(bindings, SHARDS)
        self.ledger.transfer(2)
        died = Faulty(self.transport, Fault(Act.DRIVER_DIES, "commit", 2), watch=self._watch)
        try:
            self._go(bindings, SHARDS, died)
        except DriverDied:
            return
        self.wrong.append("the ranges did not come apart")

    def _go(self, bindings: list[object], shards: int, shim: Faulty | None = None) -> None:
        """A session until it is caught up. Errors: whatever ends it; DriverDied."""
        value = {
            "task": TASK,
            "connector": self.place.name,
            "config": dict(self.place.config),
            "bindings": bindings,
            "shards": shards,
            "limits": {"every_ms": 0, "idle_ms": 0, "rows": TRANSACTION_ROWS},
        }
        runner = Runner(
            Materialization.model_validate(value),
            Driver(shim or Faulty(self.transport, watch=self._watch)),
            self._client(),
            now_ms=self.now_ms,
            stopping=self.stopping,
            kernel=Kernel(),
            letters=self.letters,
        )
        runner.run(until_caught_up=True)

    def _client(self) -> Shards:
        client = self.shards()
        self.stack.callback(client.close)
        return client

    def _watch(self, event: str) -> None:
        """Check the tables after an event that may have changed them."""
        if event in {"load", "loaded", "prepared", "opened", "acknowledged"}:
            return
        with self._lock:
            self.wrong += [f"at {event}: {fault}" for fault in self.reader.look(self._seen())]

    def _seen(self) -> TableContents:
        with self.place.opened() as database, database.transaction():
            there = [name for name in TABLES if database.columns_of((name,))]
            if not there or not database.columns_of(CHECKPOINTS):
                return TableContents([], {})
            tables = {
                name: [tuple(row) for row in database.select(TABLES[name])] for name in there
            }
            return TableContents([tuple(row) for row in database.select(RANGES)], tables)

    def _expect_all(self) -> None:
        """Everything is written in the end."""
        behind = {
            name: reached
            for name, reached in self.reader.before.items()
            if reached != self.ledger.upper
        }
        if behind:
            self.wrong.append(f"expected all keys at {self.ledger.upper}, actual {behind}")
        if self.reader.choosy:
            self.wrong += self.reader.left_out(self._seen(), self.letters.amounts)


def _is_refused_first(shim: Faulty) -> bool:
    """Whether the database refused the message, so that the second one was not read."""
    return bool(shim.failures) and REFUSED_BY_DATABASE in shim.failures[0]


def caused(error: BaseException | None, kind: type[Exception]) -> bool:
    """Whether a failure was caused by one of this kind, on either side."""
    return any(isinstance(cause, kind) for cause in causes(error))


ACCOUNTS_BOUND: tuple[object, ...] = (
    {"collection": ACCOUNTS, "resource": {"table": "balances"}, "verify": "always"},
    {"collection": BRANCHES, "resource": {"table": "branches"}, "verify": "always"},
)
"""All is compared each time, so that there are loads."""
CHOOSY: tuple[object, ...] = (
    {
        "collection": ACCOUNTS,
        "resource": {"table": "balances", "adopt": True},
        "verify": "always",
        "dead_letters": "letters",
    },
    {"collection": BRANCHES, "resource": {"table": "branches"}, "verify": "always"},
)
LOG: object = {
    "collection": ACCOUNTS,
    "resource": {"table": "log", "delta_updates": True},
    "key": ["account"],
}


def bindings_of(scenario: Scenario) -> list[object]:
    """The bindings of the task."""
    match scenario.mode:
        case Mode.STANDARD:
            return [*ACCOUNTS_BOUND]
        case Mode.DELTA:
            return [LOG]
        case Mode.DEAD_LETTERS:
            return [*CHOOSY]
        case _:
            fault = scenario.fault
            is_unseen = (fault.act, fault.event) == (Act.REPEAT, "store")
            return [*ACCOUNTS_BOUND, *([] if is_unseen else [LOG])]
