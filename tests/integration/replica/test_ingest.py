"""Raw topics on a real broker, ingested by Spark: what a source says, at every time."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # re-exported
from pyspark.sql import SparkSession

from streams.compute import binding as facts
from streams.compute.codec import decode_response
from streams.compute.protocol import Status
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.topics import TopicKind, TopicSpec
from streams.replica.config import Budgets
from streams.replica.main import Replica
from streams.storage.read import reader as read
from tests.integration.replica.conftest import config_of
from tests.integration.replica.support import Bench

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

COLUMNS = (("n", "BIGINT"), ("k", "VARCHAR"))
Row = tuple[object, ...]


class Raw:
    """A producer of raw messages that remembers where each of them stands."""

    def __init__(self, bootstrap: str, topic: str, **settings: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, **settings})
        self.topic = topic
        self.sent: list[tuple[int, int, bytes | None, bytes | None]] = []

    def send(
        self,
        messages: Sequence[tuple[bytes | str | None, bytes | str | None]],
        partition: int = 0,
    ) -> None:
        """Messages as (key, value), acknowledged on return."""
        for key, value in messages:
            self._producer.produce(
                self.topic, value, key=key, partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        at = (message.partition(), message.offset())  # type: ignore[attr-defined]
        self.sent.append((*at, message.key(), message.value()))  # type: ignore[attr-defined]

    def transaction(self, values: Sequence[str], *, commit: bool) -> None:
        self._producer.begin_transaction()
        self.send([(None, value) for value in values])
        if commit:
            self._producer.commit_transaction(60)
        else:
            self._producer.abort_transaction(60)

    def begin(self) -> None:
        self._producer.init_transactions(60)


def history(bench: Bench, name: str) -> tuple[pa.Table, pa.Table]:
    """Everything the shard says: updates c0 .. cn, time, diff; and errors."""
    state = bench.shards.state(CollectionId(name))
    pieces = read.pieces(state, Timestamp(0), state.upper.time)
    return read.load(bench.shards.chunks, bench.shards.data_topic(state.id), pieces)


def contents(
    bench: Bench, name: str, at: int | None = None
) -> tuple[Counter[Row], Counter[str]]:
    """Rows and error texts with their counts, at a time or at the last one."""
    updates, errors = history(bench, name)
    rows: Counter[Row] = Counter()
    for *row, moment, diff in zip(*(c.to_pylist() for c in updates.columns), strict=True):
        if at is None or moment <= at:
            rows[tuple(row)] += diff
    texts: Counter[str] = Counter()
    for text, moment, diff in zip(*(c.to_pylist() for c in errors.columns), strict=True):
        if at is None or moment <= at:
            texts[text] += diff
    assert min([*rows.values(), *texts.values()], default=0) >= 0
    return +rows, +texts


def times_of(bench: Bench, name: str) -> list[int]:
    updates, errors = history(bench, name)
    return sorted({*updates["time"].to_pylist(), *errors["time"].to_pylist()})


def binding(bench: Bench, name: str) -> dict[int, int]:
    """The offsets by partition, without the facts beside them."""
    bound = bench.shards.state(CollectionId(name)).source or {}
    return {partition: offset for partition, offset in bound.items() if partition >= 0}


def statuses(bench: Bench, name: str) -> list[Status]:
    """What replicas have said of a dataflow, in order."""
    tail = bench.broker.logs.tail({bench.response_topic: Offset(0)})
    received: list[Status] = []
    while entries := tail.poll(500):
        responses = [decode_response(entry.value).response for entry in entries]
        received += [
            status for status in responses if isinstance(status, Status) and status.id == name
        ]
    tail.close()
    return received


def stalled(bench: Bench, name: str, reason: str) -> bool:
    """Whether, within a while, a status says that the source is stalled for this reason."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any(s.state == "stalled" and reason in s.message for s in statuses(bench, name)):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Running:
    """A replica in a thread of this process."""

    replica: Replica
    thread: threading.Thread

    def end(self) -> None:
        self.replica.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


Start = Callable[..., Running]


