"""Where a source begins to read: decided once, by the statement."""

import pytest

from streams.adapter.results import Complete
from streams.compute.description import Start
from streams.ids import Offset, Topic
from tests.support.coordinators import NOW, ORDERS, Environment
from tests.support.processes import eventually


@pytest.fixture
def env():
    environment = Environment()
    environment.broker.store.grow(Topic("orders"), 2)
    for partition, times in ((0, (10, 20, 30, 40)), (1, (25,))):
        log = environment.broker.store.partition(Topic("orders"), partition)
        for at_ms in times:
            log.append(NOW + at_ms, None, b"{}", {})
    environment.broker.store.partition(Topic("orders"), 0).truncate(Offset(1))
    yield environment
    environment.stop()


def begins(env: Environment, clause: str) -> Start:
    """Where the dataflow begins whose source is created like that."""
    replica = env.start_replica()
    assert isinstance(env.sql(f"{ORDERS} {clause}")[-1], Complete)
    eventually(lambda: bool(replica.created))
    source = replica.created[0].source
    assert source is not None
    return source.start


@pytest.mark.parametrize(
    ("clause", "offsets"),
    [
        ("", ()),
        ("START FROM EARLIEST", ()),
        ("START FROM LATEST", ((0, 4), (1, 1))),
        ("START FROM OFFSETS (0 => 3)", ((0, 3), (1, 0))),
        ("START FROM OFFSETS (1 => 1, 0 => 4)", ((0, 4), (1, 1))),
        ("START FROM TIMESTAMP '2023-11-14 22:13:20.022'", ((0, 2), (1, 0))),
        ("START FROM TIMESTAMP '2023-11-14 22:13:20.031Z'", ((0, 3), (1, 1))),
        ("START FROM TIMESTAMP '2023-11-15 00:13:20+02:00'", ((0, 1), (1, 0))),
        ("START FROM TIMESTAMP '2099-01-01'", ((0, 4), (1, 1))),
    ],
)
def test_it_is_offsets_that_a_replica_begins_at(env, clause, offsets):
    assert begins(env, clause) == Start(0, offsets)


def test_a_restart_begins_at_the_same_offsets(env):
    start = begins(env, "START FROM LATEST")
    env.coordinator.stop()
    env.broker.store.partition(Topic("orders"), 0).append(NOW + 50, None, b"{}", {})
    env.start()
    item = env.coordinator.catalog.state.find("orders")
    assert item is not None
    assert item.source is not None
    assert item.source.start == start


@pytest.mark.parametrize(
    ("offsets", "message", "detail"),
    [
        ("7 => 0", "topic orders has no partition 7", "its partitions are 0 to 1"),
        (
            "0 => 0",
            "topic orders, partition 0 does not hold offset 0",
            "the first message is at offset 1, the next one will be at 4",
        ),
        (
            "1 => 2",
            "topic orders, partition 1 does not hold offset 2",
            "the first message is at offset 0, the next one will be at 1",
        ),
    ],
)
def test_an_offset_that_the_topic_does_not_hold_is_refused(env, offsets, message, detail):
    failed = env.fails(f"{ORDERS} START FROM OFFSETS ({offsets})")
    assert (failed.message, failed.detail) == (message, detail)
