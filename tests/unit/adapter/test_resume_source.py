"""A stalled source reads on elsewhere: refused without a reason, durable, and told in SHOW."""

import pytest

from streams.adapter.results import Complete, Notice
from streams.compute import binding
from streams.compute.binding import Fact
from streams.compute.description import DataflowDescription, Start
from streams.compute.protocol import Status
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from tests.support.coordinators import NOW, Environment, Killed, with_orders
from tests.support.processes import eventually
from tests.support.replica import FakeReplica

ORDERS, S1 = Topic("orders"), CollectionId("s1")


@pytest.fixture
def env():
    environment = Environment()
    yield environment
    environment.stop()


def produce(env: Environment, count: int, topic: Topic = ORDERS) -> None:
    for _ in range(count):
        env.broker.store.partition(topic, 0).append(NOW, None, b"{}", {})


def bind(env: Environment, replica: FakeReplica, offsets: dict[int, int]) -> None:
    """What a replica appends that has read so far."""
    replica.shards.open(S1)
    replica.shards.sync(S1)
    state = replica.shards.state(S1)
    part = Part(
        collection=S1,
        capability=replica.created[-1].capability,
        lower=state.upper,
        upper=frontier(state.upper.time + 1),
        from_offsets=state.source or {},
        to_offsets=offsets,
    )
    (outcome,) = replica.shards.submit([(S1, Append((part,)))])
    assert isinstance(outcome, Appended)
    env.coordinator.shards.sync(S1)


def made_anew(env: Environment, topic: Topic = ORDERS) -> str:
    """The topic is deleted and created again; its id."""
    env.broker.topics.delete([topic])
    env.broker.topics.create([TopicSpec(topic, 1, TopicKind.RAW)])
    info = env.broker.topics.describe(topic)
    assert info is not None
    return info.id


def described(replica: FakeReplica, generation: int) -> DataflowDescription:
    """The source as the replica is told of it, once it is of this generation."""

    def is_there() -> bool:
        source = replica.created[-1].source
        return source is not None and source.start.generation == generation

    eventually(is_there)
    return replica.created[-1]


def detail(env: Environment) -> object:
    return env.rows("SHOW SOURCES")[0][6]


def test_while_nothing_is_wrong_it_is_refused(env):
    replica = with_orders(env)
    produce(env, 5)
    bind(env, replica, {0: 3})
    failed = env.fails("ALTER SOURCE orders RESUME FROM EARLIEST")
    assert failed.message == "source orders is not stalled"
    assert env.coordinator.catalog.state.items[S1].former == ()


def test_messages_that_are_errors_of_the_source_are_counted(env):
    replica = env.start_replica()
    create = "CREATE SOURCE orders FROM KAFKA (TOPIC 'orders') (id BIGINT) FORMAT JSON"
    assert isinstance(env.sql(f"{create} ON ERROR INLINE")[-1], Complete)
    eventually(lambda: bool(replica.created))
    produce(env, 9)
    bind(env, replica, binding.counted({0: 5}, 0, {0: 1}, Fact.REFUSED))
    assert detail(env) == "1 message could not be decoded"
    bind(env, replica, binding.counted({0: 9}, 0, {0: 1_200}, Fact.REFUSED))
    assert detail(env) == "1,200 messages could not be decoded"


@pytest.mark.parametrize("place", ["EARLIEST", "OFFSETS (0 => 0)", "TOPIC 'orders'"])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning(env, place):
    replica = with_orders(env)
    produce(env, 5)
    bind(env, replica, {0: 5})
    before = replica.created[-1].source
    id_ = made_anew(env)
    produce(env, 2)
    assert isinstance(env.sql(f"ALTER SOURCE orders RESUME FROM {place}")[-1], Complete)
    source = described(replica, 1).source
    assert source is not None
    assert (source.topic, source.topic_id) == (ORDERS, id_)
    assert source.start == Start(1, ((0, 0),))
    assert replica.dropped == [S1]
    assert before is not None
    assert detail(env) == (
        f'resumed in topic "orders", id {id_}; of topic "orders", id {before.topic_id},'
        " it had read up to offsets 0: 5"
    )


