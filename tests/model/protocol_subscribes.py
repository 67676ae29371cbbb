"""The subscribes of a simulated replica and of a simulated coordinator.

A collection has one update at each time, which is the time. Sessions, readers and writers are
the real ones. Since of a subscribe is one less than what its client has acknowledged, at once.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty
from random import Random

from streams.compute.controller import Controller, Deliveries
from streams.compute.peek_session import TargetBounds
from streams.compute.protocol import Command
from streams.compute.subscribe_session import (
    AnswerSubscribe,
    ReadChanges,
    SubscribeAction,
    SubscribeSession,
)
from streams.compute.subscribes import (
    Subscribe,
    SubscribeBatch,
    SubscribeInterrupted,
    SubscribeOutcome,
)
from streams.compute.writer import ResponseWriter
from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, END, end_of, frontier

MOST_OPEN = 6
MOST_AHEAD = 60
FAR = 1 << 40


def subscribe_at_random(rng: Random, uuid: str, read: CollectionId, upper: int) -> Subscribe:
    """A subscribe of the present, of all replicas or of one."""
    as_of = max(0, upper + rng.randrange(-5, 8))
    return Subscribe(
        uuid=uuid,
        collection=read,
        group=read,
        as_of=Timestamp(as_of),
        plan="",
        project=(0,),
        snapshot=rng.random() < 0.7,
        until=Timestamp(as_of + rng.randrange(1, 20)),
        replica=rng.choice(("", "", "", "a", "b")),
    )


@dataclass
class SubscribeReplica:
    """What a process has heard of subscribes. Reads take a while, and are cut anywhere."""

    rng: Random
    writer: ResponseWriter
    session: SubscribeSession
    sinces: dict[str, int]
    reads: list[ReadChanges] = field(default_factory=list)

    def take(self, command: Command, *, is_old: bool) -> None:
        self.session, actions = self.session.step(command, is_old=is_old)
        self._act(actions)

    def work(self, uppers: dict[CollectionId, int], now: float, *, is_calm: bool) -> None:
        """Begin and finish some reads. Errors: Determinate, Indeterminate."""

        def bounds(subscribe: Subscribe) -> TargetBounds:
            since = self.sinces.get(subscribe.uuid, 0)
            upper = FAR if is_calm else uppers[subscribe.collection]
            return TargetBounds(frontier(since), frontier(upper))

        for _ in range(20 if is_calm else 1):
            self.session, actions = self.session.ready(bounds, MOST_AHEAD, now)
            self._act(actions)
            self.rng.shuffle(self.reads)
            while self.reads and (is_calm or self.rng.random() < 0.5):
                read = self.reads.pop()
                upper = FAR if is_calm else uppers[read.subscribe.collection]
                outcomes = self._found(read, upper, is_calm=is_calm)
                self.session, actions = self.session.finished(read, outcomes, now)
                self._act(actions)

    def _found(self, read: ReadChanges, upper: int, *, is_calm: bool) -> list[SubscribeOutcome]:
        """What there is up to an upper, in one interval or two; now and then it fails."""
        until = read.subscribe.until
        assert until is not None
        if read.lower == until:  # changes alone, of no time
            return [SubscribeBatch(read.lower, EMPTY, 0, b"[]")]
        end = read.lower + 1 if read.is_snapshot else min(upper, until)
        cut = self.rng.randrange(read.lower + 1, end + 1)
        ends = [cut, end] if cut < end else [end]
        outcomes: list[SubscribeOutcome] = []
        lower = read.lower
        for to in ends:
            if not is_calm and self.rng.random() < 0.2:
                outcomes.append(SubscribeInterrupted(lower, "later"))
                break
            times = json.dumps(list(range(lower, to))).encode()
            reached = EMPTY if to == until else frontier(to)
            outcomes.append(SubscribeBatch(lower, reached, to - lower, times))
            lower = Timestamp(to)
        return outcomes

    def _act(self, actions: Iterable[SubscribeAction]) -> None:
        for action in actions:
            if isinstance(action, AnswerSubscribe):
                self.writer.write(action.nonce, [action.response])
            else:
                self.reads.append(action)


@dataclass
class Subscriber:
    """A client: it folds what it gets."""

    subscribe: Subscribe
    deliveries: Deliveries
    reached: int
    taken: list[int] = field(default_factory=list)

    def take(self) -> None:
        """Take what is there: contiguous intervals."""
        with suppress(Empty):
            while True:
                batch = self.deliveries.get_nowait()
                assert isinstance(batch, SubscribeBatch), batch
                assert batch.lower == self.reached, (self.subscribe, batch)
                times = json.loads(batch.updates)
                self.taken += [time for time in times if time >= batch.lower]
                self.reached = end_of(batch.upper)


@dataclass
class SubscribeClients:
    """Who subscribes through a controller; they are gone with it."""

    rng: Random
    controller: Controller
    sinces: dict[str, int]
    open: dict[str, Subscriber] = field(default_factory=dict)
    done: list[Subscriber] = field(default_factory=list)

    def ask(self, subscribe: Subscribe) -> None:
        if len(self.open) >= MOST_OPEN:
            return
        self.sinces[subscribe.uuid] = subscribe.as_of
        with suppress(Determinate):
            deliveries = self.controller.subscribe(subscribe)
            subscriber = Subscriber(subscribe, deliveries, subscribe.first)
            self.open[subscribe.uuid] = subscriber

    def take(self) -> None:
        for uuid, subscriber in list(self.open.items()):
            subscriber.take()
            if subscriber.reached == END:
                self.done.append(self.open.pop(uuid))

    def acknowledge(self) -> None:
        """One lets go what it has taken, whether or not replicas hear of it."""
        self.take()
        moved = [uuid for uuid, one in self.open.items() if one.reached > one.subscribe.first]
        if moved:
            uuid = self.rng.choice(moved)
            reached = self.open[uuid].reached
            with suppress(Determinate, Indeterminate):
                self.controller.acknowledge(uuid, Timestamp(reached))
            self.sinces[uuid] = reached - 1

    def cancel(self) -> None:
        if self.open:
            self.leave(self.rng.choice(sorted(self.open)))

    def leave(self, uuid: str) -> None:
        """Want no more, whether or not it has ended."""
        del self.open[uuid]
        with suppress(Determinate, Indeterminate):
            self.controller.cancel_subscribe(uuid)

    def check(self) -> None:
        """Every subscribe has had each time once, and has ended."""
        self.take()
        assert not self.open, self.open
        for one in self.done:
            until = one.subscribe.until
            assert until is not None
            assert one.taken == list(range(one.subscribe.first, until)), one
