"""A source with a watermark resumes: what is pending is kept, and what is missing is told."""

import pytest

from streams.adapter.results import Complete
from streams.compute import binding, continuation, dead_letters
from streams.compute.binding import Fact
from streams.compute.description import Kept, Start
from streams.compute.protocol import Status
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from streams.storage.log.events import Append, Part, write_capability
from streams.storage.log.outcomes import Appended
from tests.support.coordinators import Environment
from tests.support.processes import eventually
from tests.support.replica import FakeReplica
from tests.unit.adapter.test_resume_source import bind, described, detail, made_anew, produce

S1 = CollectionId("s1")
CLICKS = (
    "CREATE SOURCE clicks FROM KAFKA (TOPIC 'orders')"
    " (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FORMAT JSON ON ERROR FAIL"
)
GONE = 'topic "orders", partition 0: rows from offset 3 on are pending until ...'
SHORT = 'topic "orders", partition 0: expected to reach offset {}, actual an end at {}'
BAD = "cannot decode message: topic orders, partition 0, offset {}: x"


@pytest.fixture
def env():
    environment = Environment()
    yield environment
    environment.stop()


@pytest.fixture
def replica(env: Environment) -> FakeReplica:
    """It has bound the offsets before 9, of which those from 3 on are pending."""
    replica = env.start_replica()
    assert isinstance(env.sql(CLICKS)[-1], Complete)
    eventually(lambda: bool(replica.created))
    produce(env, 12)
    bind(env, replica, bound(9, 3))
    return replica


def bound(read: int, released: int) -> dict[int, int]:
    return dict(binding.extended({0: read}, 0, {0: released}, Fact.RELEASED))


def settle(env: Environment, replica: FakeReplica, offsets: dict[int, int]) -> None:
    """Dead letters alone are appended."""
    letters = dead_letters.of(S1)
    replica.shards.open(S1)
    replica.shards.sync(S1)
    state = replica.shards.state(letters)
    part = Part(
        collection=letters,
        capability=write_capability(letters),
        lower=state.upper,
        upper=frontier(state.upper.time + 1),
        from_offsets=state.source or {},
        to_offsets=offsets,
    )
    (outcome,) = replica.shards.submit([(S1, Append((part,)))])
    assert isinstance(outcome, Appended)
    env.coordinator.shards.sync(S1)


def resume(env: Environment, place: str) -> None:
    done = env.sql(f"ALTER SOURCE clicks RESUME FROM {place}")
    assert isinstance(done[-1], Complete), done


def said(env: Environment, replica: FakeReplica, reason: str) -> None:
    replica.say(Status(S1, "stalled", reason))
    eventually(lambda: detail(env) == reason)


def begins(replica: FakeReplica, generation: int) -> Start:
    source = described(replica, generation).source
    assert source is not None
    return source.start


def test_while_nothing_is_wrong_it_is_refused(env, replica):
    """Also if retention has passed what is pending: a replica may have it in memory."""
    resumes = "ALTER SOURCE clicks RESUME FROM OFFSETS (0 => 9)"
    assert env.fails(resumes).message == "source clicks is not stalled"
    env.broker.store.partition(Topic("orders"), 0).truncate(Offset(5))
    assert env.fails(resumes).message == "source clicks is not stalled"


def test_it_goes_on_without_the_pending_rows_that_are_gone(env, replica):
    env.broker.store.partition(Topic("orders"), 0).truncate(Offset(5))
    said(env, replica, GONE)
    resume(env, "OFFSETS (0 => 9)")
    assert begins(replica, 1) == Start(1, (), Kept(0, gaps=((0, 3, 5),)))
    replica.say(Status(S1, "running", ""))
    told = (
        'resumed in topic "orders": partition 0 lacks rows of offsets 3 to 4 that were pending'
    )
    eventually(lambda: detail(env) == told)
    bind(env, replica, binding.extended(bound(9, 3), 1, {0: 12}))
    assert detail(env) == told
    assert env.fails("ALTER SOURCE clicks RESUME FROM LATEST").message == (
        "source clicks is not stalled"
    )


def test_what_retention_took_unread_is_skipped_and_told(env, replica):
    env.broker.store.partition(Topic("orders"), 0).truncate(Offset(11))
    resume(env, "EARLIEST")
    assert begins(replica, 1) == Start(1, (), Kept(0, gaps=((0, 3, 11),)))
    assert detail(env) == (
        'resumed in topic "orders": partition 0 lacks rows of offsets 3 to 8 that were pending,'
        " partition 0 skipped offsets 9 to 10"
    )


