"""Faults between a materialization and its connector: nothing goes wrong, and defects do."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from connectors.driver import Transport
from connectors.protocol.session import StreamState
from connectors.protocol.violations import Violation
from connectors.runtime import dead_letters, ranges, reader, session
from connectors.runtime.dead_letters import Refusals
from connectors.sql import fence
from connectors.sql.fence import Fenced, FencedRange
from connectors.sql.transactor import Counts, SqlTransactor
from connectors.testing.faults import EVENTS, Act, Fault, FaultyChannel
from connectors.transport.stdio import Command
from streams.app.signals import Stop
from streams.kafka.memory.logs import MemoryBroker
from streams.torture.connectors.databases import Place, on_duckdb, on_postgres, on_sqlite
from streams.torture.connectors.run import COMMAND, Broker, closed
from streams.torture.connectors.run import Run as Soak
from streams.torture.connectors.scene import Mode, Scenario, Scene, scenarios
from tests.support.postgres import Server

Run = Callable[..., list[str]]

AT = dict(zip(Act, ["store", "commit", "committed", "prepare", "load"], strict=True))
"""Where each fault comes in the short form; a table of every change loads nothing."""
NUMBERS = itertools.count()
QUICK = {(Mode.SPLIT, Act.ZOMBIE), (Mode.MERGE, Act.DRIVER_DIES)}


def scenario(mode: Mode, act: Act) -> Scenario:
    event = "commit" if mode is Mode.DELTA and AT[act] == "load" else AT[act]
    return Scenario(mode, Fault(act, event, 2))


SHORT = [
    pytest.param(
        scenario(mode, act),
        marks=()
        if mode in {Mode.STANDARD, Mode.DELTA, Mode.DEAD_LETTERS} or (mode, act) in QUICK
        else pytest.mark.long,
    )
    for mode in Mode
    for act in Act
]


@pytest.fixture
def run(memory_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    scenes: list[Scene] = []

    def place(database: str) -> Place:
        if database == "postgres":
            server: Server = request.getfixturevalue("postgres")
            return on_postgres(server.embedded.config, f"torture_{next(NUMBERS)}")
        make = {"sqlite": on_sqlite, "duckdb": on_duckdb}[database]
        return make(memory_path / f"{len(scenes)}.{database}")

    def wrong(
        chosen: Scenario, database: str = "sqlite", transport: Transport | None = None
    ) -> list[str]:
        memory = MemoryBroker(lambda: 1000)
        broker = Broker(memory.logs, memory.chunks, memory.topics)
        where = place(database)
        scene = Scene(
            shards=lambda: broker.client("sw"),
            transport=transport or where.transport,
            place=where,
            rng=Random(1),
            now_ms=lambda: 1000,
            kill=closed,
            is_process=transport is not None,
        )
        scenes.append(scene)
        scene.run(chosen)
        return scene.wrong

    yield wrong
    for scene in scenes:
        scene.close()


@pytest.mark.parametrize("chosen", SHORT, ids=str)
def test_a_fault_loses_and_repeats_nothing(chosen: Scenario, run: Run) -> None:
    assert not run(chosen)


@pytest.mark.long
@pytest.mark.parametrize("chosen", [*scenarios()], ids=str)
def test_no_fault_at_any_message_loses_or_repeats_anything(chosen: Scenario, run: Run) -> None:
    assert not run(chosen)


IN_OTHERS = [
    pytest.param(
        database,
        scenario(mode, act),
        marks=()
        if (mode, act)
        in {(Mode.STANDARD, Act.CONNECTOR_DIES), (Mode.DEAD_LETTERS, Act.DRIVER_DIES)}
        else pytest.mark.long,
    )
    for database in ("postgres", "duckdb")
    for mode in Mode
    for act in Act
]


@pytest.mark.parametrize(("database", "chosen"), IN_OTHERS, ids=str)
def test_a_fault_loses_and_repeats_nothing_in_any_database(
    database: str, chosen: Scenario, run: Run
) -> None:
    assert not run(chosen, database)


@pytest.mark.parametrize(
    "event",
    ["open", *(pytest.param(event, marks=pytest.mark.long) for event in ("commit", "opened"))],
)
def test_a_process_refuses_a_message_that_comes_twice_with_a_text(event: str, run: Run) -> None:
    command = Command((*COMMAND, "sqlite"), os.environ)
    assert not run(Scenario(Mode.DELTA, Fault(Act.REPEAT, event, 1)), transport=command)


def test_a_process_that_takes_a_message_twice_is_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unnoticed(self: FaultyChannel, data: bytes) -> None:
        self.shim.strikes("open")
        self.inner.send(data)

    monkeypatch.setattr(FaultyChannel, "send", unnoticed)
    command = Command((*COMMAND, "sqlite"), os.environ)
    (wrong,) = run(Scenario(Mode.DELTA, Fault(Act.REPEAT, "open", 1)), transport=command)
    assert wrong == "repeat at open 1: the session ended with None"


def test_a_fault_that_never_comes_about_fails_the_run(run: Run) -> None:
    (wrong,) = run(Scenario(Mode.DELTA, Fault(Act.STALL, "commit", 99)))
    assert wrong == "stall at commit 99: it never came about"


def test_a_run_counts_what_it_did(memory_path: Path) -> None:
    memory = MemoryBroker(lambda: 1000)
    broker = Broker(memory.logs, memory.chunks, memory.topics)
    places = lambda number: on_sqlite(memory_path / f"{number}.db")  # noqa: E731
    verdict = Soak(broker, places, seed=5).run(0)
    assert verdict.wrong == ()
    assert verdict.figures["scenarios"] == 1
    assert verdict.figures["looks at the tables"] > 5
    stopped = Stop()
    stopped.set()
    (wrong,) = Soak(broker, places, seed=5, stopping=stopped).run(0).wrong
    assert wrong == "no scenario was run: nothing was tested"


def test_a_process_is_killed_at_every_event_early(memory_path: Path) -> None:
    """One run in eight had a process, whatever its fault was: most events were never met."""
    met: set[str] = set()
    memory = MemoryBroker(lambda: 1000)
    broker = Broker(memory.logs, memory.chunks, memory.topics)
    soak = Soak(broker, lambda number: on_sqlite(memory_path / f"{number}.db"), seed=5)
    for number, chosen in enumerate(itertools.islice(soak.order(Random(5)), 100)):
        if chosen.fault.act is Act.CONNECTOR_DIES and soak.is_process(number, chosen.fault):
            soak.killed_at.add(chosen.fault.event)
            met.add(chosen.fault.event)
    assert met == {event for event in EVENTS if "acknowledge" not in event}


def test_every_kind_of_message_has_its_faults() -> None:
    for mode in Mode:
        struck = {case.fault.event for case in scenarios() if case.mode is mode}
        loads = {"load", "loaded"} if mode is Mode.DELTA else set()
        assert struck == {*EVENTS} - loads


Patch = Callable[[pytest.MonkeyPatch], None]


def letters_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A document is left out, and nobody is told."""
    patch.setattr(Refusals, "_write", lambda *_: None)


