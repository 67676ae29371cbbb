"""Documents that an endpoint refuses: left out, told to a topic, healed by a later change."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.driver import Driver
from connectors.protocol.json_pointers import read
from connectors.runtime.dead_letters import TooManyRefused
from connectors.runtime.runner import CannotCatchUp, Runner, Status
from connectors.runtime.task import Materialization
from connectors.transport.errors import ConnectorFailed
from connectors.transport.rpc import Rpc, server
from schemas.consumer_pb2 import Checkpoint
from streams.errors import Indeterminate, InvalidUsage
from tests.support.collections import Collections
from tests.support.endpoints import Endpoint, on_postgres, on_sqlite

PRICES = (("item", "VARCHAR"), ("price", "BIGINT"))
KEYED = {"collection": "u1", "resource": {"table": "prices"}, "dead_letters": "dead"}
DEAR = "WHEN NEW.price >= 100 BEGIN SELECT RAISE(ABORT, 'too much'); END"
LOG = {"collection": "u1", "resource": {"table": "log", "delta_updates": True}}


class Crash(BaseException):
    """The process dies here."""


class NoPauses(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return False


class Letters:
    """A topic in memory; `fail` are how many writes are not answered, though they were done."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Any, Any]] = []
        self.raw: list[tuple[str, bytes, bytes]] = []
        self.fail = 0

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        self.raw.append((topic, key, value))
        letter = (topic, read(key), read(value))
        last = [letter_ for letter_ in self.written if letter_[:2] == letter[:2]][-1:]
        if last != [letter]:
            self.written.append(letter)
        self.fail -= 1
        if self.fail >= 0:
            raise Indeterminate("no answer")

    @property
    def items(self) -> list[str]:
        return [value["document"]["item"] for _, _, value in self.written]


class World:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.driver = endpoint, endpoint.driver
        self.collections = Collections()
        self.collections.create("u1", PRICES, keys=("item",))
        self.letters = Letters()
        self.limits: dict[str, Any] = {"every_ms": 0, "idle_ms": 0}
        self.bindings: list[dict[str, Any]] = [KEYED, LOG]
        self.shards = 1

    def catch_up(
        self,
        crash: Callable[[str], None] = lambda _: None,
        report: Callable[[Status], None] = lambda _: None,
    ) -> Status:
        task = {
            "task": "shop",
            "connector": "ours",
            "config": self.endpoint.config,
            "bindings": self.bindings,
            "limits": self.limits,
            "shards": self.shards,
        }
        runner = Runner(
            Materialization.model_validate(task),
            self.driver,
            self.collections.client(),
            now_ms=lambda: 1000,
            stopping=NoPauses(),
            crash=crash,
            report=report,
            letters=self.letters,
        )
        return runner.run(until_caught_up=True)

    def begin(self) -> None:
        """Tables that are empty, and take no price of 100 or more."""
        self.collections.append("u1", 12)
        self.catch_up()
        if "path" not in self.endpoint.config:
            check = "ADD CONSTRAINT dear CHECK (price < 100)"
            self.endpoint.query(f"ALTER TABLE prices {check}")
            return
        for event in ("INSERT", "UPDATE"):
            self.endpoint.query(f"CREATE TRIGGER dear_{event} BEFORE {event} ON prices {DEAR}")

    @property
    def prices(self) -> dict[str, int]:
        return dict(self.endpoint.query("SELECT item, price FROM prices"))

    @property
    def checkpoint(self) -> Any:
        ((text,),) = self.endpoint.query("SELECT read_through FROM slackwater_checkpoints")
        return json.loads(text)


@pytest.fixture(params=[on_sqlite, on_postgres])
def world(request: Any, memory_path: Path) -> Iterator[World]:
    world_ = World(request.param(memory_path, request))
    yield world_
    world_.collections.close()


SQLITE = pytest.mark.parametrize("world", [on_sqlite], indirect=True)


def fill(world: World, time: int = 13, count: int = 9, dear: tuple[int, ...] = (3, 6)) -> None:
    rows = [(f"i{n}", 100 + n if n in dear else n, time, 1) for n in range(count)]
    world.collections.append("u1", time + 1, rows)


def test_the_refused_are_left_out_and_told(world: World) -> None:
    world.begin()
    fill(world)
    status = world.catch_up()
    assert (status.dead_letters, status.left_out) == ({"prices": 2}, {"prices": 2})
    assert world.prices == {f"i{n}": n for n in range(9) if n not in {3, 6}}
    assert world.endpoint.query("SELECT count(*) FROM log") == [(9,)]
    assert sorted(world.letters.items) == ["i3", "i6"]
    topic, key, value = next(letter for letter in world.letters.written if "i3" in str(letter))
    assert (topic, key) == ("dead", {"task": "shop", "place": "prices", "key": {"item": "i3"}})
    assert "too much" in value["error"] or "dear" in value["error"]
    assert value | {"error": ""} == {
        **key,
        "collection": "u1",
        "op": "c",
        "document": {"item": "i3", "price": 103},
        "time": 13,
        "diff": 1,
        "error": "",
    }
    assert set(world.checkpoint["ackIntents"]) == {"dead"}


