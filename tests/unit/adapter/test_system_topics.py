"""Topics of system relations: they are written while sources read them."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streams.adapter.results import Complete
from streams.adapter.system_columns import COLUMNS, KEYS, relation_of, topic_of
from streams.adapter.system_topics import SystemTopics, changes, contents, read_by_sources
from streams.ids import Topic
from streams.kafka.client.transactions import Fenced, OutRecord
from streams.kafka.memory.records import MemoryRawReader, MemoryTransactions
from streams.kafka.topics import TopicKind, TopicSpec
from tests.support.coordinators import Environment, with_orders

FRONTIERS = Topic("sw.system.frontiers")


def definition(relation: str, name: str = "") -> str:
    """The statement that makes a source of a system relation's topic, as the page has it."""
    columns = ", ".join(f"{column.name} {column.type}" for column in COLUMNS[relation])
    return (
        f"CREATE SOURCE {name or relation} FROM KAFKA (TOPIC '{topic_of(relation, 'sw')}')"
        f" ({columns}) FORMAT JSON ENVELOPE UPSERT (KEY ({', '.join(KEYS[relation])}))"
    )


@dataclass
class Written:
    """The topics that a coordinator writes, with its environment."""

    env: Environment
    sessions: list[MemoryTransactions] = field(default_factory=list)

    def topics(self) -> SystemTopics:
        coordinator = self.env.coordinator
        return SystemTopics(
            "sw", lambda: coordinator.catalog.state, coordinator.system_state, self._connect
        )

    def _connect(self) -> tuple[MemoryTransactions, MemoryRawReader]:
        store = self.env.broker.store
        self.sessions.append(MemoryTransactions(store, "sw.system", lambda: self.env.now))
        return self.sessions[-1], MemoryRawReader(store)

    def records(self, topic: Topic = FRONTIERS) -> list[tuple[Any, Any]]:
        """All messages of a topic, keys and values decoded."""
        reader = MemoryRawReader(self.env.broker.store)
        ((number, (low, high)),) = reader.ends(topic).items()
        table = reader.fetch(topic, number, low, high)
        columns = [
            [None if text is None else json.loads(text) for text in table[name].to_pylist()]
            for name in ("key", "value")
        ]
        return list(zip(*columns, strict=True))


@pytest.fixture
def written(env: Environment) -> Written:
    with_orders(env)
    return Written(env)


@pytest.mark.parametrize("relation", COLUMNS)
def test_every_relation_is_a_source(relation: str, written: Written) -> None:
    assert set(KEYS[relation]) <= {column.name for column in COLUMNS[relation]}
    assert isinstance(written.env.sql(definition(relation, "read"))[-1], Complete)
    written.topics().write()
    state = written.env.coordinator.system_state()
    assert read_by_sources(state.catalog, "sw") == {relation: topic_of(relation, "sw")}
    columns = {column.name for column in COLUMNS[relation]}
    for key, value in written.records(topic_of(relation, "sw")):
        assert tuple(key) == KEYS[relation]
        assert set(value) == columns - set(key)


def test_nothing_is_written_that_no_source_reads(written: Written) -> None:
    written.topics().write()
    assert not written.sessions


def test_what_has_changed_is_written_and_what_is_gone_deleted(written: Written) -> None:
    env, topics = written.env, written.topics()
    env.sql(definition("frontiers", "f"))
    topics.write()
    first = written.records()
    assert [key for key, _ in first] == [{"id": "s1"}, {"id": "s2"}]
    assert first[0][1]["name"] == "orders"
    topics.write()
    assert written.records() == first
    env.now += 1000
    topics.write()
    assert {key["id"] for key, _ in written.records()[2:]} == {"s1", "s2"}
    assert isinstance(env.sql("DROP SOURCE orders")[-1], Complete)
    topics.write()
    assert written.records()[-1] == ({"id": "s1"}, None)


def test_a_successor_deletes_what_its_predecessor_left(written: Written) -> None:
    env = written.env
    env.sql(definition("objects", "o"))
    topic = topic_of("objects", "sw")
    written.topics().write()
    env.sql("DROP SOURCE orders")
    before = written.records(topic)
    written.topics().write()
    of_orders = [
        value for key, value in written.records(topic)[len(before) :] if key["id"] == "s1"
    ]
    assert of_orders == [None]


def test_one_that_was_fenced_begins_again_with_what_is_there(written: Written) -> None:
    env = written.env
    env.sql(definition("frontiers", "f"))
    old, new = written.topics(), written.topics()
    old.write()
    new.write()
    env.now += 1000
    with pytest.raises(Fenced):
        old.write()
    new.write()
    new.write()
    count = len(written.records())
    old.write()
    assert len(written.records()) == count  # the same state: nothing is to be written


def test_a_source_that_was_dropped_is_no_longer_written(written: Written) -> None:
    env, topics = written.env, written.topics()
    env.sql(definition("frontiers", "f"))
    topics.write()
    env.sql("DROP SOURCE f")
    count = len(written.records())
    env.now += 1000
    topics.write()
    assert len(written.records()) == count


def test_the_changes_are_what_makes_one_contents_the_other() -> None:
    topic = Topic("t")
    before, after = {b"a": b"1", b"b": b"2", b"c": b"3"}, {b"b": b"2", b"c": b"4", b"d": b"5"}
    assert set(changes(topic, before, after)) == {
        OutRecord(topic, b"a", None),
        OutRecord(topic, b"c", b"4"),
        OutRecord(topic, b"d", b"5"),
    }


def test_keys_are_in_the_key_alone() -> None:
    assert contents("lanes", [("r1", "fast", 5, 2, None)]) == {
        b'{"replica":"r1","lane":"fast"}': b'{"reported_ms":5,"batches":2,"rows":null}'
    }


def test_only_topics_of_relations_are_theirs() -> None:
    assert relation_of(FRONTIERS, "sw") == "frontiers"
    for name in (
        "sw.system.other",
        "sw.system.",
        "frontiers",
        "sw.frontiers",
        "x.system.peeks",
    ):
        assert relation_of(Topic(name), "sw") is None


def test_another_topic_of_the_environment_is_refused(env: Environment) -> None:
    other = "CREATE SOURCE s FROM KAFKA (TOPIC 'sw.system.other') (x BIGINT) FORMAT JSON"
    assert env.fails(other).message == "topic sw.system.other does not exist"
    env.broker.topics.create([TopicSpec(Topic("sw.system.other"), 1, TopicKind.RAW)])
    assert env.fails(other).message == "topic sw.system.other belongs to this environment"


def test_the_page_has_the_keys() -> None:
    page = Path("streams/docs/SQL.md").read_text("utf-8")
    for relation, keys in KEYS.items():
        (row,) = re.findall(rf"^\| `slackwater\.{relation}` \|.*$", page, re.MULTILINE)
        assert row.endswith(f"| {', '.join(f'`{key}`' for key in keys)} |")
