"""Storage against a model: two clients, commands in any order, all reads compared.

Once over logs that answer, and once over logs and chunks that fail before, after and instead of
answering, write twice or a part, and let late writes surface: nobody may notice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streams.errors import Determinate, InvalidUsage
from streams.kafka.client.retries import PatientChunks, RetryLimits
from streams.kafka.memory.faulty import Fault, FaultyBroker
from streams.progress import EMPTY, Antichain, frontier
from streams.storage import Storage
from streams.storage.client.handles import (
    InvalidCapability,
    NotForward,
    ReadCapability,
    WriteCapability,
)
from streams.storage.client.lifecycle import (
    AlreadyBound,
    Forgotten,
    NeverReused,
    Sealed,
    Unreadable,
)
from streams.storage.client.shards import Shards
from streams.storage.log.events import Reclaim
from streams.storage.log.outcomes import UpperMismatch
from streams.storage.read.options import Options
from streams.storage.read.subscription import Subscription
from streams.storage.write.validation import NegativeMultiplicity
from tests.model.storage_model import Model
from tests.support.examples import examples
from tests.support.storages import T1, TABLE, Place, contents, end, table

updates = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 1),
        st.integers(0, 9),
        st.sampled_from([-1, 1, 2]),
    ),
    max_size=4,
)
step = st.integers(0, 6)
pick = st.integers(0, 1 << 16)
MOST_IN_A_ROW = 4


@dataclass(eq=False)
class Follower:
    """A subscription, the capability it presented, and whether its snapshot is to come."""

    subscription: Subscription
    held: ReadCapability
    client: Storage
    snapshot: bool


class StorageMachine(RuleBasedStateMachine):
    """Capabilities are kept by name with the frontier their holder knows; dead ones too."""

    counts = False

    @initialize(start=st.integers(0, 5))
    def create(self, start: int) -> None:
        self.place = Place()
        self.clients = self.clients_of(self.place)
        self.model = Model(start)
        self.dropped = False
        read, write = self.clients[0].create(T1, TABLE, start=start)
        self.reads: list[ReadCapability] = [read]
        self.writes: list[WriteCapability] = [write]
        self.short: set[str] = set()
        self.model.reads[read.name] = self.model.writes[write.name] = start
        self.following: list[Follower] = []

    def client(self, number: int) -> Storage:
        return self.clients[number % 2]

    def some_read(self, number: int) -> ReadCapability:
        return self.reads[number % len(self.reads)]

    def some_write(self, number: int) -> WriteCapability:
        return self.writes[number % len(self.writes)]

    def refusal(
        self, capability: ReadCapability | WriteCapability
    ) -> type[InvalidUsage] | None:
        """What presenting the capability must raise."""
        if self.dropped:
            return Forgotten
        if isinstance(capability, ReadCapability):
            return None if capability.name in self.model.reads else InvalidCapability
        if self.model.upper is None:
            return Sealed
        return None if capability.name in self.model.writes else InvalidCapability

    def end(self, client: Storage) -> None:
        """Drop the collection, whoever holds it."""
        end(client, T1)

    def tick(self, client: Storage) -> None:
        """One record that changes nothing."""
        client.shards.submit([(T1, Reclaim({}))])

    def clients_of(self, place: Place) -> list[Storage]:
        """Two clients that know nothing of each other."""
        return [place.client(), place.client()]

    @rule(n=pick, rows=updates, by=step, seal=st.integers(0, 30))
    def update_and_downgrade(
        self, n: int, rows: list[tuple[str, int, int, int]], by: int, seal: int
    ) -> None:
        capability = self.some_write(n)
        lower = capability.frontier.time
        upper = lower + by
        inside = [(a, b, lower + t % max(by, 1), d) for a, b, t, d in rows if by]
        shared = len(self.model.writes) > 1  # then the collection is not over with it
        target: Antichain = EMPTY if seal == 0 or (seal < 5 and shared) else frontier(upper)
        call = self.client(n).update_and_downgrade
        expected = self.refusal(capability)
        if expected is not None:
            with pytest.raises(expected):
                call(capability, table(*inside), target)
            return
        stands = self.model.writes[capability.name]
        fresh = [((a, b), t, d) for a, b, t, d in inside]
        if self.counts and stands == lower and fresh and self.model.goes_below_zero(fresh):
            with pytest.raises(NegativeMultiplicity):
                call(capability, table(*inside), target)
            return
        outcome = call(capability, table(*inside), target)
        if stands != lower:
            assert outcome == UpperMismatch(frontier(stands), T1)
            return
        assert outcome == replace(capability, frontier=target)
        self.model.updates += fresh
        if target != capability.frontier:
            self.model.sealing = target.is_empty
        if target.is_empty:
            del self.model.writes[capability.name]
        else:
            self.model.writes[capability.name] = upper
            self.writes[n % len(self.writes)] = replace(capability, frontier=target)
        self.model.settle(released=target.is_empty)

    @rule(n=pick, to=st.integers(0, 40))
    def downgrade_read(self, n: int, to: int) -> None:
        capability = self.some_read(n)
        expected = self.refusal(capability)
        if expected is None and to < self.model.reads[capability.name]:
            expected = NotForward
        if expected is not None:
            with pytest.raises(expected):
                self.client(n).downgrade(capability, to)
            return
        moved = self.client(n).downgrade(capability, to)
        assert moved == replace(capability, frontier=frontier(to))
        self.reads[n % len(self.reads)] = moved
        self.model.reads[capability.name] = to
        self.model.settle()

    @rule(n=pick, to=st.integers(0, 40))
    def downgrade_write(self, n: int, to: int) -> None:
        capability = self.some_write(n)
        expected = self.refusal(capability)
        if expected is None and to < self.model.writes[capability.name]:
            expected = NotForward
        if expected is not None:
            with pytest.raises(expected):
                self.client(n).downgrade(capability, to)
            return
        self.writes[n % len(self.writes)] = self.client(n).downgrade(capability, to)
        self.model.sealing = self.model.sealing and to == self.model.writes[capability.name]
        self.model.writes[capability.name] = to
        self.model.settle()

    @rule(n=pick, short=st.booleans())
    def clone(self, n: int, short: bool) -> None:
        capability = self.some_read(n) if n % 3 else self.some_write(n)
        expected = self.refusal(capability)
        lease = 1_000 if short else None
        if expected is not None:
            with pytest.raises(expected):
                self.client(n).clone(capability, lease_ms=lease)
            return
        clone = self.client(n).clone(capability, lease_ms=lease)
        self.add(clone)
        if short or capability.name in self.short:
            self.short.add(clone.name)

    def add(self, capability: ReadCapability | WriteCapability) -> None:
        if isinstance(capability, ReadCapability):
            self.reads.append(capability)
            self.model.reads[capability.name] = capability.frontier.time
        else:
            self.writes.append(capability)
            self.model.writes[capability.name] = capability.frontier.time

    @rule(n=pick)
    def transfer(self, n: int) -> None:
        capability = self.some_read(n) if n % 3 else self.some_write(n)
        expected = self.refusal(capability)
        if expected is not None:
            with pytest.raises(expected):
                self.client(n).transfer(capability)
            return
        successor = self.client(n).transfer(capability)
        if capability.name in self.short:
            self.short.add(successor.name)
        self.model.reads.pop(capability.name, None)
        self.model.writes.pop(capability.name, None)
        self.add(successor)

    @rule(n=pick)
    def acquire(self, n: int) -> None:
        read, write = self.client(n).acquire_capabilities(T1)
        assert read.frontier == front(self.model.since)
        assert write.frontier == front(self.model.upper)
        for capability in (read, write):
            if not capability.frontier.is_empty:
                self.add(capability)

    @rule(n=pick, much=st.integers(0, 3))
    def drop(self, n: int, much: int) -> None:
        capability = self.some_read(n) if n % 3 else self.some_write(n)
        if len(self.reads) + len(self.writes) < 4 and much:
            return  # keep something alive, mostly
        self.client(n).drop(capability)
        self.model.reads.pop(capability.name, None)
        last = self.model.writes.pop(capability.name, None)
        self.model.settle(released=last is not None)

    @rule(n=pick)
    def drop_collection(self, n: int) -> None:
        if n % 40:
            return
        self.end(self.client(n))
        self.dropped = True
        self.model.drop()
        self.following = []

    @rule(n=pick)
    def create_again(self, n: int) -> None:
        with pytest.raises(NeverReused if self.dropped else AlreadyBound):
            self.client(n).create(T1, TABLE)

    @rule()
    def leases_run_out(self) -> None:
        """Those of a second do, those of a quarter of an hour do not."""
        self.place.now_ms += 2_000
        self.tick(self.client(0))  # the log's clock moves by its records
        for name in self.short:
            self.model.reads.pop(name, None)
            self.model.writes.pop(name, None)
        self.short = set()
        self.model.settle()

    @rule(n=pick, writes_on=st.booleans())
    def others_finish_and_one_dies(self, n: int, writes_on: bool) -> None:
        """A lease is abandoned; its holder may have written after the others had finished."""
        writer = self.some_write(n)
        if n % 3 or self.refusal(writer) is not None:
            return
        died = self.client(n).clone(writer, lease_ms=1_000)
        self.add(died)
        self.short.add(died.name)
        for number, capability in enumerate(self.writes):
            if capability.name in self.model.writes and capability.name not in self.short:
                self.update_and_downgrade(number, [], 1, 0)
        if writes_on:
            self.update_and_downgrade(len(self.writes) - 1, [], 1, 30)
        self.leases_run_out()

    @rule(n=pick, snapshot=st.booleans())
    def subscribe_at(self, n: int, snapshot: bool) -> None:
        capability = self.some_read(n)
        options = Options(snapshot=snapshot)
        expected = Unreadable if self.dropped else self.refusal(capability)
        if expected is not None:
            with pytest.raises(expected):
                self.client(n).subscribe_at(capability, options)
            return
        subscription = self.client(n).subscribe_at(capability, options)
        self.following.append(Follower(subscription, capability, self.client(n), snapshot))

    @rule(n=pick)
    def poll(self, n: int) -> None:
        if not self.following:
            return
        follower = self.following[n % len(self.following)]
        follower.client.shards.sync(T1)
        if not self.look(follower):
            self.following.remove(follower)

    def look(self, follower: Follower) -> bool:
        """Poll once; whether the subscription goes on."""
        model, at = self.model, follower.subscription.upper
        if follower.held.name not in model.reads:
            with pytest.raises(InvalidCapability):
                follower.subscription.poll()
            return False
        first = at.time
        is_there = model.upper is None or model.upper > first
        if is_there and model.since is not None:
            last = first if follower.snapshot else first - 1
            if model.since > last:
                with pytest.raises(InvalidUsage, match="since"):
                    follower.subscription.poll()
                return False
        delivery = follower.subscription.poll()
        if not is_there:
            assert delivery is None
            return True
        assert delivery is not None
        upper = first + 1 if follower.snapshot else model.upper
        assert delivery.upper == front(upper)
        if follower.snapshot:
            past = model.contents(first)
            expected = {(*row, int(first)): count for row, count in past.items()}
        else:
            changes = model.changes(first, upper)
            expected = {(*row, time): count for (row, time), count in changes.items()}
        assert contents(delivery.updates) == expected
        follower.snapshot = False
        return upper is not None

    @invariant()
    def frontiers_are_the_meets(self) -> None:
        self.clients[0].shards.sync(T1)
        state = self.clients[0].shards.state(T1)
        assert state.since == front(self.model.since)
        assert state.upper == front(self.model.upper)
        assert set(state.capabilities) == {*self.model.reads, *self.model.writes}


def front(time: int | None) -> Antichain:
    return EMPTY if time is None else frontier(time)


class CountingStorageMachine(StorageMachine):
    """Two clients that look at counts, each of what the other has written as well."""

    counts = True

    def clients_of(self, place: Place) -> list[Storage]:
        return [place.client(checks_counts=True), place.client(checks_counts=True)]


class Stubborn:
    """A Storage whose commands are given again when they certainly had no effect."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.storage, name)
        return partial(self.again, attribute) if callable(attribute) else attribute

    def again(self, command: Callable[..., object], *first: object, **named: object) -> object:
        while True:
            try:
                return command(*first, **named)
            except Determinate:
                continue


