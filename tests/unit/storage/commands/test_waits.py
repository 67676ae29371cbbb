"""Whatever one client's command waits for, nobody else waits with it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from streams.errors import Determinate
from streams.ids import CollectionId, Topic
from streams.kafka.log import ChunkRef
from streams.kafka.memory.faulty import FaultyChunks, FaultyLogs
from streams.storage.commands import handlers
from streams.storage.commands import session as session_module
from streams.storage.commands.service import CommandService
from streams.storage.commands.worker_pool import CommandStuck, ThreadPerCrowd
from streams.storage.limits import LARGEST_ROWS
from tests.support.command_service import DESCRIPTION, World, stream, update

PATIENCE_S = 60.0


@dataclass
class Gate:
    """What is asked about one collection's topics waits here until it is opened."""

    about: str
    opened: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def pass_(self, topic: str) -> None:
        if topic.startswith(f"sw.{self.about}."):
            self.reached.set()
            assert self.opened.wait(PATIENCE_S), "nobody opened the gate"


class SlowLogs(FaultyLogs):
    """Bounds of one log are answered late."""

    gate: Gate

    def bounds(self, topic: Topic) -> Any:
        self.gate.pass_(topic)
        return super().bounds(topic)

    def bounds_all(self, topics: Sequence[Topic]) -> Any:
        for topic in topics:
            self.gate.pass_(topic)
        return super().bounds_all(topics)


class SlowChunks(FaultyChunks):
    """Chunks of one topic are fetched late."""

    gate: Gate

    def fetch(self, topic: Topic, refs: Sequence[ChunkRef]) -> Any:
        self.gate.pass_(topic)
        return super().fetch(topic, refs)

    def fetch_committed(self, topic: Topic, refs: Sequence[ChunkRef]) -> Any:
        self.gate.pass_(topic)
        return super().fetch_committed(topic, refs)


