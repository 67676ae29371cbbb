"""What ends a replica's process, so that its supervisor starts another."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.compute.description import DataflowDescription
from streams.compute.parameters import DEFAULTS
from streams.compute.peeks import CancelPeek
from streams.compute.protocol import (
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Reconciled,
    Response,
    Status,
    UpdateConfiguration,
)
from streams.compute.reader import ReceivedCommand, UnreadableCommand
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Offset
from streams.replica import main
from streams.replica.driver.batch_timings import Timings
from streams.replica.driver.status_reports import StatusReporter
from streams.replica.main import _Server
from tests.support.controlled import ALONE, NO_PEEKS, ignored
from tests.support.market import Market
from tests.support.sparkless import BUCKETS, Replica, World


@pytest.mark.parametrize("where", ["a thread", "the shards", "the peeks"])
def test_a_defect_ends_the_replica(tmp_path: Path, where: str) -> None:
    scheduler = Replica(World(), "a", tmp_path).scheduler
    nothing: Any = SimpleNamespace(poll=lambda _: (), nonce="", tell=lambda *_: None)
    nothing.sinks = SimpleNamespace(responses=tuple)
    server = _Server(
        scheduler.config, scheduler.store, nothing, nothing, nothing, ALONE, NO_PEEKS
    )
    server.machinery = SimpleNamespace(  # type: ignore[assignment]  # its parts
        scheduler=scheduler, sinks=nothing.sinks, own=ignored, allow=ignored
    )
    server.hear(nothing)
    defect = ZeroDivisionError("defect")
    if where == "a thread":
        scheduler.defect = defect
    elif where == "the peeks":
        server.peeks = SimpleNamespace(broken=defect)  # type: ignore[assignment]  # its state
    else:
        scheduler.shards.following.defect = defect
    with pytest.raises(ZeroDivisionError):
        server.hear(nothing)


def test_what_was_created_late_in_an_iteration_is_not_forgotten_at_a_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    replica.follow()
    store = replica.scheduler.store
    for description in market.world.descriptions:
        store.files.write(f"checkpoints/{description.export}/9", b"a record")
    early, *late, dropped = market.world.descriptions
    commands: tuple[Command, ...] = (
        CreateTimely("n", 1),
        CreateInstance("sw", BUCKETS),
        CreateDataflow(early),
        InitializationComplete(),
        AllowWrites(),
        *map(CreateDataflow, late),
    )
    server = _server(monkeypatch, replica)
    server.hear(reader(*commands))
    assert store.stored() == {early.export, *(description.export for description in late)}
    assert dropped.export not in store.stored()


def test_a_cache_of_another_boot_is_dropped_before_anything_runs_in_its_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = Replica(World(), "a", tmp_path).scheduler.config
    (tmp_path / "checkpoints" / "u1").mkdir()
    (tmp_path / "boot").write_text("another")

    def session(_: object, state: Path) -> object:
        assert not list((state / "checkpoints").iterdir())
        raise InvalidUsage("no Spark here")

    monkeypatch.setattr(main, "spark_session", session)
    with pytest.raises(InvalidUsage, match="no Spark here"):
        main.Replica(config).run()


def reader(*commands: Command | UnreadableCommand) -> Any:
    """A reader of the commands, at the offsets 0 and on."""
    messages = tuple(
        ReceivedCommand(Offset(at), command) for at, command in enumerate(commands)
    )
    return SimpleNamespace(poll=lambda _: messages)


def test_what_cannot_be_read_or_is_illegal_is_told_and_the_replica_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    market = Market(monkeypatch, 1)
    market.views()
    replica = Replica(market.world, "a", tmp_path)
    server = _server(monkeypatch, replica)
    broken, *others = market.world.descriptions
    calls: list[tuple[int, str]] = []
    refused: list[tuple[str, str]] = []
    created: list[str] = []

    def create(description: DataflowDescription) -> None:
        if description.export == broken.export:
            raise ZeroDivisionError("what nobody foresaw")
        created.append(description.export)

    answers: Any = server.answers
    answers.passed_over = lambda _, at, why: calls.append((at, why))
    answers.refused = lambda *arguments: refused.append(arguments)
    sinks = SimpleNamespace(responses=tuple, repeat=lambda: None)
    parts = SimpleNamespace(
        scheduler=replica.scheduler,
        sinks=sinks,
        timings=Timings(None),
        create=create,
        own=lambda **_: None,
        allow=lambda **_: None,
    )
    monkeypatch.setattr(main, "assemble", lambda *_: parts)
    server.hear(
        reader(
            CreateTimely("n", 1),
            AllowWrites(),
            UnreadableCommand("avro header"),
            CreateInstance("sw", BUCKETS),
            *map(CreateDataflow, market.world.descriptions),
            InitializationComplete(),
            AllowWrites(),
        )
    )
    assert [at for at, _ in calls] == [1, 2]
    assert "not legal in the stage" in calls[0][1]
    assert calls[1][1] == "avro header"
    assert refused == [(broken.export, "what nobody foresaw")]
    assert created == [other.export for other in others]


def test_sources_and_sinks_are_run_as_long_as_the_replica_is_their_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = _server(monkeypatch, Replica(World(), "a", tmp_path))
    server.ownership = membership = SimpleNamespace(is_owner=False, trouble="")  # type: ignore[assignment]  # what is read of it
    server.hear(reader(CreateTimely("n", 1), CreateInstance("sw", 2)))
    parts: Any = server.machinery
    owned: list[dict[str, object]] = []
    parts.own = lambda **state: owned.append(state)
    for state in ((True, ""), (True, ""), (False, ""), (False, "no right")):
        membership.is_owner, membership.trouble = state
        server.hear(reader())
    assert owned == [
        {"is_owner": True, "obstacle": ""},
        {"is_owner": False, "obstacle": ""},
        {"is_owner": False, "obstacle": "no right"},
    ]


def test_nothing_is_answered_before_an_iteration_has_named_what_it_wants(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = _server(monkeypatch, Replica(World(), "a", tmp_path))
    written: list[tuple[str, Response]] = []
    write = lambda nonce, said: written.extend((nonce, one) for one in said)  # noqa: E731  # short
    server.answers = StatusReporter(SimpleNamespace(write=write))  # type: ignore[arg-type]  # what it uses
    before = (CreateTimely("n", 1), CreateInstance("sw", BUCKETS), InitializationComplete())
    server.hear(reader(*before, AllowWrites()))
    assert written == [("n", Reconciled(0, 0, 0))]
    written.clear()
    for command in (CreateTimely("m", 2), AllowWrites(), CreateInstance("sw", BUCKETS)):
        server.hear(reader(command))
        server.answers.next_alive = 0.0
        server.answers.alive()
        assert written == []
    server.hear(reader(InitializationComplete()))
    (nonce, skipped), reconciled = written
    assert isinstance(skipped, Status)
    assert nonce == "m"
    assert "not legal in the stage greeted" in skipped.message
    assert reconciled == ("m", Reconciled(0, 0, 0))


def test_a_configuration_is_gone_by_and_what_is_not_known_of_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = _server(monkeypatch, Replica(World(), "a", tmp_path))
    written: list[Response] = []
    write = lambda _, said: written.extend(said)  # noqa: E731  # short
    server.answers = StatusReporter(SimpleNamespace(write=write))  # type: ignore[arg-type]  # what it uses
    first = CreateTimely("n", 1, {"heartbeat_ms": 1_000, "later": 7})
    server.hear(reader(first, CreateInstance("sw", BUCKETS), InitializationComplete()))
    assert server.answers.parameters == DEFAULTS.updated({"heartbeat_ms": 1_000})
    (told, _) = written
    message = "command at offset 0: parameters later are unknown: ignored"
    assert told == Status(CollectionId(server.config.commands), "running", message)
    server.hear(reader(UpdateConfiguration({"heartbeat_ms": 9, "frontiers_ms": 500})))
    assert server.answers.parameters == DEFAULTS.updated({"heartbeat_ms": 1_000})
    assert isinstance(written[-1], Status)
    assert written[-1].message.endswith("heartbeat_ms: expected 1000 to 4000, actual 9")


def test_peeks_do_not_make_it_look_at_dataflows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = _server(monkeypatch, Replica(World(), "a", tmp_path))
    told, clock = list[float](), [100.0]
    server.answers = StatusReporter(SimpleNamespace(write=lambda *_: None))  # type: ignore[arg-type]  # what it uses
    monkeypatch.setattr(StatusReporter, "tell", lambda *_: told.append(clock[0]))
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    before = (CreateTimely("n", 1), CreateInstance("sw", BUCKETS), InitializationComplete())
    server.hear(reader(*before))
    server.hear(reader(CancelPeek("p")))
    server.hear(reader(CancelPeek("p"), AllowWrites()))
    assert told == [100.0, 100.0]
    server.hear(reader())
    assert len(told) == 3
    clock[0] += 0.2
    server.hear(reader(CancelPeek("p")))
    assert told[3:] == [100.2]


def test_the_right_to_write_belongs_to_an_iteration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = _server(monkeypatch, Replica(World(), "a", tmp_path))
    instance = CreateInstance("sw", BUCKETS)
    server.hear(reader(CreateTimely("n", 1), instance, InitializationComplete()))
    parts: Any = server.machinery
    rights: list[bool] = []
    parts.allow = lambda *, writes: rights.append(writes)
    server.hear(reader(AllowWrites()))
    assert rights == [True]
    server.hear(reader(CreateTimely("m", 2), instance, InitializationComplete(), AllowWrites()))
    assert rights == [True], "an iteration in one piece interrupts nobody"
    server.hear(reader(CreateTimely("o", 3)))
    server.hear(reader(instance, InitializationComplete()))
    assert rights == [True, False]
    server.hear(reader(AllowWrites()))
    assert rights == [True, False, True]


def test_new_settings_end_the_replica_so_that_another_takes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = _server(monkeypatch, Replica(World(), "a", tmp_path))
    server.hear(reader(CreateTimely("n", 1), CreateInstance("sw", 2)))
    with pytest.raises(InvalidUsage, match="from 2 buckets in namespace sw to 3 buckets"):
        server.hear(reader(CreateTimely("m", 2), CreateInstance("sw", 3)))


def _server(monkeypatch: pytest.MonkeyPatch, replica: Replica) -> _Server:
    """One whose machinery does nothing."""
    ignore = lambda *_: None  # noqa: E731  # short for what nobody looks at
    answers: Any = SimpleNamespace(
        nonce="",
        begin=ignore,
        pause=lambda: None,
        reconciled=ignore,
        tell=ignore,
        add=ignore,
        clock=time.monotonic,
    )
    sinks = SimpleNamespace(responses=tuple, repeat=ignore)
    parts = SimpleNamespace(
        scheduler=replica.scheduler,
        sinks=sinks,
        timings=Timings(None),
        create=ignore,
        own=lambda **_: None,
        allow=lambda **_: None,
    )
    monkeypatch.setattr(main, "assemble", lambda *_: parts)
    nothing: Any = SimpleNamespace()
    config, store = replica.scheduler.config, replica.scheduler.store
    return _Server(config, store, nothing, nothing, answers, ALONE, NO_PEEKS)
