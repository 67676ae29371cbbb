"""`slackwater shard` on a real broker with nobody else running; what runs on is a process."""

import itertools
import json
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from streams.app.client import Client
from streams.app.commands import app
from streams.app.service_config import Service
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.client.admin import KafkaTopics
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.clients import admin
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import TopicChoices, topic_choices
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import EMPTY, frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from tests.integration.adapter.support import eventually, raw_topic
from tests.support.processes import ignoring_ctrl_c

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

COMMAND = [sys.executable, "-m", "streams.app.main", "shard"]
DESCRIPTION = Description((("name", "VARCHAR"),))
_names = itertools.count()


@pytest.fixture(scope="module")
def kafka(broker: EmbeddedBroker) -> Iterator[KafkaBroker]:
    memory_broker = KafkaBroker(ClientSettings(broker.bootstrap))
    yield memory_broker
    memory_broker.close()


@pytest.fixture
def namespace() -> str:
    return f"look{uuid.uuid4().hex[:8]}"


@pytest.fixture
def shards(kafka: KafkaBroker, namespace: str) -> Iterator[Shards]:
    opened = Shards(
        kafka.logs, kafka.chunks, kafka.topics, namespace=namespace, now_ms=lambda: 0, pump=True
    )
    yield opened
    opened.close()


@pytest.fixture
def u(shards: Shards) -> CollectionId:
    collection = CollectionId(f"u{next(_names)}")
    shards.create(collection, collection, DESCRIPTION, Timestamp(0))
    return collection


def row(name: str, time: int, diff: int = 1) -> pa.Table:
    return pa.table({"c0": [name], "time": [time], "diff": [diff]})


def append(
    to: Shards, u: CollectionId, lower: int, upper: int | None, *tables: pa.Table
) -> None:
    part = Part(
        collection=u,
        capability=write_capability(u),
        lower=frontier(lower),
        upper=EMPTY if upper is None else frontier(upper),
        chunks=tuple(ref for table in tables for ref in to.write(u, table)),
    )
    to.submit([(u, Append((part,)))])


def shard(broker: EmbeddedBroker, namespace: str, *arguments: str) -> tuple[int, list[Any]]:
    """Exit code and JSON lines, of the command in this process."""
    where = ["--brokers", broker.bootstrap, "--namespace", namespace, "--json"]
    done = CliRunner().invoke(app, ["shard", *arguments, *where])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_shard_is_looked_into(broker, namespace, shards, u) -> None:
    append(shards, u, 0, 3, row("a", 1), row("b", 2))
    append(shards, u, 3, 5, row("a", 4, -1))
    shards.write(u, row("orphan", 5))
    code, (listed,) = shard(broker, namespace, "list")
    assert code == 0
    assert (listed["id"], listed["since"], listed["upper"]) == (u, 0, 5)
    assert (listed["batches"], listed["chunks"], listed["rows"]) == (2, 3, 3)
    code, (stats,) = shard(broker, namespace, "stats", u, "--scan")
    space = stats["space"]
    assert code == 0
    assert (space["live"]["chunks"], space["orphan"]["chunks"], space["missing"]) == (3, 1, [])
    assert [capability["id"] for capability in stats["capabilities"]] == [write_capability(u)]
    assert shard(broker, namespace, "capabilities", u) == (0, stats["capabilities"])
    code, (shown,) = shard(broker, namespace, "show", u)
    assert (code, shown["data_topic"]) == (0, f"{namespace}.{u}.data")
    code, printed = shard(broker, namespace, "read", u, "--as-of", "3")
    assert (code, printed[1]["rows"]) == (0, [[1, "a", None], [1, "b", None]])
    code, printed = shard(broker, namespace, "read", u)
    assert (code, printed[1]["rows"]) == (0, [[1, "b", None]])
    code, printed = shard(broker, namespace, "read", u, "--as-of", "5")
    assert (code, printed[0]["error"]["detail"]) == (1, "expected a time before upper {5}")


