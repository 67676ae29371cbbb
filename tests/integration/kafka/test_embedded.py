"""The embedded broker: its data outlive it, it does not outlive its parent."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from streams.app.broker_supervisor import BrokerKeeper
from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from tests.support.processes import command_line, eventually, family, settled

pytestmark = pytest.mark.integration


def append(log: Topic, bootstrap: str, value: bytes) -> None:
    kafka = KafkaBroker(ClientSettings(bootstrap))
    kafka.topics.create([TopicSpec(log, 1, TopicKind.LOG)])
    kafka.logs.append([(log, value)])
    kafka.close()


def answers(bootstrap: str) -> bool:
    kafka = KafkaBroker(ClientSettings(bootstrap))
    try:
        kafka.topics.names()
    except Determinate:
        return False
    finally:
        kafka.close()
    return True


def read(log: Topic, bootstrap: str, count: int) -> list[bytes]:
    kafka = KafkaBroker(ClientSettings(bootstrap))
    tail = kafka.logs.tail({log: Offset(0)})
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        values.extend(entry.value for entry in tail.poll(100))
    tail.close()
    kafka.close()
    return values


def java_of(directory: Path) -> list[psutil.Process]:
    """The JVMs of brokers that work on this directory."""
    conf = str(directory / "server.properties")
    return [
        process
        for process in psutil.process_iter()
        if conf in (line := command_line(process)) and "java" in Path(line[0]).name
    ]


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Topic:
    """One of the test's own: the broker has those of others."""
    return Topic(f"{request.node.name}.log")


PARENT = """
import sys, time
from pathlib import Path
from streams.kafka.embedded import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1]))
print(broker.start(), flush=True)
time.sleep(600)
"""


def start_in_a_parent(directory: Path) -> tuple[subprocess.Popen[str], str]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout as output:
        return parent, output.readline().strip()


def test_data_survive_a_restart_and_so_does_the_address_unless_it_is_taken(own, log):
    before = own.bootstrap
    append(log, before, b"first")
    (java,) = java_of(own.log_file.parent)
    own.stop()
    settled([java], 0)
    own.start()
    assert own.bootstrap == before
    append(log, before, b"second")
    assert read(log, before, 2) == [b"first", b"second"]
    own.stop()
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int(before.rpartition(":")[2])))
        squatter.listen()
        own.start()
        assert own.bootstrap != before
        assert read(log, own.bootstrap, 2) == [b"first", b"second"]


def test_a_killed_parent_takes_its_broker_along_and_loses_nothing(own, log):
    own.stop()
    directory = own.log_file.parent
    parent, bootstrap = start_in_a_parent(directory)
    append(log, bootstrap, b"first")
    javas = java_of(directory)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    own.start()  # at once, while the old one is still closing its files
    assert read(log, own.bootstrap, 1) == [b"first"]
    settled(javas)


def test_a_killed_guard_takes_its_broker_along(own, log):
    append(log, own.bootstrap, b"first")
    javas = java_of(own.log_file.parent)
    guard = javas[0].parent()
    assert guard is not None
    guard.kill()
    settled(javas)
    own.start()
    assert read(log, own.bootstrap, 1) == [b"first"]


def test_ctrl_c_does_not_reach_it(broker):
    processes = [
        process
        for process in family(os.getpid())
        if "kafka.Kafka" in (line := command_line(process)) and "java" in Path(line[0]).name
    ]  # and not Spark's, which ends with its driver
    assert processes
    assert all(os.getpgid(process.pid) != os.getpgid(0) for process in processes)


def test_a_broker_is_started_once_and_addressed_while_it_runs(broker, tmp_path):
    with pytest.raises(InvalidUsage, match="expected stopped, actual running"):
        broker.start()
    with pytest.raises(InvalidUsage, match="expected running, actual stopped"):
        _ = EmbeddedBroker(tmp_path).bootstrap
    EmbeddedBroker(tmp_path).stop()


def test_what_the_broker_said_is_in_the_error(tmp_path):
    (tmp_path / "data").mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=99\ncluster.id=x\n")
    with pytest.raises(Determinate, match=r"ended with code \d+: .*99"):
        EmbeddedBroker(tmp_path).start()
    assert java_of(tmp_path) == []


def test_a_broker_that_was_killed_comes_back_where_it_was_with_its_data(own, log) -> None:
    own.stop()
    directory, keeper = own.log_file.parent, BrokerKeeper(own)
    bootstrap = keeper.start()
    try:
        append(log, bootstrap, b"before")
        (java,) = java_of(directory)
        java.kill()
        settled([java])
        eventually(lambda: answers(bootstrap), 180)
        append(log, bootstrap, b"after")
        assert read(log, bootstrap, 2) == [b"before", b"after"]
    finally:
        keeper.stop()
    settled(java_of(directory))
    assert keeper.reason == ""
