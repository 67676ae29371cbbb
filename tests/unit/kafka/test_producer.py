"""Records of several threads go out side by side: a partition that is stuck keeps no other."""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streams.errors import Determinate, Indeterminate
from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.client import producer as producer_module
from streams.kafka.client.producer import MANY, Delivered, Outgoing, Sender, WriteCounts
from streams.kafka.settings import ClientSettings

STUCK, FINE, REFUSED = Topic("stuck"), Topic("fine"), Topic("refused")


class Producer:
    """Delivers at the next poll, but for topics that are stuck, until they are let go."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], None]] = deque()
        self.stuck: list[Callable[[], None]] = []
        self.offset = 0
        self.lock = threading.Lock()
        self.batches: list[tuple[str, int, list[bytes]]] = []
        self.refused: set[bytes] = set()

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        """Take those that are not refused, which are marked and get no report."""
        self.batches.append((topic, partition, [message["value"] for message in messages]))
        for message in messages:
            if message["value"] in self.refused:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            else:
                self.produce(topic, on_delivery=message["callback"])
        return len(messages)

    def produce(self, topic: str, *_: Any, on_delivery: Any, **__: Any) -> None:
        with self.lock:
            offset, self.offset = self.offset, self.offset + 1
        error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if topic == REFUSED else None
        message = SimpleNamespace(partition=lambda: 0, offset=lambda: offset)

        def report() -> None:
            on_delivery(error, message)

        (self.stuck if topic == STUCK else self.ready).append(report)

    def poll(self, wait_s: float) -> int:
        if not self.ready:
            time.sleep(min(wait_s, 0.005))
            return 0
        self.ready.popleft()()
        return 1

    def let_go(self) -> None:
        self.ready.extend(self.stuck)
        self.stuck.clear()


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    new_producer = Producer()
    monkeypatch.setattr(clients, "producer", lambda *_: new_producer)
    return new_producer


@pytest.fixture
def sender(producer: Producer) -> Sender:
    return Sender(ClientSettings("nowhere:1"))


def test_what_waits_for_a_stuck_partition_keeps_no_other_thread_waiting(
    sender: Sender, producer: Producer
) -> None:
    stuck = threading.Thread(target=sender.send, args=([Outgoing(STUCK, b"a")],))
    stuck.start()
    while not producer.stuck:
        time.sleep(0.001)
    done = threading.Event()

    def many() -> None:
        for _ in range(50):
            sender.send([Outgoing(FINE, b"b")])
        done.set()

    others = [threading.Thread(target=many) for _ in range(3)]
    for other in others:
        other.start()
    assert done.wait(60)
    for other in others:
        other.join(60)
    assert stuck.is_alive()
    producer.let_go()
    stuck.join(60)
    assert not stuck.is_alive()


def test_stragglers_are_in_doubt_and_others_are_where_they_are(
    sender: Sender, producer: Producer
) -> None:
    records = [Outgoing(STUCK, b"a"), Outgoing(FINE, b"b"), Outgoing(REFUSED, b"c")]
    stuck, fine, refused = sender.send_each(records, stragglers_s=0.01)
    assert isinstance(stuck, Indeterminate)
    assert isinstance(fine, Delivered)
    assert isinstance(refused, Determinate)
    producer.let_go()  # reported late, to nobody
    assert sender.send([Outgoing(FINE, b"d")])


def test_sending_fails_as_a_whole_where_that_is_asked(sender: Sender) -> None:
    assert sender.send([]) == []
    with pytest.raises(Determinate, match="refused"):
        sender.send([Outgoing(REFUSED, b"a"), Outgoing(REFUSED, b"b")])
    with pytest.raises(Indeterminate, match="1 of 2 stored"):
        sender.send([Outgoing(FINE, b"a"), Outgoing(REFUSED, b"b")])


def test_writes_and_their_time_are_counted(
    sender: Sender, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = WriteCounts()
    monkeypatch.setattr(producer_module, "WRITES", counts)
    sender.send([Outgoing(FINE, b"a"), Outgoing(FINE, b"b")])
    sender.send_each([Outgoing(FINE, b"c"), Outgoing(REFUSED, b"d")])
    assert (counts.calls, counts.stored, counts.failed) == (2, 3, 1)
    assert 0 < counts.seconds < 60
    sender.send([])
    assert counts.calls == 2, "nothing was written"


def numbered(count: int, topic: Topic = FINE, **more: Any) -> list[Outgoing]:
    return [
        Outgoing(topic, str(number).encode(), partition=0, **more) for number in range(count)
    ]


def test_many_records_are_handed_over_together_by_partition(
    sender: Sender, producer: Producer
) -> None:
    other = Topic("other")
    records = [
        record
        for pair in zip(numbered(MANY), numbered(MANY, other), strict=True)
        for record in pair
    ]
    sent = sender.send(records)
    values = [record.value for record in numbered(MANY)]
    assert producer.batches == [(FINE, 0, values), (other, 0, values)]
    assert [delivered.offset for delivered in sent[::2]] == list(range(MANY))
    assert [delivered.offset for delivered in sent[1::2]] == list(range(MANY, 2 * MANY))


def test_what_a_batch_did_not_take_is_handed_over_by_itself(
    sender: Sender, producer: Producer
) -> None:
    producer.refused = {b"3", b"7"}
    sent = sender.send(numbered(MANY))
    assert [delivered.offset for delivered in (sent[3], sent[7])] == [MANY - 2, MANY - 1]
    assert len({delivered.offset for delivered in sent}) == MANY


@pytest.mark.parametrize(
    "records",
    [numbered(MANY - 1), numbered(MANY, headers=(("group", b"g"),))],
    ids=["few", "with headers"],
)
def test_others_are_handed_over_one_by_one(
    sender: Sender, producer: Producer, records: list[Outgoing]
) -> None:
    assert len(sender.send(records)) == len(records)
    assert producer.batches == []