@SQLITE
def test_first_contents_that_are_searched_tell_how_far_they_are(world: World) -> None:
    """Rows that are decided stay so, from session to session; those left out count too."""
    world.begin()
    world.endpoint.query("DELETE FROM slackwater_checkpoints")
    fill(world, dear=(3,))
    statuses: list[Status] = []
    world.catch_up(report=statuses.append)
    progress = [status.backfill for status in statuses if status.backfill is not None]
    steps = [step for step in progress if step.total == 9]
    assert len(steps) > 3
    assert max(step.done for step in steps) == 9
    assert all(step.done <= step.total for step in progress)
    assert statuses[-1].backfill is None


def test_a_later_change_heals(world: World) -> None:
    """Whether the endpoint has an older row of the key or none, and once it is deleted too."""
    world.begin()
    fill(world)
    world.catch_up()
    world.collections.append("u1", 16, [("i5", 5, 15, -1), ("i5", 500, 15, 1)])
    world.catch_up()
    assert world.prices["i5"] == 5
    world.collections.append("u1", 18, [("i5", 500, 17, -1), ("i5", 501, 17, 1)])
    world.catch_up()
    assert world.prices["i5"] == 5, "refused again"
    changes = [("i3", 103, 19, -1), ("i3", 3, 19, 1), ("i6", 106, 19, -1)]
    world.collections.append("u1", 20, [*changes, ("i5", 501, 19, -1)])
    world.catch_up()
    assert world.prices == {f"i{n}": n for n in range(9) if n not in {5, 6}}
    assert sorted(world.letters.items) == ["i3", "i5", "i5", "i6"]
    assert "ackIntents" not in world.checkpoint


@SQLITE
@pytest.mark.parametrize("size", [1 << 20, 1])
def test_a_crash_at_each_step_loses_and_repeats_nothing(world: World, size: int) -> None:
    """In memory, and where what waits is on disk."""
    world.begin()
    world.limits |= {"bytes": size}
    fill(world, count=5, dear=(3,))
    for number in range(100):
        failures_left = [number]

        def crash(at: str, failures_left: list[int] = failures_left) -> None:
            failures_left[0] -= 1
            if failures_left[0] < 0:
                raise Crash(at)

        try:
            world.catch_up(crash)
        except Crash:
            logged = world.endpoint.query("SELECT count(*) FROM log")
            assert logged in ([(0,)], [(5,)]), "what has no dead letters is at one time"
            continue
        break
    assert number > 8, "there are steps to die at"
    assert world.prices == {f"i{n}": n for n in range(5) if n != 3}
    assert world.letters.items == ["i3"], "told once"
    assert world.endpoint.query("SELECT count(*) FROM log") == [(5,)]


@SQLITE
def test_a_letter_that_is_not_answered_is_written_again(world: World) -> None:
    world.begin()
    fill(world)
    world.letters.fail = 2
    world.catch_up()
    assert sorted(world.letters.items) == ["i3", "i6"]
    assert len(world.prices) == 7


@SQLITE
def test_what_has_no_dead_letters_ends_the_task(world: World) -> None:
    world.bindings = [{**KEYED, "dead_letters": None}, {**LOG, "dead_letters": "dead"}]
    world.begin()
    fill(world)
    with pytest.raises(ConnectorFailed, match="too much"):
        world.catch_up()
    assert world.prices == {}
    assert world.letters.written == []


@SQLITE
def test_there_are_only_so_many(world: World) -> None:
    world.begin()
    world.limits |= {"dead_letters": 2}
    fill(world, dear=(1, 2, 3))
    with pytest.raises(TooManyRefused, match=r"prices: 2 .* already: .*too much"):
        world.catch_up()
    assert len(world.letters.written) == 2


@SQLITE
def test_a_change_of_delta_updates_is_left_out_for_good(world: World) -> None:
    world.bindings = [{**LOG, "dead_letters": "dead"}]
    world.collections.append("u1", 12)
    world.catch_up()
    world.endpoint.query(f"CREATE TRIGGER dear BEFORE INSERT ON log {DEAR}")
    fill(world)
    world.catch_up()
    assert world.endpoint.query("SELECT count(*) FROM log") == [(7,)]
    assert sorted(world.letters.items) == ["i3", "i6"]
    assert world.letters.written[0][1]["key"]["slackwater_time"] == 13
    assert "ackIntents" not in world.checkpoint


