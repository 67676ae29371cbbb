"""A source by event time in the sparkless world that resumes; `Truth` says what is to be."""

import json
import random
from collections import Counter
from dataclasses import replace

from streams.compute import binding, continuation
from streams.compute.binding import Fact
from streams.compute.continuation import Wanted
from streams.compute.description import IngestionDescription
from streams.compute.stalls import bad_message
from streams.ids import CollectionId, Offset
from streams.plan.metadata import LateRows, OnError
from tests.support import duckdb_oracle
from tests.support.event_histories import AHEAD_MS, EVENTS, PARTITIONS, History
from tests.support.resumed_histories import BAD, Log, Message, Statement, Truth
from tests.support.sparkless import Replica, World

LETTERS = CollectionId("events.errors")


class ResumedHistory:
    """A topic with event times, the statements, and the Appends that counted."""

    def __init__(self, world: World, late_rows: LateRows, on_error: OnError) -> None:
        self.world, self.history = world, History(world, late_rows, on_error)
        self.truth, self.logs = Truth(late_rows), [Log() for _ in range(PARTITIONS)]
        self._seen: tuple[int, int] = (0, 0)

    @property
    def source(self) -> IngestionDescription:
        """As the catalog has it."""
        source = self.world.descriptions[0].source
        assert source is not None
        return source

    def send(self, partition: int, at: int | None) -> None:
        """Send a message with an event time; None: it has none."""
        number = self.history.sent
        self.history.send(partition, at)
        is_bad = at is None or at > self.world.now + AHEAD_MS
        self.logs[partition].messages.append(Message(number, BAD if is_bad else at))

    def retain(self, partition: int, count: int) -> None:
        """Retention takes the first messages."""
        log = self.logs[partition]
        if binding.offsets(self.bound(), 0):
            log.low = min(len(log.messages), log.low + count)
            held = self.world.broker.store.partition(self.history.topic, partition)
            held.truncate(Offset(log.low))

    def bound(self) -> dict[int, int]:
        """The binding."""
        self.world.shards.sync()
        return dict(self.world.shards.state(EVENTS).source or {})

    def look(self) -> None:
        """Hear of the Append that may have counted since the last look: of one at most."""
        bound, shards = self.bound(), self.world.shards
        upper = shards.state(EVENTS).upper.time
        letters = shards.state(LETTERS)
        lower, letters_upper = self._seen
        if upper != lower:
            generation = binding.generation(bound)
            reads = binding.offsets(bound, generation)
            self.truth.appended(generation, lower, upper, reads, self.logs)
        elif letters.upper.time != letters_upper:
            generation = binding.generation(letters.source or {})
            settled = binding.offsets(letters.source or {}, generation)
            self.truth.settles(generation, lower, settled, self.logs)
        self._seen = upper, letters.upper.time

    def resume(self, places: dict[int, int], bad: tuple[int, int] | None = None) -> None:
        """Execute the statement: partitions that are not named go on where they stand."""
        source, bound = self.source, self.bound()
        stood = continuation.standing(bound, source.start)
        lows = {number: log.low for number, log in enumerate(self.logs)}
        others = {number: stood.get(number, low) for number, low in lows.items()}
        wanted = Wanted(places={**others, **places}, lows=lows, bad=bad)
        start = continuation.resumed(source.start, bound, wanted)
        ahead = self.truth.ahead()
        reads = {number: ahead.next(number) for number in range(PARTITIONS)}
        self.truth.waiting.append(Statement(start, reads, wanted))
        (described,) = self.world.descriptions
        source = replace(source, start=start)
        self.world.descriptions[:] = [replace(described, source=source)]

    def somewhere(self, rng: random.Random) -> dict[int, int]:
        """Offsets of some partitions."""
        return {
            number: rng.randint(log.low, len(log.messages))
            for number, log in enumerate(self.logs)
            if rng.random() < 0.4
        }

    def stopped(self, replica: Replica) -> tuple[int, int] | None:
        """The message at which the source stopped, as a replica that has heard of all says."""
        flow = replica.scheduler.flows.get(EVENTS)
        if flow is None or flow.trouble is None or flow.description.source != self.source:
            return None
        return bad_message(self.source, flow.trouble.message)

    def settle(self, replica: Replica) -> None:
        """Let a replica read all, going on wherever it stops, with every partition idle."""
        for _ in range(30):
            replica.follow()
            quiet = 0
            while quiet < 3:
                self.world.now += 1_500
                quiet = 0 if self.step(replica) else quiet + 1
            flow = replica.scheduler.flows[EVENTS]
            if flow.trouble is None:
                return
            bad = self.stopped(replica)
            stood = continuation.standing(self.bound(), self.source.start)
            places = {n: max(stood.get(n, 0), log.low) for n, log in enumerate(self.logs)}
            if bad is not None:
                places[bad[0]] = bad[1] + 1
            self.resume(places, bad)
        raise AssertionError("it does not settle")

    def step(self, replica: Replica) -> bool:
        """Step each lane once; return whether one of them had work."""
        replica.start()
        busy = []
        for lane in replica.lanes():
            busy.append(replica.step(lane))
            self.look()
        return any(busy)

    def judge(self) -> None:
        """Compare the collections with what is to be, at all times below upper."""
        relations = self.world.relations
        rows, errors = duckdb_oracle.updates(self.world.shards, relations["events"])
        letters, _ = duckdb_oracle.updates(self.world.shards, relations["events.errors"])
        assert not errors.num_rows
        found = Counter(zip(rows["id"].to_pylist(), rows["_time"].to_pylist(), strict=True))
        assert found == self.truth.rows
        numbers = Counter(json.loads(value)["id"] for value in letters["value"].to_pylist())
        assert numbers == self.truth.letters
        assert binding.total(self.bound(), Fact.LATE) == self.truth.late
