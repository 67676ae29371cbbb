"""What a topic costs to read by the number of its partitions, as a task of a source reads it.

On an embedded broker, without Spark: a few new messages in every partition, again and again,
and then all messages, in pieces as large as a micro-batch takes them.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from streams.app.freshness import percentile
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import Say
from streams.ids import Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.client.raw import RawReader
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from streams.temporary import temporary_directory

COUNTS = (1, 4, 16, 64)
NEW = 256
"""Messages of a step, evenly over the partitions."""
STEPS = 20
BYTES = 200
LIMIT_MS = 20.0
_AT_ONCE = 20_000

Range = tuple[int, Offset, Offset]


def partitions(say: Say, messages: int) -> Outcome:
    """Time steps and a backlog of so many messages in topics of few and of many partitions."""
    steps: dict[int, float] = {}
    rates: dict[int, float] = {}
    with _clients() as (broker, publisher, reader):
        for count in COUNTS:
            say(f"{count} partitions")
            topic = Topic(f"of-{count}-partitions")
            broker.topics.create([TopicSpec(topic, count, TopicKind.RAW)])
            steps[count] = percentile(_new_messages(publisher, reader, topic, count), 0.5)
            _publish(publisher, topic, count, messages)
            rates[count] = _backlog(reader, topic)
    return Outcome(
        "partitions",
        _figures(steps, rates),
        note=f"step: {NEW} new messages in all partitions, read by a task; median of {STEPS}",
    )


def _figures(steps: Mapping[int, float], rates: Mapping[int, float]) -> tuple[Figure, ...]:
    most = COUNTS[-1]
    return (
        *(Figure(f"step_ms_{count}", steps[count], "ms") for count in COUNTS[:-1]),
        at_most(f"step_ms_{most}", steps[most], "ms", LIMIT_MS),
        *(Figure(f"backlog_per_s_{count}", rates[count], "messages/s") for count in COUNTS),
    )


@contextmanager
def _clients() -> Iterator[tuple[KafkaBroker, Publisher, RawReader]]:
    """Clients of a broker of their own."""
    with (
        temporary_directory("slackwater-") as scratch,
        EmbeddedBroker(Path(scratch)) as embedded,
    ):
        settings = ClientSettings(embedded.bootstrap)
        broker, reader = KafkaBroker(settings), RawReader(settings)
        try:
            yield broker, Publisher(settings), reader
        finally:
            reader.close()
            broker.close()


def _publish(publisher: Publisher, topic: Topic, count: int, messages: int) -> None:
    """Publish messages evenly to all partitions."""
    value = pa.scalar("x" * BYTES)
    for partition in range(count):
        left = messages // count
        while left:
            some = min(left, _AT_ONCE)
            publisher.publish(topic, None, pa.repeat(value, some), partition)
            left -= some
    publisher.flush()


def _new_messages(
    publisher: Publisher, reader: RawReader, topic: Topic, count: int
) -> list[float]:
    """Milliseconds in which new messages are read, without the first reads."""
    read, took = dict.fromkeys(range(count), Offset(0)), []
    for _ in range(STEPS + 2):
        _publish(publisher, topic, count, NEW)
        ends = {partition: end.high for partition, end in reader.ends(topic).items()}
        ranges: Sequence[Range] = [(n, read[n], end) for n, end in sorted(ends.items())]
        began = time.perf_counter()
        table = reader.fetch_ranges(topic, ranges)
        took.append((time.perf_counter() - began) * 1000)
        assert table.num_rows == NEW, "each step reads what was published before it"
        read = ends
    return took[2:]


def _backlog(reader: RawReader, topic: Topic) -> float:
    """Messages a second, when everything is read in four pieces."""
    ends = {partition: end.high for partition, end in reader.ends(topic).items()}
    began, read = time.perf_counter(), 0
    for quarter in range(4):
        ranges: Sequence[Range] = [
            (n, Offset(end * quarter // 4), Offset(end * (quarter + 1) // 4))
            for n, end in sorted(ends.items())
        ]
        read += reader.fetch_ranges(topic, ranges).num_rows
    return read / (time.perf_counter() - began)
