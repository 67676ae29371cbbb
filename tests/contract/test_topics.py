"""What every Topics promises."""

import itertools

import pytest

from streams.errors import Determinate, InvalidUsage
from streams.ids import Offset, Topic
from streams.kafka.client import clients
from streams.kafka.client.admin import KafkaTopics
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

_names = itertools.count()


@pytest.fixture
def name():
    return Topic(f"contract.topics.{next(_names)}")


def test_creating_again_changes_nothing(storage, name):
    spec = TopicSpec(name, 1, TopicKind.LOG)
    storage.topics.create([spec])
    before = storage.topics.describe(name)
    storage.logs.append([(name, b"a")])
    storage.topics.create([spec])
    assert storage.topics.describe(name) == before
    assert storage.logs.bounds(name) == (0, 1)


def test_a_created_topic_can_be_used_at_once(storage, name):
    storage.topics.create([TopicSpec(name, 1, TopicKind.LOG)])
    assert storage.logs.append([(name, b"a")]) == (0,)
    tail = storage.logs.tail({name: Offset(0)})
    assert [entry.value for entry in tail.poll(5_000)] == [b"a"]
    tail.close()


def test_a_topic_of_another_kind_is_refused(storage, name):
    storage.topics.create([TopicSpec(name, 1, TopicKind.DATA)])
    with pytest.raises(InvalidUsage, match=r"cleanup\.policy: expected delete, actual compact"):
        storage.topics.create([TopicSpec(name, 1, TopicKind.LOG)])


def test_a_topic_of_other_partitions_is_refused(storage, name):
    storage.topics.create([TopicSpec(name, 2, TopicKind.OUTPUT)])
    with pytest.raises(InvalidUsage, match="partitions: expected 3, actual 2"):
        storage.topics.create([TopicSpec(name, 3, TopicKind.OUTPUT)])


def test_a_data_topic_keeps_the_partitions_it_has(storage, name):
    storage.topics.create([TopicSpec(name, 2, TopicKind.DATA)])
    storage.topics.create([TopicSpec(name, 3, TopicKind.DATA)])
    assert storage.topics.describe(name).partitions == 2


def test_a_topic_gets_partitions_and_loses_none(storage, name):
    storage.topics.create([TopicSpec(name, 1, TopicKind.DATA)])
    (ref,) = storage.chunks.write(name, [(b"before", 1)], {})
    for requested, there in ((3, 3), (2, 3), (3, 3)):
        storage.topics.grow(name, requested)
        assert storage.topics.describe(name).partitions == there
    assert storage.chunks.fetch(name, [ref]) == [b"before"]
    with pytest.raises(Determinate, match="does not exist"):
        storage.topics.grow(Topic("contract.missing"), 2)


def test_a_raw_topic_is_taken_as_it_is(storage, name):
    storage.topics.create([TopicSpec(name, 3, TopicKind.RAW)])
    storage.topics.create([TopicSpec(name, 1, TopicKind.RAW)])
    assert storage.topics.describe(name).partitions == 3


def test_an_illegal_name_is_refused(storage):
    with pytest.raises(InvalidUsage):
        storage.topics.create([TopicSpec(Topic("no spaces"), 1, TopicKind.LOG)])


def test_what_does_not_exist_is_described_as_nothing(storage):
    assert storage.topics.describe(Topic("contract.never")) is None


def test_names_hold_what_was_created_until_it_is_deleted(storage, name):
    storage.topics.create([TopicSpec(name, 1, TopicKind.LOG)])
    assert name in storage.topics.names()
    storage.topics.delete([name, Topic("contract.never")])
    assert name not in storage.topics.names()
    assert storage.topics.describe(name) is None


def test_a_recreated_topic_is_empty_and_has_another_id(storage, name):
    spec = TopicSpec(name, 1, TopicKind.LOG)
    storage.topics.create([spec])
    before = storage.topics.describe(name)
    storage.logs.append([(name, b"a")])
    storage.topics.delete([name])
    storage.topics.create([spec])
    assert storage.topics.describe(name).id != before.id
    assert storage.logs.bounds(name) == (0, 0)


def test_many_topics_are_described_and_those_that_are_not_there_left_out(storage, name):
    storage.topics.create([TopicSpec(name, 3, TopicKind.OUTPUT)])
    never = Topic("contract.never")
    assert storage.topics.describe_all([name, never]) == {name: storage.topics.describe(name)}
    assert storage.topics.describe_all([]) == {}


@pytest.mark.integration
def test_making_a_topic_asks_about_no_other(broker, name, monkeypatch):
    """However many topics a cluster has."""
    admin = clients.admin(ClientSettings(broker.bootstrap))
    topics = KafkaTopics(ReconnectingClient(lambda: admin))
    asked_about: list[str | None] = []
    monkeypatch.setattr(admin, "list_topics", lambda topic=None, **_: asked_about.append(topic))
    topics.create([TopicSpec(name, 1, TopicKind.LOG)])
    topics.create([TopicSpec(name, 1, TopicKind.LOG)])  # it is there, and verified
    assert topics.describe(name) is not None
    topics.delete([name])
    assert topics.describe(name) is None
    assert asked_about == []


def test_names_that_are_one_to_kafka_are_refused_and_why(storage, name):
    storage.topics.create([TopicSpec(Topic(f"{name}.a.b"), 1, TopicKind.LOG)])
    with pytest.raises(InvalidUsage, match=r"collide.*differ by '\.' and '_' alone"):
        storage.topics.create([TopicSpec(Topic(f"{name}.a_b"), 1, TopicKind.LOG)])


def test_ends_cover_every_partition(storage, name):
    storage.topics.create([TopicSpec(name, 1, TopicKind.LOG)])
    assert storage.topics.ends(name) == {0: (0, 0)}
    storage.logs.append([(name, b"a"), (name, b"b")])
    assert storage.topics.ends(name) == {0: (0, 2)}
    with pytest.raises(Determinate):
        storage.topics.ends(Topic("contract.missing"))


def test_the_first_record_at_a_time_or_later_is_found(storage, name):
    storage.topics.create([TopicSpec(name, 1, TopicKind.LOG)])
    assert storage.topics.at_time(name, 0) == {0: 0}
    storage.logs.append([(name, b"a"), (name, b"b")])
    tail = storage.logs.tail({name: Offset(0)})
    times = [entry.at_ms for entry in tail.poll(5_000)]
    tail.close()
    assert storage.topics.at_time(name, 0) == {0: 0}
    assert storage.topics.at_time(name, times[0]) == {0: 0}
    assert storage.topics.at_time(name, times[-1] + 1) == {0: 2}  # its end
    with pytest.raises(Determinate):
        storage.topics.at_time(Topic("contract.missing"), 0)