class FaultyStorageMachine(StorageMachine):
    """The same, in bad weather: the answers have to be the same.

    `Sending` gives up after a few doubts in a row: the plans are shorter than that.
    """

    def clients_of(self, place: Place) -> list[Storage]:
        self.ways = [FaultyBroker(place.broker) for _ in range(2)]
        storages = [
            Storage(
                Shards(
                    way.logs,
                    PatientChunks(way.chunks, RetryLimits(pause_ms=0)),
                    way.topics,
                    now_ms=lambda: 0,
                    resend_ms=(0,) * (MOST_IN_A_ROW + 1),
                )
            )
            for way in self.ways
        ]
        return [cast("Storage", Stubborn(storage)) for storage in storages]

    def tick(self, client: Storage) -> None:
        cast("Stubborn", client).again(super().tick, client)

    def end(self, client: Storage) -> None:
        cast("Stubborn", client).again(super().end, client)

    @rule(n=pick, faults=st.lists(st.sampled_from(Fault), max_size=MOST_IN_A_ROW))
    def logs_fail(self, n: int, faults: list[Fault]) -> None:
        self.ways[n % 2].logs.plan(faults)

    @rule(n=pick, faults=st.lists(st.sampled_from(Fault), max_size=MOST_IN_A_ROW))
    def chunks_fail(self, n: int, faults: list[Fault]) -> None:
        self.ways[n % 2].chunks.plan(faults)

    @rule(n=pick, most=st.integers(1, 3))
    def late_writes_surface(self, n: int, most: int) -> None:
        self.ways[n % 2].logs.surface(most)


def runs(count: int) -> settings:
    """Settings for so many runs of a machine, as `examples` counts them."""
    return settings(examples(count), stateful_step_count=40)


TestStorage = StorageMachine.TestCase
TestStorage.settings = runs(60)


TestStorageThatCounts = CountingStorageMachine.TestCase
TestStorageThatCounts.settings = runs(40)


TestStorageInBadWeather = FaultyStorageMachine.TestCase
TestStorageInBadWeather.settings = runs(60)
