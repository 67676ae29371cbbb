"""An environment on the test broker, raw topics in it, and a reader of output topics."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from schemas.keys import unpack
from schemas.rows import decode_row
from streams.app.environment import Environment, Settings
from streams.errors import Determinate, Indeterminate, InvalidStatement


def open_environment(
    bootstrap: str, directory: Path, points: Mapping[str, int] | None = None
) -> Environment:
    """A started environment with a namespace of its own on a running broker.

    It compacts more often than users' do, which nobody waits half a minute for.
    """
    settings = Settings(
        directory=directory,
        brokers=bootstrap,
        namespace=f"t{uuid.uuid4().hex[:8]}",
        points=points or {},
        compact_every_s=3.0,
    )
    return Environment(settings).start()


def raw_topic(bootstrap: str, partitions: int = 2, name: str = "") -> str:
    """A new topic for a source to read, which the broker lists.

    A KRaft controller answers CreateTopics when it has committed the topic; the broker lists it
    when it has applied that record.
    """
    name = name or f"raw-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result()
    eventually(lambda: name in admin.list_topics(timeout=30).topics)
    return name


def topics(bootstrap: str, prefix: str) -> list[str]:
    """The topics whose names begin so."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return sorted(
        topic for topic in admin.list_topics(timeout=30).topics if topic.startswith(prefix)
    )


@dataclass(frozen=True)
class Written:
    """A record of an output topic; `row` is None for a tombstone."""

    key: tuple[object, ...]
    time: int
    row: Mapping[str, Any] | None
    partition: int
    raw_key: bytes


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's clients give a key (`Utils.murmur2` of kafka-clients)."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    hash_ = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        hash_ = (hash_ * factor & mask) ^ word
    if len(key) > whole:
        hash_ = (hash_ ^ int.from_bytes(key[whole:], "little")) * factor & mask
    hash_ = (hash_ ^ hash_ >> 13) * factor & mask
    return ((hash_ ^ hash_ >> 15) & 0x7FFFFFFF) % partitions


def read_output(bootstrap: str, namespace: str, topic: str) -> list[Written]:
    """Every record that a committed reader sees, decoded by the published schemas alone."""
    schemas = {
        message.key(): message.value().decode()
        for message in read_all(bootstrap, f"{namespace}.schemas")
    }
    records = []
    for message in read_all(bootstrap, topic):
        value, (header,) = message.value(), message.headers()
        assert header[0] == "slackwater-time"
        row = None if value is None else decode_row(schemas[value[2:10]], value)
        key, place = message.key(), message.partition()
        records.append(Written(unpack(key), int(header[1]), row, place, key))
    return records


def read_all(bootstrap: str, topic: str) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign(
        [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
    )
    messages, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(30)
        assert message is not None, f"topic {topic} does not answer"
        error = message.error()
        if error is None:
            messages.append(message)
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        ended += 1
    consumer.close()
    return messages


def contents(written: list[Written], time_: int) -> dict[tuple[object, ...], Mapping[str, Any]]:
    """What a reader who keeps the last value of each key has at a time."""
    now: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for record in written:
        if record.time > time_:
            continue
        if record.row is None:
            del now[record.key]  # a tombstone for what is not there is one too many
        else:
            assert now.get(record.key) != record.row, f"{record} changes nothing"
            now[record.key] = record.row
    return now


def eventually(condition: Callable[[], bool], seconds: float = 400) -> None:
    """Wait until it holds, through everything that a dying coordinator says."""
    deadline = time.monotonic() + seconds
    last: Exception | None = None
    while True:
        try:
            if condition():
                return
        except (Determinate, Indeterminate, InvalidStatement) as error:
            last = error
        assert time.monotonic() < deadline, f"it never came true: {last}"
        time.sleep(0.1)


def upper(environment: Environment, kind: str, name: str) -> int:
    """The upper of an object as SHOW tells it; 0 while there is none."""
    for row in environment.sql(f"SHOW {kind}")[0].dicts():
        if row["name"] == name:
            shown_upper = row["upper"]
            return shown_upper if isinstance(shown_upper, int) else 0
    return 0


def drop_everything(environment: Environment) -> None:
    """Drop all objects, those first that read others."""
    for kind in ("INDEX", "SINK", "MATERIALIZED VIEW", "REBASE", "SOURCE"):
        plural = "INDEXES" if kind == "INDEX" else f"{kind}S"
        shown = environment.sql(f"SHOW {plural}")[0].rows
        for name, *_ in sorted(shown, key=lambda row: int(str(row[1])[1:]), reverse=True):
            environment.sql(f"DROP {kind} {name}")
