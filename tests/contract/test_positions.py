"""What everybody who notes how far topics were read promises."""

import itertools

import pytest

from streams.ids import Offset, Topic
from streams.kafka.client.positions import KafkaMarks, KafkaPositions, Mark, Position
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryMarks, MemoryPositions
from streams.kafka.topics import TopicKind

_numbers = itertools.count()


@pytest.fixture
def clients(storage):
    """Makes clients of one group; what one has noted the next one finds."""
    if isinstance(storage, MemoryBroker):
        shared = MemoryPositions()
        yield lambda: shared
        return
    stores: list[KafkaPositions] = []
    group = f"positions-{next(_numbers)}"

    def client() -> KafkaPositions:
        stores.append(KafkaPositions(storage.settings, group))
        return stores[-1]

    yield client
    for positions in stores:
        positions.close()


def test_what_one_process_noted_the_next_one_finds(clients, make) -> None:
    topic: Topic = make(TopicKind.DATA, partitions=3)
    first = clients()
    assert first.load(topic, 3) == {}
    noted = {0: Position(Offset(7), 1_785_000_000_000), 2: Position(Offset(1 << 40), 5)}
    first.save(topic, noted)
    assert clients().load(topic, 3) == noted
    first.save(topic, {0: Position(Offset(3), 6)})
    assert clients().load(topic, 3) == {**noted, 0: Position(Offset(3), 6)}
    assert clients().load(topic, 1) == {0: Position(Offset(3), 6)}


@pytest.fixture
def markers(storage):
    """As `clients`, of marks."""
    if isinstance(storage, MemoryBroker):
        shared = MemoryMarks()
        yield lambda: shared
        return
    states: list[KafkaMarks] = []
    group = f"marks-{next(_numbers)}"

    def client() -> KafkaMarks:
        states.append(KafkaMarks(storage.settings, group))
        return states[-1]

    yield client
    for marks in states:
        marks.close()


def test_the_newest_mark_is_found_by_the_next_process(markers, make) -> None:
    topic: Topic = make(TopicKind.COMMANDS)
    first = markers()
    assert first.load(topic) is None
    for mark in (Mark(Offset(7), Offset(9), 1), Mark(Offset(0), Offset(1 << 40), 2)):
        first.save(topic, mark, is_waited_for=True)
        assert markers().load(topic) == mark
    first.save(topic, Mark(Offset(4), Offset(5), 0), is_waited_for=False)
    first.save(topic, Mark(Offset(5), Offset(6), 1), is_waited_for=False)
    first.close()  # what is on its way arrives
    assert markers().load(topic) == Mark(Offset(5), Offset(6), 1)