@dataclass
class Place:
    """A service with threads over a broker in memory; `v` is the victim's, `h` the honest's."""

    world: World
    gate: Gate
    service: CommandService
    read: dict[str, Any]
    write: dict[str, Any]
    honest: dict[str, Any]

    def until(self, is_over: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_over():
            assert time.monotonic() < deadline, "not in time"
            self.service.step(10)

    def answered(self, *ids: str) -> list[str]:
        self.until(lambda: self.world.answers().keys() >= {*ids})
        return [self.world.answers()[id_]["status"] for id_ in ids]


@pytest.fixture
def place() -> Iterator[Place]:
    world = World()
    capabilities = {
        id_: world.ask("create", collection=id_, description=DESCRIPTION)["capabilities"]
        for id_ in ("v", "h")
    }
    fields = update(capabilities["v"][1], 5, ("a", 1, 0, 1))
    (writer,) = world.ask("update_and_downgrade", **fields)["capabilities"]
    gate = Gate("v")
    logs, chunks = SlowLogs(world.broker.logs), SlowChunks(world.broker.chunks)
    logs.gate = chunks.gate = gate
    service = world.service(logs=logs, chunks=chunks, workers=ThreadPerCrowd)
    gate.opened.set()
    new_place = Place(world, gate, service, capabilities["v"][0], writer, capabilities["h"][1])
    beats = [
        world.send("heartbeat", capability=capability)
        for capability in (new_place.read, new_place.honest)
    ]
    assert new_place.answered(*beats) == ["DONE", "DONE"]  # both groups are followed
    gate.reached.clear()
    gate.opened.clear()
    yield new_place
    gate.opened.set()
    service.close()


def a_chunk() -> dict[str, Any]:
    key = "0" * 32
    return {"partition": 0, "offset": 0, "key": key, "checksum": 0, "rows": 1, "size": 1}


WAITS: dict[str, Callable[[Place], str]] = {
    "its chunks": lambda p: p.world.send(
        "update_and_downgrade",
        writes=[{"capability": p.write, "chunks": [a_chunk()], "new_frontier": 9}],
    ),
    "its counts": lambda p: p.world.send(
        "update_and_downgrade", **update(p.write, 9, ("a", 1, 5, -1)), check_counts=True
    ),
    "its log, to be read": lambda p: p.world.send("subscribe_at", capability=p.read),
    "its log, to be refused": lambda p: p.world.send(
        "heartbeat", capability={**p.read, "name": "foreign"}
    ),
    "its log, to stage": lambda p: p.world.send(
        "stage", capability=p.write, stage="load", chunks=[a_chunk()]
    ),
    "its log, to be told bound": lambda p: p.world.send(
        "create", collection="v", description=DESCRIPTION
    ),
}


@pytest.mark.parametrize("wait", WAITS)
def test_what_one_command_waits_for_keeps_no_other_group_waiting(
    place: Place, wait: str
) -> None:
    """It used to keep everybody waiting, for half a minute or longer."""
    world = place.world
    late = WAITS[wait](place)
    behind = world.send("heartbeat", capability=place.read)  # of the same group: in order
    place.until(place.gate.reached.is_set)
    for n in range(3):
        ids = [
            world.send("heartbeat", capability=place.honest),
            world.send("subscribe_at", capability={**place.honest, "right": "READ"}),
            world.send("create", collection=f"t{n}", description=DESCRIPTION),
        ]
        assert place.answered(*ids) == ["DONE", "REFUSED", "DONE"]
    assert not world.answers().keys() & {late, behind}
    place.gate.opened.set()
    place.answered(late, behind)
    offsets = {response["command"]: n for n, response in enumerate(world.responses())}
    assert offsets[late] < offsets[behind]


def test_a_group_that_cannot_be_opened_keeps_no_other_from_it(place: Place) -> None:
    """Groups used to be opened one after the other."""
    place.service.close()
    logs = SlowLogs(place.world.broker.logs)
    logs.gate = place.gate
    place.service = place.world.service(
        logs=logs, workers=ThreadPerCrowd
    )  # which follows nothing
    late = place.world.send("heartbeat", capability=place.read)
    place.until(place.gate.reached.is_set)
    fine = place.world.send("heartbeat", capability=place.honest)
    assert place.answered(fine) == ["DONE"]
    assert late not in place.world.answers()
    place.gate.opened.set()
    assert place.answered(late) == ["DONE"]


def test_who_is_told_to_stop_waits_for_what_is_under_way(place: Place) -> None:
    late = WAITS["its counts"](place)
    place.until(place.gate.reached.is_set)
    threading.Timer(0.2, place.gate.opened.set).start()
    place.service.close(PATIENCE_S)
    assert place.gate.opened.is_set()
    place.world.run()
    assert place.world.answers()[late]["status"] == "DONE"


def test_answers_out_of_order_are_known_to_the_next_service(place: Place) -> None:
    """It carries out what is left, and nothing a second time."""
    world = place.world
    late = WAITS["its counts"](place)
    place.until(place.gate.reached.is_set)
    ids = [world.send("clone", capability=place.honest) for _ in range(5)]
    assert place.answered(*ids) == ["DONE"] * 5
    count = len(world.storage().acquire_capabilities(CollectionId("h")))
    before = len(world.responses())
    world.run()
    assert world.answers()[late]["status"] == "DONE"
    assert len(world.responses()) == before + 1
    opened = world.storage()
    opened.acquire_capabilities(CollectionId("h"))
    # two of the creation, what was cloned, and what this client and the former acquired
    assert len(opened.shards.state(CollectionId("h")).capabilities) == 2 + 5 + count + 2


def test_rows_that_take_long_to_decode_keep_nobody_waiting(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """130 KB of zstd are eight million rows: seconds, on a busy machine half a minute."""
    original = handlers.table

    def table(capability: Any, body: bytes) -> pa.Table:
        place.gate.pass_(f"sw.{capability.id}.rows")
        return original(capability, body)

    monkeypatch.setattr(handlers, "table", table)
    monkeypatch.setattr(handlers, "LONG", 100)
    rows = [("a", n, 5, 1) for n in range(200)]
    fields = update(place.write, 9, *rows)
    late = place.world.send("update_and_downgrade", **fields)
    place.until(place.gate.reached.is_set)
    fine = place.world.send("update_and_downgrade", **update(place.honest, 5, ("a", 1, 0, 1)))
    assert place.answered(fine) == ["DONE"]
    assert late not in place.world.answers()
    place.gate.opened.set()
    assert place.answered(late) == ["DONE"]
    assert len(stream(*rows)) < LARGEST_ROWS


def test_who_waits_for_long_is_named_with_what_it_waits_in(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ThreadPerCrowd, "word_s", 0.0)
    late = WAITS["its chunks"](place)
    place.until(place.gate.reached.is_set)
    with caplog.at_level(logging.WARNING):
        place.until(lambda: "a command takes long" in caplog.text)
    warning = next(record for record in caplog.records if "takes long" in record.message)
    assert late in str(warning.__dict__["of"])
    assert "chunk_validation.fetch_committed" in str(warning.__dict__["in"])


def test_who_waits_beyond_every_deadline_ends_the_process(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThreadPerCrowd, "word_s", 0.0)
    monkeypatch.setattr(session_module, "DEADLINE_S", 0.0)
    WAITS["its chunks"](place)
    with pytest.raises(CommandStuck, match="fetch_committed"):
        place.until(lambda: False)


def test_a_command_that_fails_is_tried_again_beside_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait that is over its deadline raises; the command has more tries, others go on."""
    monkeypatch.setattr(ThreadPerCrowd, "retry_s", 0.0)
    tries: list[int] = []

    def pass_(topic: str) -> None:
        if topic.startswith("sw.v."):
            tries.append(1)
            if len(tries) < 3:
                raise Determinate("no answer in time")

    monkeypatch.setattr(place.gate, "pass_", pass_)
    late = WAITS["its counts"](place)
    fine = place.world.send("heartbeat", capability=place.honest)
    assert place.answered(fine, late) == ["DONE", "DONE"]
    assert len(tries) >= 3


def test_a_command_that_names_two_clients_collections_has_neither_wait_for_the_other() -> None:
    """After a start nothing is followed yet; then it chained the honest to the slow one."""
    world = World()
    writers = {
        id_: world.ask("create", collection=id_, description=DESCRIPTION)["capabilities"][1]
        for id_ in ("v", "h")
    }
    gate = Gate("v")
    logs, chunks = SlowLogs(world.broker.logs), SlowChunks(world.broker.chunks)
    logs.gate = chunks.gate = gate
    service = world.service(logs=logs, chunks=chunks, workers=ThreadPerCrowd)
    place = Place(world, gate, service, {}, writers["v"], writers["h"])
    try:
        slow = world.send("update_and_downgrade", **update(writers["v"], 1), check_counts=True)
        writes = [update(writer, 1)["writes"][0] for writer in writers.values()]
        both = world.send("update_and_downgrade", writes=writes)
        (status,) = place.answered(world.send("heartbeat", capability=writers["h"]))
        assert status == "DONE"
        assert slow not in world.answers()
        gate.opened.set()
        assert place.answered(slow, both) == ["DONE", "REFUSED"]
    finally:
        gate.opened.set()
        service.close(PATIENCE_S)
