"""The memory broker is the strict one: what a broker refuses, it refuses."""

from itertools import count

import pytest

from streams.errors import Corrupt, Determinate, Indeterminate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.log import Truncated
from streams.kafka.memory.faulty import Fault, FaultyChunks, FaultyLogs
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.topics import TopicKind, TopicSpec

LOG = Topic("g.log")
DATA = Topic("g.data")


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker(count(1000).__next__)
    broker.topics.create([TopicSpec(LOG, 1, TopicKind.LOG), TopicSpec(DATA, 2, TopicKind.DATA)])
    return broker


def test_append_times_are_the_brokers(broker):
    broker.logs.append([(LOG, b"a"), (LOG, b"b")])
    assert [entry.at_ms for entry in broker.logs.tail({LOG: Offset(0)}).poll(0)] == [1000, 1001]


def test_a_partly_refused_append_is_indeterminate(broker):
    with pytest.raises(Indeterminate, match="1 of 2"):
        broker.logs.append([(LOG, b"a"), (Topic("none"), b"b")])
    assert broker.logs.bounds(LOG) == (0, 1)


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(broker):
    with pytest.raises(Determinate, match="needs a key"):
        broker.store.check(DATA, None, b"x")


def test_a_forgotten_chunk_is_gone_at_once_and_leaves_others(broker):
    first, second = broker.chunks.write(DATA, [(b"a", 1), (b"b", 2)], {})
    broker.chunks.forget(DATA, [first])
    with pytest.raises(Corrupt, match="missing"):
        broker.chunks.fetch(DATA, [first])
    assert broker.chunks.fetch(DATA, [second]) == [b"b"]


def test_a_recreated_topic_is_another_one(broker):
    tail = broker.logs.tail({LOG: Offset(0)})
    before = broker.topics.describe(LOG)
    broker.topics.delete([LOG])
    broker.topics.create([TopicSpec(LOG, 1, TopicKind.LOG)])
    assert before != broker.topics.describe(LOG)
    with pytest.raises(Truncated, match="deleted"):
        tail.poll(0)


def test_a_data_topic_is_no_log(broker):
    with pytest.raises(InvalidUsage, match="expected 1 partition, actual 2"):
        broker.logs.bounds(DATA)


def test_injected_faults_write_what_they_say(broker):
    logs = FaultyLogs(broker.logs, [Fault.BEFORE, Fault.AFTER, Fault.INSTEAD])
    with pytest.raises(Determinate):
        logs.append([(LOG, b"before")])
    with pytest.raises(Indeterminate):
        logs.append([(LOG, b"after")])
    with pytest.raises(Indeterminate):
        logs.append([(LOG, b"instead")])
    logs.append([(LOG, b"plain")])
    logs.surface()
    values = [entry.value for entry in logs.tail({LOG: Offset(0)}).poll(0)]
    assert values == [b"after", b"plain", b"instead"]


def test_a_chunk_write_that_fails_after_leaves_an_orphan(broker):
    chunks = FaultyChunks(broker.chunks, [Fault.AFTER, Fault.INSTEAD])
    for _ in range(2):
        with pytest.raises(Indeterminate):
            chunks.write(DATA, [(b"a", 1)], {})
    assert sum(part.end for part in broker.store.topic(DATA).partitions) == 1