@pytest.fixture
def start(spark: SparkSession, bench: Bench, tmp_path: Path) -> Iterator[Start]:
    """Starts replicas, each in a state directory that is named."""
    running: list[Running] = []

    def begin(state: str = "state", budgets: Budgets | None = None) -> Running:
        config = config_of(bench, tmp_path / state, state)
        config = replace(config, budgets=budgets or Budgets())
        replica = Replica(config, spark)
        thread = threading.Thread(target=replica.run, daemon=True)
        thread.start()
        running.append(Running(replica, thread))
        return running[-1]

    yield begin
    for process in running:
        process.end()


def row(n: int | None, k: str | None) -> Row:
    return (n, k)


def test_what_stood_in_the_topic_is_one_snapshot_and_bad_messages_are_errors(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic()
    raw = Raw(broker.bootstrap, topic)
    raw.send([(None, json.dumps({"n": i, "k": "old"})) for i in range(50)])
    raw.send([(None, '{"n":"x"}'), (None, b"\xff"), (None, None), (None, '{"k":"π"}')], 1)
    bench.source("events", COLUMNS, topic)
    start()
    bench.settle("events")
    first = times_of(bench, "events")
    assert len(first) == 1, "one time for all that stood there"
    rows, errors = contents(bench, "events")
    assert rows == Counter({row(None, "π"): 1, **{row(i, "old"): 1 for i in range(50)}})
    prefix = f"cannot decode message: topic {topic}, partition 1, offset"
    assert errors == Counter(
        {
            f'{prefix} 0: column "n": expected BIGINT, actual "x"': 1,
            f"{prefix} 1: expected UTF-8, actual other bytes at byte 1": 1,
            f"{prefix} 2: expected a JSON object, actual nothing": 1,
        }
    )
    raw.send([(None, '{"n":50,"k":"new"}'), (None, "{")])
    bench.settle("events")
    rows, more = contents(bench, "events")
    assert rows[row(50, "new")] == 1
    assert len(rows) == 52
    assert set(more - errors) == {
        f"cannot decode message: topic {topic}, partition 0, offset 51: "
        "expected JSON, actual a text that ends too early"
    }
    assert binding(bench, "events") == {0: 52, 1: 4}
    bound = bench.shards.state(CollectionId("events")).source or {}
    assert facts.total(bound, facts.Fact.REFUSED) == 4


def test_upsert_is_the_latest_message_of_each_key_at_every_time(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic(1)
    raw = Raw(broker.bootstrap, topic)
    raw.send([('"a"', '{"n":-1}'), ('"a"', '{"n":-2}'), ('{"k":"b"}', '{"n":-3}')])
    bench.source("latest", COLUMNS, topic, keys=("k",))
    start()
    bench.settle("latest")
    assert contents(bench, "latest") == (Counter([row(-2, "a"), row(-3, "b")]), Counter())
    for first in range(0, 200, 10):
        raw.send([(json.dumps(f"k{i % 7}"), message_of(i)) for i in range(first, first + 10)])
        time.sleep(0.05)
    raw.send([(None, '{"n":1}'), ("nokey", '{"n":1}')])
    bench.settle("latest")
    check_prefixes(bench, raw)
    _, errors = contents(bench, "latest")
    assert sum(", key " not in text for text in errors) == 2, "a bad key is an error for ever"
    raw.send([(json.dumps(f"k{i}"), '{"n":7}') for i in range(7)])
    bench.settle("latest")
    rows, errors = contents(bench, "latest")
    assert sum(", key " in text for text in errors) == 0, "a bad value is healed by the next"
    assert {r for r in rows if str(r[1]).startswith("k")} == {row(7, f"k{i}") for i in range(7)}


def message_of(number: int) -> str | None:
    """Message `number` of a stream: mostly a value, now and then a deletion or rubbish."""
    if number % 9 == 4:
        return None
    return '{"n":' if number % 11 == 5 else json.dumps({"n": number, "k": "not this"})


def check_prefixes(bench: Bench, raw: Raw) -> None:
    """At every time the contents are those after some first messages, more and more of them."""
    states: list[tuple[Counter[Row], int]] = [(Counter(), 0)]
    latest: dict[str, tuple[str, object]] = {}
    lost = 0
    for _, _, key, value in sorted(raw.sent, key=lambda sent: (sent[0], sent[1])):
        name = key_of(key)
        if name is None:
            lost += 1
        elif value is None:
            latest.pop(name, None)
        else:
            try:
                latest[name] = ("row", json.loads(value)["n"])
            except ValueError:
                latest[name] = ("error", None)
        rows = Counter(row(n, k) for k, (kind, n) in latest.items() if kind == "row")  # type: ignore[arg-type]
        broken = sum(kind == "error" for kind, _ in latest.values())
        states.append((rows, lost + broken))
    at = 0
    for moment in times_of(bench, "latest"):
        rows, errors = contents(bench, "latest", moment)
        actual = (rows, sum(errors.values()))
        while at < len(states) and states[at] != actual:
            at += 1
        assert at < len(states), f"no first messages give what stands at {moment}: {actual}"
    assert (states[-1][0], states[-1][1]) == states[at]


def key_of(raw: bytes | None) -> str | None:
    try:
        document = json.loads(raw or b"")
    except ValueError:
        return None
    return str(document["k"] if isinstance(document, dict) else document)


@pytest.mark.parametrize("keys", [(), ("k",)], ids=["none", "upsert"])
def test_a_first_snapshot_in_many_slices_has_one_time(
    bench: Bench,
    start: Start,
    broker: EmbeddedBroker,
    keys: tuple[str, ...],
) -> None:
    topic = bench.raw_topic()
    raw = Raw(broker.bootstrap, topic)
    for partition, count in ((0, 700), (1, 300)):
        raw.send(
            [(f'"k{i % 90}"', f'{{"n":{i},"k":"k{i % 90}"}}') for i in range(count)], partition
        )
    bench.source("large", COLUMNS, topic, keys=keys)
    start(budgets=Budgets(messages=130))
    bench.settle("large")
    assert len(times_of(bench, "large")) == 1
    rows, errors = contents(bench, "large")
    assert not errors
    if keys:
        # 0..699 in partition 0 against 0..299 in partition 1: the highest offset wins.
        assert rows == Counter(row(max(range(i, 700, 90)), f"k{i}") for i in range(90))
    else:
        assert sum(rows.values()) == 1000
        assert rows[row(299, "k29")] == 2
    assert binding(bench, "large") == {0: 700, 1: 300}
    raw.send([('"k0"', '{"n":-1,"k":"k0"}')], 1)
    bench.settle("large")
    assert contents(bench, "large")[0][row(-1, "k0")] == 1


def test_time_goes_on_when_nothing_comes(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic()
    Raw(broker.bootstrap, topic).send([(None, '{"n":1}')])
    bench.source("idle", COLUMNS, topic)
    start()
    bench.settle("idle")
    before, bound = times_of(bench, "idle"), binding(bench, "idle")
    for _ in range(3):
        bench.settle("idle", timeout_s=180)
    assert (times_of(bench, "idle"), binding(bench, "idle")) == (before, bound)
    assert bound == {0: 1, 1: 0}


def test_a_source_over_an_empty_topic_ticks_and_then_reads(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic()
    bench.source("empty", COLUMNS, topic)
    start()
    bench.settle("empty")
    assert contents(bench, "empty") == (Counter(), Counter())
    Raw(broker.bootstrap, topic).send([(None, '{"n":1}')], 1)
    bench.settle("empty")
    assert contents(bench, "empty")[0] == Counter([row(1, None)])


@pytest.mark.parametrize("keeps_state", [True, False], ids=["state kept", "state lost"])
def test_a_restart_goes_on_from_the_binding(
    bench: Bench,
    start: Start,
    broker: EmbeddedBroker,
    *,
    keeps_state: bool,
) -> None:
    topic, other = bench.raw_topic(1), bench.raw_topic(1)
    raw, plain = Raw(broker.bootstrap, topic), Raw(broker.bootstrap, other)
    bench.source("latest", COLUMNS, topic, keys=("k",))
    bench.source("all", COLUMNS, other)

    def send(first: int, stop: int) -> None:
        raw.send([(json.dumps(f"k{i % 7}"), message_of(i)) for i in range(first, stop)])
        plain.send([(None, f'{{"n":{i}}}') for i in range(first, stop)])

    send(0, 60)
    earlier = start("first")
    bench.settle("latest")
    send(60, 120)
    bench.settle("latest")
    earlier.end()
    send(120, 160)
    start("first" if keeps_state else "second")
    for name in ("latest", "all"):
        bench.settle(name)
    send(160, 230)
    for name in ("latest", "all"):
        bench.settle(name)
    check_prefixes(bench, raw)
    assert contents(bench, "all")[0] == Counter(row(i, None) for i in range(230))
    assert binding(bench, "all") == {0: 230}


def test_a_new_partition_is_read_from_its_beginning(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic(1)
    raw = Raw(broker.bootstrap, topic)
    raw.send([(None, '{"n":0}')])
    bench.source("grows", COLUMNS, topic)
    start()
    bench.settle("grows")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for answer in admin.create_partitions([NewPartitions(topic, 2)]).values():
        answer.result()
    late = Raw(broker.bootstrap, topic)
    late.send([(None, '{"n":1}')], 1)
    until = time.monotonic() + 60
    while binding(bench, "grows") != {0: 1, 1: 1} and time.monotonic() < until:
        bench.settle("grows")
    assert contents(bench, "grows")[0] == Counter([row(0, None), row(1, None)])


def test_only_committed_messages_are_read(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic(1)
    raw = Raw(broker.bootstrap, topic, **{"transactional.id": f"tx-{topic}"})
    raw.begin()
    bench.source("committed", COLUMNS, topic)
    start()
    raw.transaction(['{"n":0}', '{"n":1}'], commit=True)
    raw.transaction(['{"n":-1}'], commit=False)
    raw.transaction(['{"n":2}'], commit=True)
    raw.transaction(['{"n":-2}'], commit=False)
    bench.settle("committed")
    rows, errors = contents(bench, "committed")
    assert (rows, errors) == (Counter(row(i, None) for i in range(3)), Counter())
    # Four markers and two aborted messages stand in the topic beside the three.
    assert binding(bench, "committed") == {0: 9}


def test_a_topic_that_was_re_created_stalls_its_source_alone(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic, other = bench.raw_topic(1), bench.raw_topic(1)
    Raw(broker.bootstrap, topic).send([(None, '{"n":0}')])
    bench.source("doomed", COLUMNS, topic)
    bench.source("sound", COLUMNS, other)
    start()
    bench.settle("doomed")
    bench.broker.topics.delete([topic])
    assert stalled(bench, "doomed", f'topic "{topic}" does not exist')
    wait_until_created(bench, topic)
    Raw(broker.bootstrap, topic).send([(None, '{"n":1}'), (None, '{"n":2}')])
    assert stalled(bench, "doomed", f'topic "{topic}" was re-created')
    assert contents(bench, "doomed")[0] == Counter([row(0, None)])
    assert binding(bench, "doomed") == {0: 1}
    stands = bench.upper("doomed")
    bench.settle("sound")
    assert bench.upper("doomed") == stands


def wait_until_created(bench: Bench, topic: Topic) -> None:
    until = time.monotonic() + 60
    while bench.broker.topics.describe(topic) is not None and time.monotonic() < until:
        time.sleep(0.1)
    bench.broker.topics.create([TopicSpec(topic, 1, TopicKind.RAW)])


def test_retention_that_overtakes_a_source_stalls_it(
    bench: Bench, start: Start, broker: EmbeddedBroker
) -> None:
    topic = bench.raw_topic(1)
    raw = Raw(broker.bootstrap, topic)
    raw.send([(None, f'{{"n":{i}}}') for i in range(5)])
    bench.source("slow", COLUMNS, topic)
    first = start()
    bench.settle("slow")
    first.end()
    raw.send([(None, f'{{"n":{i}}}') for i in range(5, 9)])
    bench.broker.logs.truncate(topic, Offset(7))
    start()
    reason = "partition 0: offsets 5 to 6 were deleted before they were read"
    assert stalled(bench, "slow", reason)
    assert contents(bench, "slow")[0] == Counter(row(i, None) for i in range(5))