def test_what_retention_took_is_skipped_and_told(env):
    replica = with_orders(env)
    produce(env, 9)
    bind(env, replica, {0: 2})
    env.broker.store.partition(ORDERS, 0).truncate(Offset(6))
    assert isinstance(env.sql("ALTER SOURCE orders RESUME FROM EARLIEST")[-1], Complete)
    source = described(replica, 1).source
    assert source is not None
    assert source.start == Start(1, ((0, 6),))
    message = 'resumed in topic "orders": partition 0 skipped offsets 2 to 5'
    assert detail(env) == message
    bind(env, replica, binding.extended({0: 2}, 1, {0: 7}))
    assert env.fails("ALTER SOURCE orders RESUME FROM LATEST").message == (
        "source orders is not stalled"
    )
    env.broker.store.partition(ORDERS, 0).truncate(Offset(8))
    assert isinstance(env.sql("ALTER SOURCE orders RESUME FROM LATEST")[-1], Complete)
    source = described(replica, 2).source
    assert source is not None
    assert source.start == Start(2, ((0, 9),))
    assert detail(env) == (
        f'{message}; resumed in topic "orders": partition 0 skipped offsets 7 to 8'
    )


@pytest.mark.parametrize("on_error", ["DEAD LETTER", "SKIP"])
def test_without_dead_letters_a_notice_says_where_what_was_skipped_is_said(env, on_error):
    replica = with_orders(env, f" ON ERROR {on_error}")
    produce(env, 9)
    bind(env, replica, {0: 2})
    env.broker.store.partition(ORDERS, 0).truncate(Offset(5))
    *notices, done = env.sql("ALTER SOURCE orders RESUME FROM EARLIEST")
    assert isinstance(done, Complete)
    said = [
        "only the column detail of SHOW SOURCES reports what is skipped: orders has no dead"
        " letters; to record it in orders.errors too, run ALTER SOURCE orders SET (ON ERROR"
        " DEAD LETTER) before RESUME"
    ]
    assert notices == ([] if on_error == "DEAD LETTER" else list(map(Notice, said)))


def test_an_end_that_went_back_is_believed_with_a_replica(env):
    replica = with_orders(env)
    produce(env, 4)
    bind(env, replica, {0: 6})  # this broker has lost two
    resume = "ALTER SOURCE orders RESUME FROM LATEST"
    assert env.fails(resume).message == "source orders is not stalled"
    replica.say(Status(S1, "stalled", "expected clocks within 5 s of each other"))
    replica.say(Status(S1, "stalled", 'topic "orders", partition 0: expected to reach ...'))
    eventually(lambda: isinstance(env.sql(resume)[-1], Complete))
    message = 'resumed in topic "orders": partition 0 went back from offset 6 to 4'
    eventually(lambda: detail(env) == message)


def test_a_stall_for_another_reason_is_no_reason(env):
    replica = with_orders(env)
    produce(env, 4)
    bind(env, replica, {0: 4})
    replica.say(Status(S1, "stalled", "expected clocks within 5 s of each other"))
    eventually(lambda: detail(env) == "expected clocks within 5 s of each other")
    failed = env.fails("ALTER SOURCE orders RESUME FROM LATEST")
    assert failed.message == "source orders is not stalled"


def test_another_topic_may_take_its_place(env):
    replica = with_orders(env)
    produce(env, 4)
    bind(env, replica, {0: 4})
    other = Topic("orders.2")
    env.broker.topics.create([TopicSpec(other, 2, TopicKind.RAW)])
    produce(env, 3, other)
    env.broker.topics.delete([ORDERS])
    assert env.fails("ALTER SOURCE orders RESUME FROM EARLIEST").message == (
        "topic orders does not exist"
    )
    assert env.fails("ALTER SOURCE orders RESUME FROM TOPIC 'sw.x'").message == (
        "topic sw.x does not exist"
    )
    done = env.sql("ALTER SOURCE orders RESUME FROM TOPIC 'orders.2' OFFSETS (0 => 2)")
    assert isinstance(done[-1], Complete)
    source = described(replica, 1).source
    assert source is not None
    assert (source.topic, source.start) == (other, Start(1, ((0, 2), (1, 0))))


def test_views_alone_are_refused(env):
    with_orders(env)
    env.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    assert env.fails("ALTER SOURCE v RESUME FROM LATEST").message == (
        "v is not a source but a materialized view"
    )
    assert env.fails("ALTER SOURCE none RESUME FROM LATEST").message == "none does not exist"


def test_a_coordinator_that_dies_has_resumed_it(env):
    replica = with_orders(env)
    produce(env, 5)
    bind(env, replica, {0: 5})
    id_ = made_anew(env)
    env.dying_at = "after-catalog-resume"
    with pytest.raises(Killed):
        env.sql("ALTER SOURCE orders RESUME FROM EARLIEST")
    env.dying_at = ""
    env.start()
    source = described(replica, 1).source
    assert source is not None
    assert (source.topic_id, source.start) == (id_, Start(1, ((0, 0),)))
    assert "resumed" in str(detail(env))
