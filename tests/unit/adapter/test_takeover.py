"""What fails alone, dies in the middle, or is followed by another coordinator."""

import pytest

from streams.adapter.provisioning import reading_hold
from streams.adapter.results import Complete, Notice
from streams.errors import Determinate, InvalidStatement, InvalidUsage
from streams.ids import CollectionId
from streams.kafka.log import Entry
from streams.progress import EMPTY, Antichain
from streams.storage import Storage
from streams.storage.log.events import Drop
from tests.support.coordinators import NOW, TOTALS, Killed, with_orders
from tests.support.processes import eventually


def test_what_cannot_be_made_fails_alone_and_is_tried_again(env, monkeypatch) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    real = env.broker.topics.create

    def refuse(specs):
        if any(".g2." in spec.name for spec in specs):
            raise Determinate("the cluster has no room")
        real(specs)

    monkeypatch.setattr(env.broker.topics, "create", refuse)
    notice, done = env.sql(TOTALS)
    assert notice == Notice("totals is defined, but not created yet: the cluster has no room")
    assert done == Complete("CREATE MATERIALIZED VIEW", {"id": "u2"})
    assert env.rows(TOTALS.replace("totals", "other OWN TOPIC")) == []
    first, second = env.rows("SHOW MATERIALIZED VIEWS")
    assert (first[4], first[6]) == ("failed", "the cluster has no room")
    assert second[4] != "failed"
    monkeypatch.setattr(env.broker.topics, "create", real)
    eventually(lambda: env.rows("SHOW MATERIALIZED VIEWS")[0][4] == "running")


def test_a_damaged_definition_does_not_keep_the_others_down(env, monkeypatch) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    env.rows(TOTALS.replace("totals", "other"))
    eventually(lambda: len(replica.created) == 3)

    def refuse(request):
        raise InvalidStatement("this version cannot plan it")

    with monkeypatch.context() as damaged:
        damaged.setattr(env.workers, "answer", refuse)
        env.start()
        shown = env.rows("SHOW MATERIALIZED VIEWS")
        assert [row[4] for row in shown] == ["failed", "failed"]
        replica.append("s1", NOW + 20, [((7, 1.0), NOW + 15, 1)])
        assert env.rows("SELECT id FROM orders") == [[7]]
    env.coordinator._reconciler._pauses.keep(
        ()
    )  # its pause has grown meanwhile: let it be over
    eventually(lambda: not env.coordinator._reconciler.problems)


POINTS = [
    "after-catalog",
    "after-holds",
    "after-birth",
    "after-shard",
    "before-command",
    "after-command",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_coordinator_that_dies_in_a_create_is_continued_by_the_next(env, point) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.dying_at = point
    with pytest.raises(Killed):
        env.sql(TOTALS)
    env.dying_at = ""
    env.start()
    eventually(lambda: len(replica.created) == 2)
    (shown,) = env.rows("SHOW MATERIALIZED VIEWS")
    assert shown[:4] == ["totals", "u2", NOW + 9, NOW + 9]
    replica.append("u2", NOW + 10, [((1, 1.0), NOW + 9, 1)])
    assert env.rows("SELECT * FROM totals") == [[1, 1.0]]
    assert [description.export for description in replica.created] == ["s1", "u2"]


def of_u2(env) -> list[Antichain]:
    """What a client that has never heard of the view hears of it."""
    with Storage.memory(env.broker) as client:
        return [
            capability.frontier
            for capability in client.acquire_capabilities(CollectionId("u2"))
        ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "point",
    ["after-catalog-drop", "after-release", "after-drop", "after-retire", "before-forget"],
)
def test_a_coordinator_that_dies_in_a_drop_is_continued_by_the_next(env, point) -> None:
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    eventually(lambda: len(replica.created) == 2)
    first = env.coordinator
    env.dying_at = point
    if point == "after-catalog-drop":
        with pytest.raises(Killed):
            env.sql("DROP MATERIALIZED VIEW totals")
    else:
        env.rows("DROP MATERIALIZED VIEW totals")
        eventually(lambda: not first._reconciler._thread.is_alive())
    env.dying_at = ""
    before = of_u2(env) if point in {"after-retire", "before-forget"} else []
    assert before in ([], [EMPTY, EMPTY])
    env.start()
    eventually(lambda: not env.coordinator.catalog.state.dropped)
    assert of_u2(env) == [EMPTY, EMPTY]
    assert not [name for name in env.broker.topics.names() if ".g2." in name]
    capabilities = env.coordinator.shards.state(CollectionId("s1")).capabilities
    assert not [capability for capability in capabilities if capability.startswith("u2")]


def test_a_coordinator_that_was_followed_ends(env) -> None:
    first = env.coordinator
    env.start()
    eventually(lambda: first.failure is not None)
    assert "epoch 1 was followed by 2" in str(first.failure)


def test_a_coordinator_that_can_follow_nothing_any_more_ends(env) -> None:
    with_orders(env)

    def broken(wait_ms: int) -> tuple[Entry, ...]:
        raise InvalidUsage("which all who look after something take for a passing failure")

    assert env.coordinator.is_alive
    env.coordinator.shards.following._tail.poll = broken
    eventually(lambda: not env.coordinator.is_alive)


def test_holds_for_reads_are_taken_of_all_objects_at_once(env, monkeypatch) -> None:
    """One by one, a thousand objects would be a thousand round trips."""
    replica = with_orders(env)
    replica.append("s1", NOW + 10)
    env.rows(TOTALS)
    env.rows(TOTALS.replace("totals", "other"))
    ids = [CollectionId(id_) for id_ in ("s1", "u2", "u3")]
    shards = env.coordinator.shards
    shards.submit([(shards.group_of(id_), Drop(id_, reading_hold(id_))) for id_ in ids])
    env.coordinator.stop()
    flushes: list[set[str]] = []
    honest = env.broker.logs.append_each

    def append(sent, stragglers_ms=0):
        events = [(topic, value) for topic, value in sent if topic.endswith(".log")]
        flushes.append({topic for topic, value in events if b".reading" in value})
        return honest(sent, stragglers_ms)

    monkeypatch.setattr(env.broker.logs, "append_each", append)
    env.start()
    assert [flush for flush in flushes if flush] == [{"sw.s1.log", "sw.g2.log"}]
    for collection in ids:
        assert reading_hold(collection) in env.coordinator.shards.state(collection).capabilities
