"""The command topics on a real broker: a stranger's client, services as processes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from streams.app.service_config import FENCED
from streams.errors import InvalidUsage
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import TopicChoices
from streams.kafka.topics import TopicKind, TopicSpec
from streams.storage import Storage
from streams.storage.client.maintenance import roll_up
from streams.storage.commands.session import CommandTopics
from tests.stranger import chunk, wire
from tests.stranger.client import Client, stream
from tests.stranger.reader import Reader
from tests.support.command_place import TABLE, Place, rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_responses_that_somebody_made_to_last_too_short_are_refused(
    place: Place, broker: EmbeddedBroker
) -> None:
    """Commands would be carried out again: neither the topics nor the commands are touched."""
    names = CommandTopics(place.namespace)
    specs = [
        TopicSpec(names.commands, 1, TopicKind.COMMANDS),
        TopicSpec(names.responses, 1, TopicKind.RESPONSES),
    ]
    hour, kind = {"retention.ms": "3600000"}, TopicKind.RESPONSES
    client = ClientSettings(broker.bootstrap)
    short = KafkaBroker(client, TopicChoices(settings={kind: hour}))
    with closing(short), closing(KafkaBroker(client)) as plain:
        short.topics.create(specs[1:])
        for topics in (short.topics, plain.topics):
            with pytest.raises(InvalidUsage, match=r"responses: retention\.ms: expected"):
                topics.create(specs)


def test_the_whole_life_cycle(place: Place) -> None:
    with place.service() as service, place.client() as client, place.reader() as reader:
        assert client.refused("acquire_capabilities", collection="t1") == "NotBound"
        read, write = client.done("create", collection="t1", description=TABLE, group="g")
        assert (read["frontier"], write["frontier"]) == (0, 0)
        again = client.refused("create", collection="t1", description=TABLE, group="g")
        assert again == "AlreadyBound"
        write = client.write(write, 10, rows(("a", 1, 3, 1), ("b", 2, 4, 2)))
        write = client.write(write, 20, rows(("b", 2, 12, -1), ("c", None, 15, 1)))
        assert reader.snapshot("g", "t1", 4) == {("a", 1): 1, ("b", 2): 2}
        assert reader.snapshot("g", "t1", 19) == {("a", 1): 1, ("b", 2): 1, ("c", None): 1}
        assert reader.listen("g", "t1", 4) == {("b", 2, 12): -1, ("c", None, 15): 1}
        check_cuts(client, read)
        (read,) = client.done("downgrade", capability=read, new_frontier=11)
        assert reader.fold("g").collections["t1"]["since"] == 11
        assert client.refused("downgrade", capability=read, new_frontier=5) == "NotForward"
        (other,) = client.done("clone", capability=read)
        (mine,) = client.done("transfer", capability=write)
        assert client.refused("heartbeat", capability=write) == "InvalidCapability"
        write = client.write(mine, 30, rows(("d", 4, 20, 1)))
        lost = client.ask(
            "update_and_downgrade",
            writes=[{"capability": mine, "updates": None, "new_frontier": 25}],
        )
        assert (lost["status"], lost["current"]["frontier"]) == ("LOST", 30)
        client.done("drop", collection="t1", capability=other)
        assert client.refused("heartbeat", capability=other) == "InvalidCapability"
        check_expiry(client, read)
        check_sealed_and_forgotten(client, reader, read, write)
        service.terminate()
        assert service.wait(30) == 0


def check_cuts(client: Client, read: dict[str, Any]) -> None:
    """A client that does not fold logs is told where the updates lie."""
    cut = client.ask("subscribe_at", capability=read, after=15)["cut"]
    assert (cut["upper"], cut["chunks"]) == (20, cut["chunks"])
    assert [(c["lower"], c["upper"]) for c in cut["chunks"]] == [(16, 20)]
    snapshot = client.ask("subscribe_at", capability=read)["cut"]
    assert [(c["lower"], c["upper"]) for c in snapshot["chunks"]] == [(0, 10), (10, 20)]
    early = client.ask("subscribe_at", capability=read, until=10)["cut"]
    assert len(early["chunks"]) == 1


def check_expiry(client: Client, read: dict[str, Any]) -> None:
    (brief,) = client.done("clone", capability=read, lease_ms=50)
    time.sleep(0.2)
    assert client.refused("heartbeat", capability=brief) == "InvalidCapability"
    one, two = client.done("acquire_capabilities", collection="t1")
    assert (one["frontier"], two["frontier"]) == (11, 30)
    client.done("drop", collection="t1", capability=one)
    client.done("drop", collection="t1", capability=two)
    capabilities = client.done(
        "acquire_capabilities", collection="t1", critical=True, token="me"
    )
    (downgraded,) = client.done(
        "downgrade", capability=capabilities[0], new_frontier=12, new_token="you"
    )
    assert downgraded["token"] == "you"
    assert client.refused("heartbeat", capability=capabilities[0]) == "FencedCapability"
    client.done("drop", collection="t1", capability=downgraded)
    client.done("drop", collection="t1", capability=capabilities[1])


def check_sealed_and_forgotten(
    client: Client, reader: Reader, read: dict[str, Any], held: dict[str, Any]
) -> None:
    answer = client.write(held, None, rows(("e", 5, 77, 1)))
    assert answer["frontier"] is None
    assert reader.fold("g").collections["t1"]["upper"] is None
    assert reader.snapshot("g", "t1", 1 << 40)["e", 5] == 1
    write = [{"capability": held, "updates": None, "new_frontier": 40}]
    assert client.refused("update_and_downgrade", writes=write) == "Sealed"
    late, sealed = client.done("acquire_capabilities", collection="t1")
    assert sealed["frontier"] is None
    assert client.refused("drop", collection="t1") == "InvalidCapability"
    client.done("drop", collection="t1", capability=read, whole=True)
    assert client.refused("subscribe_at", capability=read) == "InvalidCapability"
    assert client.ask("subscribe_at", capability=late)["status"] == "DONE"
    client.done("drop", collection="t1", capability=late)  # the last reader
    assert client.refused("subscribe_at", capability=read) == "Unreadable"
    assert client.refused("update_and_downgrade", writes=write) == "Forgotten"
    assert client.refused("clone", capability=read) == "Forgotten"
    useless = client.done("acquire_capabilities", collection="t1")
    assert [capability["frontier"] for capability in useless] == [None, None]
    assert client.refused("create", collection="t1", description=TABLE) == "NeverReused"
    client.done("drop", collection="t1", capability=read, whole=True)


def test_what_is_wrong_with_a_command_is_said(served: Place) -> None:
    with served.client() as client:
        read, writer = client.done("create", collection="t2", description=TABLE)
        earlier = len(client.reports)
        for expected, write in mistakes(read, writer):
            assert client.refused("update_and_downgrade", writes=[write]) == expected, write
        counted = {"capability": writer, "updates": stream(rows(("a", 1, 0, -1)))}
        refused = client.refused(
            "update_and_downgrade", writes=[{**counted, "new_frontier": 5}], check_counts=True
        )
        assert refused == "NegativeMultiplicity"
        assert client.refused("create", collection="x/y", description=TABLE) == "InvalidUsage"
        assert client.refused("create", collection="x", description="{}") == "InvalidUsage"
        odd = '{"columns":[{"name":"a","type":"NONSENSE"}],"keys":[],"kind":"table"}'
        assert client.refused("create", collection="x", description=odd) == "InvalidUsage"
        assert client.refused("clone", capability=read, lease_ms=0) == "InvalidUsage"
        client.publish(b"nobody knows this")
        client.publish(b"")
        writer = client.write(writer, 5, rows(("a", 1, 0, 1)))  # and life goes on
        assert writer["frontier"] == 5
        reports = client.reports[earlier:]
        assert [report["error"]["code"] for report in reports] == ["Malformed"] * 2


def mistakes(
    read: dict[str, Any], write: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    fine = stream(rows(("a", 1, 0, 1)))
    good = {"capability": write, "updates": fine, "new_frontier": 5}
    text = pa.table({"name": ["a"], "size": ["b"], "time": [0], "diff": [1]})
    yield "WrongRows", {**good, "updates": stream(text)}
    yield "WrongRows", {**good, "updates": stream(rows((None, 1, 0, 1)))}
    yield "WrongRows", {**good, "updates": b"not arrow"}
    yield "WrongRows", {**good, "updates": fine[: len(fine) // 2]}
    yield "OutsideInterval", {**good, "updates": stream(rows(("a", 1, 5, 1)))}
    yield "NothingBetween", {**good, "new_frontier": 0}
    yield "InvalidCapability", {**good, "capability": read}
    yield "InvalidCapability", {**good, "capability": {**write, "name": "foreign"}}
    yield "NotBound", {**good, "capability": {**write, "collection": "nowhere"}}
    missing = {
        "partition": 0,
        "offset": 99,
        "key": "k",
        "checksum": 0,
        "rows": 1,
        "size": 1,
    }
    yield "WrongRows", {**good, "updates": None, "chunks": [missing]}


def test_chunks_may_be_written_beforehand(served: Place) -> None:
    with served.client() as client, served.reader() as reader:
        _, writer = client.done("create", collection="t3", description=TABLE)
        topic, group = f"{served.namespace}.t3.data", reader.fold("t3").group
        ((body, count),) = chunk.written(rows(("a", 1, 1, 1), ("b", 2, 9, 1)))
        ref = client.write_chunk(topic, group, "t3", body, count)
        load = {"capability": writer, "stage": "load"}
        assert client.done("stage", **load, chunks=[ref], lease_ms=60_000) == []
        write = {"capability": writer, "updates": None, "chunks": [ref], "new_frontier": 9}
        assert client.refused("update_and_downgrade", writes=[write]) == "OutsideInterval"
        damaged = {**ref, "checksum": 1}
        wrong = {**write, "chunks": [damaged], "new_frontier": 10}
        assert client.refused("update_and_downgrade", writes=[wrong]) == "WrongRows"
        inline = stream(rows(("c", 3, 2, 1)))
        client.done(
            "update_and_downgrade", writes=[{**write, "updates": inline, "new_frontier": 10}]
        )
        client.done("stage", **load, chunks=[], lease_ms=0)
        assert reader.snapshot("t3", "t3", 9) == {("a", 1): 1, ("b", 2): 1, ("c", 3): 1}


def test_several_collections_are_written_in_one_record(served: Place) -> None:
    with served.client() as client, served.reader() as reader:
        writers = [
            client.done("create", collection=f"m{n}", description=TABLE, group="m")[1]
            for n in range(3)
        ]
        before = reader.fold("m").upto
        fine = stream(rows(("a", 1, 0, 1)))
        writes = [
            {"capability": writer, "updates": fine, "new_frontier": n + 1}
            for n, writer in enumerate(writers)
        ]
        bad = [*writes[:2], {**writes[2], "capability": {**writers[2], "name": "foreign"}}]
        assert client.refused("update_and_downgrade", writes=bad) == "InvalidCapability"
        moved = client.done("update_and_downgrade", writes=writes)
        assert [capability["frontier"] for capability in moved] == [1, 2, 3]
        assert reader.fold("m").upto == before + 1
        assert [reader.fold("m").collections[f"m{n}"]["upper"] for n in range(3)] == [1, 2, 3]


STEPS = [
    "stored",
    "decided",
    *(pytest.param(step, marks=pytest.mark.long) for step in ("read", "submitted", "answered")),
]


@pytest.mark.parametrize("point", STEPS)
def test_a_killed_service_answers_once(place: Place, point: str) -> None:
    """Killed at this step of its batch, and started again.

    In memory services die at every step: `tests/unit/storage/commands/test_property.py`.
    """
    with place.service(), place.client() as client:
        read, write = client.done("create", collection="t4", description=TABLE)
    with place.client() as client, place.reader() as reader:
        ids = [
            client.send("create", collection="t5", description=TABLE),
            *(
                client.send(
                    "update_and_downgrade",
                    writes=[
                        {
                            "capability": {**write, "frontier": n},
                            "updates": stream(rows((f"r{n}", n, n, 1))),
                            "new_frontier": n + 1,
                        }
                    ],
                )
                for n in range(20)
            ),
            client.send("clone", capability=read),
            client.send("transfer", capability=read),
            client.send("drop", collection="t4", capability={**write, "frontier": 20}),
        ]
        with place.service(**{point: 1}) as doomed:
            assert doomed.wait(60) == -signal.SIGKILL
        with place.service():
            outcomes = [client.outcome(id_) for id_ in ids]
        assert [outcome["status"] for outcome in outcomes] == ["DONE"] * len(ids)
        assert reader.fold("t4").collections["t4"]["upper"] is None
        assert reader.listen("t4", "t4", -1) == {(f"r{n}", n, n): 1 for n in range(20)}
        client.read(1)  # which asserts that nothing is answered twice


def test_a_command_that_kills_two_services_is_failed_by_the_third(place: Place) -> None:
    with place.service() as before, place.client() as client:
        client.done("create", collection="t6", description=TABLE)
        before.kill()
        before.wait(30)
        # a service waits for its mark of what it finds: of what comes later it may be lost
        poison = client.send("create", collection="t7", description=TABLE)
        with place.service(read=1) as first:
            assert first.wait(60) == -signal.SIGKILL
        behind = client.send("acquire_capabilities", collection="t6")
        with place.service(read=2) as second:
            assert second.wait(60) == -signal.SIGKILL
        with place.service():
            failed = client.outcome(poison)
            assert (failed["status"], failed["error"]["code"]) == ("FAILED", "Crashed")
            assert client.outcome(behind)["status"] == "DONE"
            assert client.refused("acquire_capabilities", collection="t7") == "NotBound"
            client.read(1)  # which asserts that nothing is answered twice


def test_a_command_delivered_twice_is_answered_once(served: Place) -> None:
    with served.client() as client, served.reader() as reader:
        _, writer = client.done("create", collection="t6", description=TABLE)
        earlier = len(client.reports)
        updates = stream(rows(("a", 1, 0, 1)))
        write = {"capability": writer, "updates": updates, "new_frontier": 5}
        record = wire.encode("command_update_and_downgrade", {"id": "one", "writes": [write]})
        for _ in range(3):
            client.publish(record)
        assert client.outcome("one")["status"] == "DONE"
        assert client.write({**writer, "frontier": 5}, 6)["frontier"] == 6
        client.publish(wire.encode("command_heartbeat", {"id": "one", "capability": writer}))
        assert client.ask("heartbeat", capability=writer)["status"] == "DONE"
        statuses = [report["status"] for report in client.reports[earlier:]]
        assert statuses == ["REPEATED", "REPEATED", "MALFORMED"]
        assert reader.snapshot("t6", "t6", 5) == {("a", 1): 1}


def test_of_two_services_the_younger_goes_on(place: Place) -> None:
    with place.service() as older, place.client() as client, place.reader() as reader:
        _, writer = client.done("create", collection="t7", description=TABLE)
        with place.service() as younger:
            id_ = ""
            for n in range(200):
                updates = stream(rows((f"r{n}", n, n, 1)))
                write = {"capability": writer, "updates": updates, "new_frontier": n + 1}
                id_ = client.send("update_and_downgrade", writes=[write])
                writer = {**writer, "frontier": n + 1}
            assert client.outcome(id_)["status"] == "DONE"
            deadline = time.monotonic() + 60
            while older.poll() is None and time.monotonic() < deadline:
                writer = client.write(writer, writer["frontier"] + 1)
            assert older.poll() == FENCED
            assert younger.poll() is None
            listed = reader.listen("t7", "t7", -1)
            assert listed == {(f"r{n}", n, n): 1 for n in range(200)}


def test_a_stranger_reads_what_was_compacted_and_rolled_up(place: Place) -> None:
    rows_of = {n: (f"r{n % 5}", n % 5, n, 1) for n in range(150)}
    with place.service(), place.client() as client:
        read, write = client.done("create", collection="t8", description=TABLE)
        ids = [
            client.send(
                "update_and_downgrade",
                writes=[
                    {
                        "capability": {**write, "frontier": n},
                        "updates": stream(rows(row)),
                        "new_frontier": n + 1,
                    }
                ],
            )
            for n, row in rows_of.items()
        ]
        assert {client.outcome(id_)["status"] for id_ in ids} == {"DONE"}
        client.done("downgrade", capability=read, new_frontier=100)
        with Storage.kafka(place.bootstrap, namespace=place.namespace) as storage:
            storage.shards.open("t8")
            roll_up(storage.shards, "t8")
            beats = [client.send("heartbeat", capability=read) for _ in range(70)]
            assert client.outcome(beats[-1])["status"] == "DONE"
            storage.shards.sync_group("t8")
            roll_up(storage.shards, "t8")
            assert storage.shards.logs.bounds(storage.shards.names("t8").log)[0] > 0
    command = [sys.executable, "-m", "streams.app.main", "compact", "--whole", "--json"]
    where = ["--brokers", place.bootstrap, "--namespace", place.namespace]
    done = subprocess.run([*command, *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["compacted"]
    with place.reader() as reader:  # nobody else runs
        for as_of in (100, 149):
            expected = {(f"r{n}", n): len(range(n, as_of + 1, 5)) for n in range(5)}
            assert reader.snapshot("t8", "t8", as_of) == expected
        changes = {(name, size, at): 1 for name, size, at, _ in list(rows_of.values())[101:]}
        assert reader.listen("t8", "t8", 100) == changes
        assert reader.fold("t8").collections["t8"]["since"] == 100


def test_a_service_runs_on_its_own(place: Place) -> None:
    """And one that has no broker gives up, meanwhile."""
    command = [sys.executable, "-m", "streams.app.main", "storage", "--brokers"]
    options = ["--namespace", place.namespace, "--topic", "commands.retention.ms=86400000"]
    lonely = [*command, "127.0.0.1:1", *options, "--client", "socket.timeout.ms=2000"]
    with (
        subprocess.Popen(lonely, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as nobody,
        subprocess.Popen(
            [*command, place.bootstrap, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process,
    ):
        with place.client() as client:
            assert (
                client.ask("create", collection="alone", description=TABLE)["status"] == "DONE"
            )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        _, said = nobody.communicate(timeout=300)
    assert nobody.returncode == 3, said
    assert b"error" in said
