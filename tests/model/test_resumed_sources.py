"""A source whose topic was made anew: two replicas resume it, and each message counts once."""

import itertools
import json
from collections import Counter
from dataclasses import replace

import pytest

from streams.compute import binding
from streams.compute.description import Start
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.topics import TopicKind, TopicSpec
from streams.replica.driver.micro_batch import LANES
from tests.model.test_compacted_sources import present as people
from tests.model.test_compacted_sources import send as send_person
from tests.support import duckdb_oracle
from tests.support.sparkless import Dead, Replica, World

EVENTS = CollectionId("events")


def send(world: World, topic: Topic, *names: str) -> None:
    for name in names:
        world.send(topic, 0, None, json.dumps({"name": name}).encode())


def settle(world: World, replica: Replica) -> None:
    world.now += 2_000
    replica.settle()


def attempt(world: World, replica: Replica) -> None:
    """What a replica does that may be stalled, and hears of no other description."""
    replica.follow(hears=False)
    for _ in range(5):
        world.now += 2_000
        replica.start()
        for lane in LANES:
            replica.step(lane)
        replica.sync()
        replica.idle()


def present(world: World) -> Counter[str]:
    world.shards.sync()
    rows, errors = duckdb_oracle.updates(world.shards, world.relations["events"])
    assert duckdb_oracle.net(errors) == {}
    counts: Counter[str] = Counter()
    for row in rows.to_pylist():
        counts[row["name"]] += row["_diff"]
    return +counts


def resume(world: World, generation: int, *offsets: int) -> None:
    """What ALTER SOURCE ... RESUME FROM sends: another description."""
    (described,) = world.descriptions
    assert described.source is not None
    info = world.broker.topics.describe(described.source.topic)
    assert info is not None
    start = Start(generation, tuple(enumerate(offsets)))
    former = (*described.former, described.source.topic_start)
    source = replace(described.source, topic_id=info.id, start=start)
    world.descriptions[:] = [replace(described, source=source, former=former)]


def made_anew(world: World, topic: Topic) -> None:
    world.broker.topics.delete([topic])
    world.broker.topics.create([TopicSpec(topic, 1, TopicKind.RAW)])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw", 1)
    world.source("events", (("name", "VARCHAR"),), topic)
    send(world, topic, "a", "b", "c")
    return world


def test_nothing_is_read_before_it_is_told_where(world, tmp_path):
    topic, replica = Topic("raw"), Replica(world, "r", tmp_path)
    settle(world, replica)
    made_anew(world, topic)
    send(world, topic, "d", "e", "f", "g")
    attempt(world, replica)
    assert present(world) == Counter("abc")
    assert "was re-created" in str(replica.scheduler.flows[EVENTS].trouble)


def test_of_two_replicas_that_resume_one_counts(world, tmp_path):
    topic = Topic("raw")
    settle(world, Replica(world, "old", tmp_path / "old"))
    made_anew(world, topic)
    send(world, topic, "d", "e")
    resume(world, 1, 0)
    one, two = (Replica(world, name, tmp_path / name) for name in ("one", "two"))
    for replica in (one, two):
        replica.follow()
        replica.start()
        assert any(replica.begin("ingest") for _ in range(3))
    for replica in (one, two):
        replica.sync()
        replica.commit("ingest")
    assert present(world) == Counter("abcde")
    send(world, topic, "f")
    for replica in (one, two):
        settle(world, replica)
    assert present(world) == Counter("abcdef")
    state = world.shards.state(EVENTS)
    assert state.source == binding.extended({0: 3}, 1, {0: 3})


def test_a_replica_that_has_not_heard_of_it_writes_nothing_more(world, tmp_path):
    """The topic has lost its end, and grown beyond what was read since."""
    topic = Topic("raw")
    old, new = (Replica(world, name, tmp_path / name) for name in ("old", "new"))
    settle(world, old)
    partition = world.broker.store.partition(topic, 0)
    partition.records, partition.end = partition.records[:1], 1
    send(world, topic, "d")
    resume(world, 1, 1)
    settle(world, new)
    assert present(world) == Counter("abcd")
    send(world, topic, "e", "f")  # at 2 and 3: the old one was at 3
    attempt(world, old)
    assert present(world) == Counter("abcd")
    settle(world, new)
    assert present(world) == Counter("abcdef")
    attempt(world, old)
    assert present(world) == Counter("abcdef")