def a_range_loses_its_last_row(patch: pytest.MonkeyPatch) -> None:
    """Of the rows that are tried together the last one is not written."""
    ranges_of = dead_letters.ranges

    def short(transaction: Any, numbers: Any, begin: int, end: int) -> Any:
        return ranges_of(transaction, numbers, begin, max(begin + 1, end - 1))

    patch.setattr(dead_letters, "ranges", short)


def rows_are_seen_early(patch: pytest.MonkeyPatch) -> None:
    """What is stored is in the table before the commit."""
    store = SqlTransactor.store

    def early(self: SqlTransactor, message: Any) -> None:
        store(self, message)
        table = self.tables[message.binding]
        with self.database.transaction():
            self._write(table, self.rows[message.binding])
        self._clear(table.store)
        self.rows[message.binding] = Counts()

    patch.setattr(SqlTransactor, "store", early)


def the_checkpoint_is_early(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint is written when the loads end."""
    flush = SqlTransactor.flush

    def early(self: SqlTransactor, message: Any) -> Any:
        yield from flush(self, message)
        with self.database.transaction():
            self._guard()

    def at_once(self: SqlTransactor, message: Any) -> Any:
        return iter(list(early(self, message)))

    patch.setattr(SqlTransactor, "flush", at_once)


def the_fence_is_open(patch: pytest.MonkeyPatch) -> None:
    """Who lost the range writes all the same."""
    guard = SqlTransactor._guard

    def careless(self: SqlTransactor) -> None:
        with contextlib.suppress(Fenced):
            guard(self)

    patch.setattr(SqlTransactor, "_guard", careless)


def nobody_minds_the_order(patch: pytest.MonkeyPatch) -> None:
    """Neither side looks whether a message is legal."""
    take = StreamState.take

    def careless(self: StreamState, message: Any) -> None:
        with contextlib.suppress(Violation):
            take(self, message)

    patch.setattr(StreamState, "take", careless)


def parts_begin_at_zero(patch: pytest.MonkeyPatch) -> None:
    """A range without a row of its own begins at zero."""
    counting = fence.counting
    patch.setattr(
        fence,
        "counting",
        lambda rows, key: None if len(rows) == 1 else counting(rows, key),
    )


def the_narrowest_row_counts(patch: pytest.MonkeyPatch) -> None:
    """A range around others goes on from its own old row, or from zero (reference 1.8)."""

    def narrowest(rows: Any, begin: int, end: int) -> Any:
        covering = [row for row in rows if row.key_begin <= begin and row.key_end >= end]
        row = min(covering, key=lambda row: row.key_end - row.key_begin, default=None)
        checkpoint = row.checkpoint if row else fence.ZERO
        return [
            FencedRange(key_begin=begin, key_end=end, fence=0, opened=0, checkpoint=checkpoint)
        ]

    patch.setattr(fence, "parts_of", narrowest)


def the_furthest_part_counts(patch: pytest.MonkeyPatch) -> None:
    """What the parts that are behind lack is left out."""
    joined = ranges.joined

    def furthest(reaches: Any) -> Any:
        parts = joined(reaches)
        reached = max(part.frontier for part in parts if part.frontier is not None)
        return joined(ranges.Reach(part.key_begin, part.key_end, reached) for part in parts)

    patch.setattr(session, "joined", furthest)


def parts_ahead_are_read_again(patch: pytest.MonkeyPatch) -> None:
    """What some parts have is written to them once more."""
    patch.setattr(reader, "unwritten", lambda _, hashes, __: pa.array([True] * len(hashes)))


DEFECTS: dict[Act, tuple[Patch, str]] = {
    Act.DRIVER_DIES: (rows_are_seen_early, "commit"),
    Act.CONNECTOR_DIES: (the_checkpoint_is_early, "commit"),
    Act.STALL: (the_checkpoint_is_early, "commit"),
    Act.REPEAT: (nobody_minds_the_order, "commit"),
    Act.ZOMBIE: (the_fence_is_open, "commit"),
}
OF_DEAD_LETTERS = [letters_are_lost, a_range_loses_its_last_row]
OF_RANGES = [
    (parts_begin_at_zero, Mode.SPLIT),
    (the_narrowest_row_counts, Mode.MERGE),
    (the_furthest_part_counts, Mode.MERGE),
    (parts_ahead_are_read_again, Mode.MERGE),
]
PLANTED = [
    pytest.param(
        defect,
        Scenario(mode, Fault(act, event, 2)),
        marks=() if mode is Mode.DELTA else pytest.mark.long,
    )
    for mode in Mode
    for act, (defect, event) in DEFECTS.items()
] + [
    pytest.param(defect, Scenario(mode, Fault(Act.DRIVER_DIES, "prepare", 1)))
    for defect, mode in [*OF_RANGES, *((fault, Mode.DEAD_LETTERS) for fault in OF_DEAD_LETTERS)]
]


@pytest.mark.parametrize(
    ("defect", "chosen"), PLANTED, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_every_scenario_finds_a_planted_defect(
    defect: Patch, chosen: Scenario, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        defect(patch)
        wrong = run(chosen)
    assert wrong
    assert "never came about" not in wrong[0]


@pytest.mark.parametrize(
    ("defect", "mode", "database"),
    [
        (the_checkpoint_is_early, Mode.DELTA, "postgres"),
        (the_checkpoint_is_early, Mode.DELTA, "duckdb"),
        (letters_are_lost, Mode.DEAD_LETTERS, "postgres"),
        pytest.param(letters_are_lost, Mode.DEAD_LETTERS, "duckdb", marks=pytest.mark.long),
    ],
)
def test_a_planted_defect_is_found_in_every_database(
    defect: Patch, mode: Mode, database: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        defect(patch)
        wrong = run(Scenario(mode, Fault(Act.CONNECTOR_DIES, "commit", 2)), database)
    assert wrong
    assert "never came about" not in wrong[0]
