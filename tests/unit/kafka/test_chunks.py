"""What a reader of chunks makes of a client that brings nothing."""

import zlib
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from confluent_kafka import Message, TopicPartition

from streams.errors import Corrupt
from streams.ids import Offset, Topic
from streams.kafka.client import chunks, clients
from streams.kafka.log import ChunkRef, Unanswered
from streams.kafka.settings import ClientSettings

TOPIC = Topic("data")
REFS = [ChunkRef(0, Offset(offset), "key", zlib.crc32(b"x"), 1, 1) for offset in range(3)]


class Stuck:
    """A client that brings `each_time` records after it was assigned, and then nothing."""

    def __init__(self, each_time: Sequence[int]) -> None:
        self._each_time, self.starts = deque(each_time), list[int]()
        self._messages = deque[Message]()

    def assign(self, places: list[TopicPartition]) -> None:
        (place,) = places
        self.starts.append(place.offset)
        count = self._each_time.popleft() if self._each_time else 0
        self._messages = deque(
            Message(topic=TOPIC, partition=0, offset=offset, key=b"key", value=b"x")
            for offset in range(place.offset, place.offset + count)
        )

    def poll(self, wait_s: float) -> Message | None:
        return self._messages.popleft() if self._messages else None

    def consume(self, count: int, wait_s: float) -> list[Message]:
        return []

    def incremental_unassign(self, places: object) -> None: ...
    def unassign(self) -> None: ...


def swept(consumer: Stuck) -> int:
    return len(chunks._Sweep(consumer, {TOPIC: REFS}).run())  # type: ignore[arg-type]


def test_a_fetch_that_brings_nothing_is_begun_anew_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "_AGAIN_S", 0.0)
    consumer = Stuck([1, 0, 2])
    assert swept(consumer) == 3
    assert consumer.starts[0] == 0
    assert set(consumer.starts[1:]) == {1}


def test_it_is_begun_anew_more_and_more_rarely_and_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]

    class Slow(Stuck):
        def poll(self, wait_s: float) -> Message | None:
            now_s[0] += wait_s
            return super().poll(wait_s)

    monkeypatch.setattr(chunks, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(clients, "ANSWER_TIMEOUT_S", 30.0)
    consumer = Slow([])
    with pytest.raises(Unanswered, match="no answer in time"):
        swept(consumer)
    assert len(consumer.starts) == 4
    assert 30 < now_s[0] < 33


@pytest.mark.parametrize("place", [(-1, 2), (0, -1), (0, -2), (0, -1001)])
def test_a_place_where_no_record_can_be_is_said_to_be_missing_at_once(
    place: tuple[int, int],
) -> None:
    """A Rollup in a log named partition -1: each fetch of it waited for half a minute."""
    nobody = chunks.KafkaChunks(ClientSettings("127.0.0.1:1"))
    ref = ChunkRef(place[0], Offset(place[1]), "key", 0, 1, 1)
    for fetch in (nobody.fetch, nobody.fetch_committed):
        with pytest.raises(Corrupt, match="there is no such place"):
            fetch(TOPIC, [REFS[0], ref])
    with pytest.raises(Corrupt, match="there is no such place"):
        nobody.fetch_all({TOPIC: [ref]})