@SQLITE
def test_a_connector_that_does_not_say_is_asked_often(world: World) -> None:
    """Of one that is elsewhere there is text alone."""
    running, port = server(world.endpoint.connector, "127.0.0.1:0")
    rpc = Rpc(f"127.0.0.1:{port}")
    world.driver = Driver(rpc)
    world.begin()
    fill(world, count=6)
    world.catch_up()
    assert world.prices == {f"i{n}": n for n in range(6) if n != 3}
    assert world.letters.items == ["i3"]
    rpc.close()
    running.stop(0).wait()


@SQLITE
def test_a_violated_key_is_told_once(world: World) -> None:
    world.begin()
    world.collections.append("u1", 14, [("a", 1, 13, 1), ("a", 2, 13, 1)])
    for _ in range(2):
        with pytest.raises(CannotCatchUp, match="is not unique"):
            world.catch_up()
    ((topic, key, value),) = world.letters.written
    assert (topic, key) == ("dead", {"task": "shop", "place": "prices"})
    assert "key (item = a) is not unique: 2 rows" in value["error"]


def test_a_table_that_is_written_anew_has_left_out_nothing_yet(world: World) -> None:
    """What the checkpoint says of refused keys is of the table that was dropped."""
    world.begin()
    world.bindings = [KEYED]
    fill(world, dear=(3,))
    world.catch_up()
    world.collections.append("u1", 16, [("i5", 5, 15, -1), ("i5", 500, 15, 1)])
    assert world.catch_up().left_out == {"prices": 2}
    world.bindings = [{**KEYED, "resource": {"table": "prices", "backfill": 1}}]
    status = world.catch_up()
    assert world.prices == {f"i{n}": {3: 103, 5: 500}.get(n, n) for n in range(9)}
    assert status.left_out == {}


@SQLITE
def test_a_table_is_written_anew_while_its_transaction_is_on_its_way(world: World) -> None:
    """The rows that were decided are decided of the table that was dropped."""
    both: list[dict[str, Any]] = [KEYED, {**LOG, "dead_letters": "dead"}]
    world.bindings = both
    world.begin()
    world.limits |= {"dead_letters": 1}
    fill(world)
    with pytest.raises(TooManyRefused):
        world.catch_up()
    assert world.checkpoint["ackIntents"].keys() >= {"next"}
    anew = [{**binding, "resource": {**binding["resource"], "backfill": 1}} for binding in both]
    world.bindings = [anew[0], both[1]]
    with pytest.raises(InvalidUsage, match=r"prices: dropped, .* which log has a part of"):
        world.catch_up()
    world.bindings = anew
    status = world.catch_up()
    assert len(world.prices) == 9
    assert world.endpoint.query("SELECT count(*) FROM log") == [(9,)]
    assert (status.left_out, status.stalls) == ({}, {})


@SQLITE
def test_an_endpoint_that_says_that_more_is_decided_than_there_is(world: World) -> None:
    """The rows of the transaction would be left out."""
    world.bindings = [KEYED]
    world.begin()
    world.limits |= {"dead_letters": 1}
    fill(world)
    with pytest.raises(TooManyRefused):
        world.catch_up()
    read = "SELECT checkpoint FROM slackwater_checkpoints"
    checkpoint = Checkpoint.FromString(base64.b64decode(world.endpoint.query(read)[0][0]))
    details = json.loads(checkpoint.ack_intents["details"]) | {"written": 99}
    checkpoint.ack_intents["details"] = json.dumps(details).encode()
    text = base64.b64encode(checkpoint.SerializeToString()).decode()
    world.endpoint.query(f"UPDATE slackwater_checkpoints SET checkpoint = '{text}'")
    with pytest.raises(InvalidUsage, match="expected at most 9 rows decided, actual 99"):
        world.catch_up()


@SQLITE
def test_shards_and_dead_letters_are_refused_together(world: World) -> None:
    """Also while keys are left out that a task with dead letters had."""
    world.begin()
    fill(world)
    world.catch_up()
    world.bindings, world.shards = [{**KEYED, "dead_letters": None}], 2
    with pytest.raises(InvalidUsage, match="shards: expected 1 of a task with dead letters"):
        world.catch_up()


@SQLITE
def test_a_session_that_has_no_brokers_is_refused(world: World) -> None:
    world.letters = None  # type: ignore[assignment]
    with pytest.raises(InvalidUsage, match="dead_letters: there are no brokers"):
        world.catch_up()