def test_a_picture_is_drawn(broker, namespace, shards, u) -> None:
    append(shards, u, 0, 3, row("a", 1))
    where = ["--brokers", broker.bootstrap, "--namespace", namespace]
    done = subprocess.run(
        [*COMMAND, "show", u, *where], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0
    assert "< 4 KiB │█" in done.stdout


def test_a_tail_follows_until_the_shard_is_sealed(broker, namespace, shards, u) -> None:
    append(shards, u, 0, 3, row("a", 1))
    where = ["--brokers", broker.bootstrap, "--namespace", namespace, "--json"]
    with subprocess.Popen(
        [*COMMAND, "tail", u, *where], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = map(json.loads, process.stdout)
        assert next(lines)["type"] == "columns"
        assert next(lines)["rows"] == [[2, 1, "a", None]]
        append(shards, u, 3, 4, row("b", 3))
        assert next(line for line in lines if line["type"] == "rows")["rows"] == [
            [3, 1, "b", None]
        ]
        append(shards, u, 4, None, row("a", 9, -1))
        rest = [line for line in lines if line["type"] != "progress"]
        assert rest[0]["rows"] == [[9, -1, "a", None]]
        assert rest[1]["tag"] == "TAIL"
        assert process.wait(30) == 0


def test_ctrl_c_ends_a_tail(broker, namespace, shards, u) -> None:
    append(shards, u, 0, 3, row("a", 1))
    where = ["--brokers", broker.bootstrap, "--namespace", namespace, "--json"]
    with subprocess.Popen(
        [*COMMAND, "tail", u, *where],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=ignoring_ctrl_c,  # noqa: PLW1509  one call, made before exec
    ) as process:
        assert process.stdout is not None
        types = [json.loads(process.stdout.readline())["type"] for _ in range(2)]
        assert types == ["columns", "rows"]  # it listens now
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_an_unknown_shard_and_an_empty_namespace(broker, namespace, shards, u) -> None:
    code, (line,) = shard(broker, namespace, "show", "nobody")
    assert (code, line["error"]["message"]) == (1, "no shard 'nobody'")
    assert shard(broker, f"{namespace}x", "list") == (0, [])


def test_topics_are_made_as_chosen(kafka: KafkaBroker, namespace: str) -> None:
    pairs = {"replication.factor": "1", "data.segment.bytes": "1048577", "data.partitions": "3"}
    broker = KafkaBroker(kafka.settings, topic_choices(pairs))
    name = Topic(f"{namespace}.chosen.data")
    broker.topics.create([TopicSpec(name, 3, TopicKind.DATA)])
    topics = KafkaTopics(ReconnectingClient(lambda: admin(kafka.settings)))
    settings = topics._settings([name])[name]
    assert (settings["segment.bytes"], settings["cleanup.policy"]) == ("1048577", "compact")
    assert settings["min.insync.replicas"] == "1"
    assert partitions(broker, name) == 3
    broker.close()


def test_more_copies_than_brokers_are_refused_with_what_to_choose(kafka, namespace) -> None:
    broker = KafkaBroker(kafka.settings, topic_choices({"replication.factor": "3"}))
    with pytest.raises(InvalidUsage, match=r"choose replication\.factor"):
        broker.topics.create([TopicSpec(Topic(f"{namespace}.many"), 1, TopicKind.LOG)])
    broker.close()


def test_a_setting_that_the_broker_does_not_know_is_refused(kafka, namespace) -> None:
    choices = TopicChoices(settings={TopicKind.LOG: {"no.such": "1"}})
    broker = KafkaBroker(kafka.settings, choices)
    with pytest.raises(InvalidUsage, match=r"no\.such"):
        broker.topics.create([TopicSpec(Topic(f"{namespace}.odd"), 1, TopicKind.LOG)])
    broker.close()


def test_a_coordinator_makes_topics_as_chosen(broker, kafka, namespace, tmp_path: Path) -> None:
    raw = raw_topic(broker.bootstrap)
    config, log = tmp_path / "coordinator.json", tmp_path / "log"
    service = Service(
        bootstrap=broker.bootstrap,
        directory=str(tmp_path / "state"),
        namespace=namespace,
        listen=f"127.0.0.1:{_port()}",
        client={"sasl.password": "hunter2"},
        topics={"data.partitions": "2"},
    )
    service.write(config)
    program = [sys.executable, "-m", "streams.app.main"]
    command = [*program, "coordinator", "--config", str(config), "--supervised"]
    client = Client(f"http://{service.listen}")
    with (
        log.open("w") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # it ends with its input, and takes its process group along
        ) as process,
    ):
        eventually(client.is_ready, 180)
        text = f"CREATE SOURCE s FROM KAFKA (TOPIC '{raw}') (id BIGINT) FORMAT JSON;"
        id_ = client.run(text)[0].facts["id"]
        topic = Topic(f"{namespace}.{id_}.data")
        eventually(lambda: kafka.topics.describe(topic) is not None, 180)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    assert partitions(kafka, topic) == 2
    assert "hunter2" not in log.read_text()


def partitions(kafka: KafkaBroker, topic: Topic) -> int:
    info = kafka.topics.describe(topic)
    assert info is not None
    return info.partitions


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