def test_a_restart_does_not_resume_again(world, tmp_path):
    """Also where the new topic has come exactly as far as the old one had."""
    topic, numbers = Topic("raw"), itertools.count()
    settle(world, Replica(world, "old", tmp_path / "old"))
    made_anew(world, topic)
    resume(world, 1, 0)
    for name in "def":
        send(world, topic, name)
        settle(world, Replica(world, "r", tmp_path / str(next(numbers))))
    assert binding.offsets(world.shards.state(EVENTS).source or {}, 1) == {0: 3}
    settle(world, Replica(world, "r", tmp_path / str(next(numbers))))
    assert present(world) == Counter("abcdef")


def test_a_source_may_return_to_a_topic(world, tmp_path):
    """No fingerprint of an earlier generation is used again: it is fenced (rule 24)."""
    topic, names = Topic("raw"), iter("defg")
    settle(world, Replica(world, "old", tmp_path / "old"))
    for generation in (1, 2, 3):
        partition = world.broker.store.partition(topic, 0)
        send(world, topic, next(names))
        resume(world, generation, partition.end - 1)
        settle(world, Replica(world, "r", tmp_path / str(generation)))
    assert present(world) == Counter("abcdef")


def test_what_was_skipped_is_not_read(world, tmp_path):
    topic, replica = Topic("raw"), Replica(world, "r", tmp_path / "r")
    settle(world, replica)
    send(world, topic, *"defg")
    world.broker.store.partition(topic, 0).truncate(Offset(5))
    attempt(world, replica)
    assert present(world) == Counter("abc")
    resume(world, 1, 6)
    settle(world, Replica(world, "r", tmp_path / "r2"))
    assert present(world) == Counter("abcg")


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source with dead letters."""
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw", 1)
    world.source("events", (("name", "VARCHAR"),), topic, on_error="dead_letter")
    send(world, topic, "a", "b", "c")
    return world


def said(world: World) -> list[tuple[int, str]]:
    """The offset and the reason of each dead letter, in the order of times."""
    world.shards.sync()
    rows, errors = duckdb_oracle.updates(world.shards, world.relations["events.errors"])
    assert not errors.num_rows
    assert set(rows["topic"].to_pylist()) <= {"raw"}
    assert rows["value"].null_count == rows.num_rows
    by_time = sorted(rows.to_pylist(), key=lambda row: (row["_time"], row["offset"]))
    assert all(row["time"].timestamp() * 1_000 == row["_time"] for row in by_time)
    return [(row["offset"], row["reason"]) for row in by_time]


BY = ", by ALTER SOURCE ... RESUME FROM"


def test_of_two_replicas_that_resume_one_says_what_was_skipped(letters, tmp_path):
    topic = Topic("raw")
    settle(letters, Replica(letters, "old", tmp_path / "old"))
    send(letters, topic, *"defg")
    letters.broker.store.partition(topic, 0).truncate(Offset(5))
    resume(letters, 1, 6)
    one, two = (Replica(letters, name, tmp_path / name) for name in ("one", "two"))
    for replica in (one, two):
        replica.follow()
        replica.start()
        assert any(replica.begin("ingest") for _ in range(3))
    for replica in (one, two):
        replica.sync()
        replica.commit("ingest")
    for replica in (one, two, Replica(letters, "three", tmp_path / "three")):
        settle(letters, replica)
    assert present(letters) == Counter("abcg")
    assert said(letters) == [(3, f"skipped: offsets 3 to 5{BY}")]


@pytest.mark.parametrize("point", ["before-chunks", "after-chunks", "after-append"])
def test_a_replica_that_dies_says_it_no_second_time(letters, tmp_path, point):
    topic = Topic("raw")
    settle(letters, Replica(letters, "old", tmp_path / "old"))
    send(letters, topic, *"defg")
    resume(letters, 1, 5)
    doomed = Replica(letters, "doomed", tmp_path / "doomed")
    doomed.die_at(point)
    with pytest.raises(Dead):
        settle(letters, doomed)
    settle(letters, Replica(letters, "r", tmp_path / "r"))
    settle(letters, Replica(letters, "r", tmp_path / "r2"))
    assert present(letters) == Counter("abcfg")
    assert said(letters) == [(3, f"skipped: offsets 3 to 4{BY}")]


def test_what_a_statement_skipped_that_nobody_followed_is_said_by_the_next(letters, tmp_path):
    topic = Topic("raw")
    settle(letters, Replica(letters, "old", tmp_path / "old"))
    send(letters, topic, *"defghi")
    for generation, offset in enumerate((5, 7, 8), 1):
        resume(letters, generation, offset)
    settle(letters, Replica(letters, "r", tmp_path / "r"))
    assert present(letters) == Counter("abci")
    skips = [(3, 4), (5, 6), (7, 7)]
    assert said(letters) == [(a, f"skipped: offsets {a} to {b}{BY}") for a, b in skips]
    resume(letters, 4, 2)  # back, which skips nothing
    settle(letters, Replica(letters, "r", tmp_path / "r2"))
    assert present(letters) == Counter("abcicdefghi")
    assert len(said(letters)) == len(skips)


def test_dead_letters_that_are_wanted_before_it_resumes_say_what_was_skipped(world, tmp_path):
    """A source without dead letters that stalled, and was altered while it did."""
    topic, replica = Topic("raw"), Replica(world, "old", tmp_path / "old")
    settle(world, replica)
    send(world, topic, *"defg")
    world.broker.store.partition(topic, 0).truncate(Offset(5))
    attempt(world, replica)
    world.alter("events", on_error="dead_letter")
    attempt(world, Replica(world, "r", tmp_path / "stalled"))
    resume(world, 1, 6)
    for name in ("one", "two"):
        settle(world, Replica(world, name, tmp_path / name))
    assert present(world) == Counter("abcg")
    assert said(world) == [(3, f"skipped: offsets 3 to 5{BY}")]


def test_of_a_topic_that_was_made_anew_the_rest_of_the_former_one_is_skipped(letters, tmp_path):
    """Also where the new one has no message yet."""
    topic = Topic("raw")
    settle(letters, Replica(letters, "old", tmp_path / "old"))
    former = letters.broker.topics.describe(topic)
    made_anew(letters, topic)
    resume(letters, 1, 0)
    settle(letters, Replica(letters, "r", tmp_path / "r"))
    info = letters.broker.topics.describe(topic)
    assert former is not None
    assert info is not None
    reason = (
        f"skipped: all offsets from 3 on of the topic with id {former.id}, since the source"
        f' resumed in topic "raw", id {info.id}'
    )
    assert said(letters) == [(3, reason)]


def test_of_a_table_what_was_known_stays_until_it_is_written_again(monkeypatch, tmp_path):
    world = World()
    world.patch(monkeypatch)
    topic = world.raw("raw", 1)
    world.source("people", (("id", "BIGINT"), ("name", "VARCHAR")), topic, ("id",))
    for key in range(3):
        send_person(world, topic, key, "old")
    settle(world, Replica(world, "old", tmp_path / "old"))
    made_anew(world, topic)
    send_person(world, topic, 0, "new")
    send_person(world, topic, 1, None)
    resume(world, 1, 0)
    settle(world, Replica(world, "r", tmp_path / "r"))
    assert people(world) == {(0, "new"): 1, (2, "old"): 1}
    send_person(world, topic, 2, "new")
    settle(world, Replica(world, "r", tmp_path / "r2"))
    assert people(world) == {(0, "new"): 1, (2, "new"): 1}
