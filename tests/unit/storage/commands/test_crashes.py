"""A command that ends the service twice is answered; no other command pays for it."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from streams.errors import Determinate
from streams.ids import Offset
from streams.kafka.client.positions import Mark
from streams.kafka.client.transactions import Fenced
from streams.kafka.log import Entry
from streams.kafka.memory.faulty import Fault, FaultyLogs
from streams.kafka.memory.records import MemoryMarks
from streams.storage.commands import session as session_module
from streams.storage.commands.wire import id_of
from tests.support.command_service import DESCRIPTION, NAMES, Killed, World, update


@pytest.fixture
def world() -> World:
    return World(marks=MemoryMarks())


def deadly(monkeypatch: pytest.MonkeyPatch, *ids: str) -> list[Offset]:
    """Commands of these ids kill the service that reads them; where they did."""
    deaths: list[Offset] = []
    original = session_module.read

    def read(entry: Entry) -> Any:
        if any(id_.encode() in entry.value for id_ in ids):
            deaths.append(entry.offset)
            raise Killed
        return original(entry)

    monkeypatch.setattr(session_module, "read", read)
    return deaths


def lives(world: World, most: int) -> int:
    """Start services until one survives; how many were killed."""
    for number in range(most):
        with contextlib.suppress(Killed):
            world.run()
            return number
    raise AssertionError(f"{most} services were killed")


def statuses(world: World) -> dict[str, str]:
    return {id_: answer["status"] for id_, answer in world.answers().items()}


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_command_that_ends_two_services_is_failed_by_the_third(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_waiting: bool
) -> None:
    fields = {"description": DESCRIPTION}
    before = [world.send("create", collection=f"a{n}", **fields) for n in range(3)]
    if not is_waiting:
        world.run()
    poison = world.send("create", "poison", collection="p", **fields)
    behind = [world.send("create", collection=f"b{n}", **fields) for n in range(3)]
    deaths = deadly(monkeypatch, poison)
    assert lives(world, 5) == 2
    assert len(set(deaths)) == 1
    assert statuses(world) == dict.fromkeys([*before, *behind], "DONE") | {poison: "FAILED"}
    answer = world.answers()[poison]
    assert answer["error"]["code"] == "Crashed"
    assert "2 services ended" in answer["error"]["message"]
    world.run()
    assert len(world.answers()) == len(before) + len(behind) + 1
    world.raw(codec.encode("command_create", sent("poison")))  # a copy, read or not
    assert lives(world, 5) == 2
    assert [response["status"] for response in world.responses()][-1] == "REPEATED"


def sent(id_: str) -> dict[str, Any]:
    return {"id": id_, "collection": "p", "description": DESCRIPTION}


def test_each_of_several_such_commands_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ["poison0", "x", "poison1", "y"]
    for id_ in ids:
        world.send("create", id_, collection=f"of-{id_[-1]}{id_[0]}", description=DESCRIPTION)
    deaths = deadly(monkeypatch, "poison0", "poison1")
    assert lives(world, 6) == 4
    assert all(deaths.count(death) == 2 for death in deaths)
    expected = {"poison0": "FAILED", "x": "DONE", "poison1": "FAILED", "y": "DONE"}
    assert statuses(world) == expected


def test_a_record_without_an_id_that_ends_services_is_failed_to_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.raw(b"poison, and no command")
    fine = world.send("create", collection="t", description=DESCRIPTION)
    deadly(monkeypatch, "poison,")
    assert lives(world, 5) == 2
    first = world.responses()[0]
    assert (first["command"], first["status"]) == ("", "FAILED")
    assert statuses(world) == {fine: "DONE"}


@pytest.mark.parametrize("point", ["read", "submitted", "decided", "answered"])
def test_a_service_that_is_killed_once_fails_no_command(world: World, point: str) -> None:
    ids = [world.send("create", collection=f"a{n}", description=DESCRIPTION) for n in range(9)]
    with contextlib.suppress(Killed):
        world.run(world.service(at(point, Killed())))
    world.run()
    assert statuses(world) == dict.fromkeys(ids, "DONE")


def at(wanted: str, failure: BaseException) -> Callable[[str], None]:
    """Fails at a point."""

    def reached(point: str) -> None:
        if point == wanted:
            raise failure

    return reached


def test_what_fails_without_an_end_is_not_counted(world: World) -> None:
    """Brokers that are away, or another service, twice each: the command is carried out."""
    _, write = world.ask("create", collection="t", description=DESCRIPTION)["capabilities"]
    id_ = world.send("update_and_downgrade", **update(write, 5, ("a", 1, 0, 1)))
    for _ in range(2):
        world.service(logs=FaultyLogs(world.broker.logs, [Fault.BEFORE])).step(0)
        with pytest.raises(Fenced):
            world.service(at("submitted", Fenced("another"))).step(0)
    world.run()
    assert statuses(world)[id_] == "DONE"


class Broken(MemoryMarks):
    """Marks that this client has no right to."""

    def load(self, topic: Any) -> Mark | None:
        raise Determinate(f"no right to a group about {topic}")

    def save(self, topic: Any, mark: Mark, *, is_waited_for: bool) -> None:
        raise Determinate(f"no right to a group about {topic}")


def test_without_marks_commands_are_answered_as_ever() -> None:
    world = World(marks=Broken())
    ids = [world.send("create", collection=f"a{n}", description=DESCRIPTION) for n in range(3)]
    with contextlib.suppress(Killed):
        world.run(world.service(at("read", Killed())))
    world.run()
    assert statuses(world) == dict.fromkeys(ids, "DONE")


def test_a_mark_of_what_was_answered_says_nothing(world: World) -> None:
    assert world.marks is not None
    world.ask("create", collection="t", description=DESCRIPTION)
    world.marks.save(NAMES.commands, Mark(Offset(0), Offset(1), 2), is_waited_for=True)
    assert world.ask("acquire_capabilities", collection="t")["status"] == "DONE"


@given(st.text(min_size=1, max_size=100))
def test_an_id_is_found_without_a_reader_of_avro(id_: str) -> None:
    value = codec.encode("command_create", {**sent(id_)})
    assert id_of(value) == id_


@given(st.binary(max_size=20))
def test_no_bytes_keep_an_id_from_being_looked_for(noise: bytes) -> None:
    header = codec.registry().by_name["command_create"].header
    assert id_of(noise) == ""
    assert len(id_of(header + noise)) <= 20