def test_a_bad_message_is_left_out_and_what_is_before_it_is_read(env, replica):
    said(env, replica, BAD.format(10))
    resume(env, "OFFSETS (0 => 11)")
    start = begins(replica, 1)
    assert start == Start(1, (), Kept(0, gaps=((0, 10, 11),)))
    assert env.fails("ALTER SOURCE clicks RESUME FROM OFFSETS (0 => 11)").message == (
        "source clicks is not stalled"
    ), "the replica has not said anything since"
    said(env, replica, BAD.format(11))
    resume(env, "OFFSETS (0 => 12)")
    assert begins(replica, 2) == Start(2, (), Kept(0, gaps=((0, 10, 12),)))
    replica.say(Status(S1, "running", ""))
    told = 'resumed in topic "orders": partition 0 skipped offsets {0} to {0}'
    eventually(lambda: detail(env) == f"{told.format(10)}; {told.format(11)}")


def test_a_bad_message_that_was_left_out_before_is_no_reason(env, replica):
    said(env, replica, BAD.format(8))
    assert env.fails("ALTER SOURCE clicks RESUME FROM OFFSETS (0 => 9)").message == (
        "source clicks is not stalled"
    )


def test_where_the_topic_lost_its_end_other_messages_are_not_pending(env, replica):
    lost = 'topic "orders" has lost records at the end of partition 0 (from offset 6 on)'
    said(env, replica, lost)
    resume(env, "LATEST")
    kept = Kept(0, returns=((0, 1, 12),), gaps=((0, 6, 12),))
    assert begins(replica, 1) == Start(1, (), kept)
    replica.say(Status(S1, "running", ""))
    told = (
        'resumed in topic "orders": partition 0 lacks rows of offsets 6 to 8 that were pending,'
        " partition 0 skipped offsets 9 to 11"
    )
    eventually(lambda: detail(env) == told)


def test_an_end_that_was_lost_before_dead_letters_is_one_where_it_may_resume():
    """The dead letters up to there stay, the messages from there on are others."""
    env = Environment()
    try:
        replica = env.start_replica()
        assert isinstance(env.sql(CLICKS.replace("FAIL", "DEAD LETTER"))[-1], Complete)
        eventually(lambda: bool(replica.created))
        produce(env, 6)
        bind(env, replica, bound(2, 2))
        resumes = "ALTER SOURCE clicks RESUME FROM OFFSETS (0 => 2)"
        assert env.fails(resumes).message == "source clicks is not stalled"
        settle(env, replica, {0: 9})
        said(env, replica, SHORT.format(9, 6))
        resume(env, "OFFSETS (0 => 2)")
        assert begins(replica, 1) == Start(1, (), Kept(0, returns=((0, 1, 6),)))
        start = begins(replica, 1)
        assert continuation.standing(bound(2, 2), start) == {0: 2}
        assert continuation.settled({0: 9}, start) == {0: 6}
        replica.say(Status(S1, "running", ""))
        eventually(lambda: "nothing was skipped" in str(detail(env)))
    finally:
        env.stop()


def test_it_may_go_back(env, replica):
    said(env, replica, GONE)
    resume(env, "OFFSETS (0 => 5)")
    assert begins(replica, 1) == Start(1, (), Kept(0, returns=((0, 1, 5),)))
    replica.say(Status(S1, "running", ""))
    told = 'resumed in topic "orders": partition 0 went back from offset 9 to 5'
    eventually(lambda: detail(env) == told)


@pytest.mark.parametrize("place", ["EARLIEST", "TOPIC 'other'"])
def test_pending_rows_of_a_topic_that_is_given_up_are_missing(env, replica, place):
    if place == "EARLIEST":
        made_anew(env)
        produce(env, 2)
    else:
        env.broker.topics.create([TopicSpec(Topic("other"), 1, TopicKind.RAW)])
        env.broker.topics.delete([Topic("orders")])
    resume(env, place)
    assert begins(replica, 1) == Start(1, ((0, 0),))
    said_of_it = str(detail(env))
    assert "it had read up to offsets 0: 9; rows that were pending are missing" in said_of_it
    assert said_of_it.endswith("of partition 0 offsets 3 to 8")


def test_a_coordinator_that_starts_again_sends_the_same_start(env, replica):
    env.broker.store.partition(Topic("orders"), 0).truncate(Offset(11))
    resume(env, "EARLIEST")
    start = begins(replica, 1)
    env.start()
    source = env.coordinator.catalog.sync().items[S1].source
    assert source is not None
    assert source.start == start
