"""A record wakes who waits for it, however many wait for something else."""

import threading
from collections import Counter

import pytest

from streams.ids import CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.client.waiters import Callbacks, Waiters
from streams.storage.log.events import Append, Part
from tests.support.shard_clients import DESCRIPTION, U1, append, broker, client

U2 = CollectionId("u2")
THREADS = 20


class Counted:
    """A predicate that counts who evaluates it."""

    def __init__(self, shards: Shards, upper: int) -> None:
        self.shards, self.upper = shards, upper
        self.by = Counter[str]()

    def __call__(self) -> bool:
        self.by[threading.current_thread().name] += 1
        return frontier(self.upper).precedes(self.shards.state(U1).upper)


def test_a_record_wakes_those_alone_that_see_what_they_wait_for() -> None:
    with client(broker(), pump=True) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        one.create("u2", U2, DESCRIPTION, Timestamp(0))
        far, near = Counted(one, 1_000), Counted(one, 20)
        waiting = [
            threading.Thread(
                target=one.wait, args=(thread, 60_000, ("u1",)), name=f"waiter-{n}"
            )
            for n, thread in enumerate([near, *[far] * THREADS])
        ]
        for thread in waiting:
            thread.start()
        while sum(far.by.values()) < THREADS or not near.by:
            pass
        elsewhere = Part(
            collection=U2,
            capability=write_capability(U2),
            lower=frontier(0),
            upper=frontier(10),
        )
        one.submit([("u2", Append((elsewhere,)))])
        assert sum(far.by.values()) == THREADS, "another group's records are not theirs"
        append(one, 0, 10)
        append(one, 10, 20)
        waiting[0].join(60)
        assert not waiting[0].is_alive()
        woken = {name: count for name, count in far.by.items() if name.startswith("waiter")}
        assert set(woken.values()) == {1}, "nothing woke them"
        one.close()
        for thread in waiting:
            thread.join(60)
            assert not thread.is_alive()


def test_who_waits_for_a_group_that_fails_is_woken_with_the_reason() -> None:
    with client(broker(), pump=True) as one:
        one.create("u1", U1, DESCRIPTION, Timestamp(0))
        raised: list[Exception] = []

        def wait() -> None:
            try:
                one.wait(Counted(one, 10), 60_000, ("u1",))
            except ValueError as error:
                raised.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        one.following.fail(one.names("u1").log, ValueError("lost"))
        waiter.join(60)
        assert [str(error) for error in raised] == ["lost"]


def test_callbacks_of_a_group_hear_of_that_group() -> None:
    callbacks = Callbacks()
    calls: list[str] = []

    def all_(_: frozenset[str]) -> None:
        calls.append("all")

    def one(_: frozenset[str]) -> None:
        calls.append("one")

    callbacks.add(all_, None)
    callbacks.add(one, "u1")
    assert callbacks.of(["u2"]) == (all_,)
    assert callbacks.of(["u1", "u2"]) == (all_, one)
    callbacks.remove(one, "u1")
    assert callbacks.of(["u1"]) == (all_,)


@pytest.mark.parametrize("name", ["u1", "elsewhere"])
def test_a_collection_is_found_by_its_id_in_whatever_group(name: str) -> None:
    kafka = broker()
    with client(kafka) as one, client(kafka) as other:
        one.create(name, U1, DESCRIPTION, Timestamp(0))
        assert one.group_of(U1) == name
        other.open(name)
        assert other.group_of(U1) == name
        one.close(name)
        with pytest.raises(Exception, match="no open group"):
            one.group_of(U1)
        one.open(name)
        assert one.group_of(U1) == name


def test_who_waits_for_many_groups_looks_once_at_what_came_together() -> None:
    """A thousand groups that move in one poll used to be a thousand looks at a thousand."""
    lock = threading.RLock()
    waiting = Waiters(lock)
    groups = [f"u{number}" for number in range(100)]
    looks: list[str] = []

    def look() -> bool:
        looks.append(threading.current_thread().name)
        return len(looks) > 1

    def sleep() -> None:
        with lock:
            waiting.sleep(look, groups, 60.0)

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    while not looks:
        with lock:
            waiting.moved(groups)
    with lock:
        assert len(looks) == 1
        waiting.moved(groups)
        assert len(looks) == 2
    sleeper.join(60)
    assert not sleeper.is_alive()
