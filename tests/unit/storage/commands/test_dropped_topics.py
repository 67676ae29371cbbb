"""Commands about what has no topics any more: it was dropped, or it is lost."""

import pytest

from streams.ids import CollectionId, Timestamp, Topic
from streams.storage.client.id_registry import Directory
from tests.support.command_service import DESCRIPTION, World, code, made
from tests.support.storages import end


@pytest.fixture
def world() -> World:
    return World()


def test_a_log_that_somebody_deleted_fails_its_commands_as_truncated(world: World) -> None:
    """Whether the service has followed it or not: nobody dropped what was in it."""
    _, write = made(world)
    following = world.service()
    done = world.send("heartbeat", capability=write)
    while done not in world.answers():
        following.step(0)
    log, data = "sw.t.log", "sw.t.data"
    world.broker.topics.delete([Topic(log), Topic(data)])
    for service in (following, None, None):
        ids = [
            world.send("heartbeat", capability=write),
            world.send("acquire_capabilities", collection="t"),
            world.send("create", collection="t", description=DESCRIPTION),
        ]
        world.run(service)
        for id_ in ids:
            answer = world.answers()[id_]
            assert answer["status"] == "FAILED"
            codes = {"Truncated"} if service is None else {"Truncated", "Determinate"}
            assert answer["error"]["code"] in codes
            assert log in answer["error"]["message"]


def test_what_was_dropped_is_said_to_be_so_when_its_topics_are_gone(world: World) -> None:
    """Also what SQL has made, of which the registry of ids knows nothing before."""
    u1, t = CollectionId("u1"), CollectionId("t")
    read, write = made(world)
    storage = world.storage()
    storage.shards.create(u1, u1, DESCRIPTION, Timestamp(0))
    following = world.service()
    acquired = [
        world.send("acquire_capabilities", collection=collection) for collection in (u1, "u2")
    ]
    while not world.answers().keys() >= {*acquired}:
        following.step(0)
    assert code(world.answers()[acquired[1]]) == "NotBound"
    for id_ in (u1, t):
        end(storage, id_)
        Directory(storage.shards).retire(id_, [id_])
        storage.shards.delete(id_)
        done = world.ask("acquire_capabilities", collection=id_)
        assert done["status"] == "DONE"
        assert [capability["frontier"] for capability in done["capabilities"]] == [None, None]
    late = world.send("acquire_capabilities", collection=u1)
    following.close()  # others have answered meanwhile; it has read nothing of the drop
    world.run(following)
    assert world.answers()[late]["status"] == "DONE"
    assert code(world.ask("heartbeat", capability=write)) == "Forgotten"
    assert code(world.ask("subscribe_at", capability=read)) == "Unreadable"
    assert code(world.ask("create", collection="t", description=DESCRIPTION)) == "NeverReused"
