"""A source by event time in the sparkless world that resumes; `Truth` says what is to be."""

import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streams.compute import binding, continuation
from streams.compute.binding import Fact
from streams.compute.continuation import Wanted
from streams.compute.description import IngestionDescription
from streams.compute.skipped_offsets import PREFIX, skipped
from streams.compute.stalls import bad_message
from streams.ids import CollectionId, Offset
from streams.plan.metadata import LateRows
from tests.support import duckdb_oracle
from tests.support.event_histories import AHEAD_MS, EVENTS, PARTITIONS, History
from tests.support.keyed_event_histories import KeyedHistory
from tests.support.resumed_histories import BAD, Log, Message, Statement, Truth
from tests.support.sparkless import Replica, World

LETTERS = CollectionId("events.errors")


def split(letters: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Dead letters about skipped offsets, and those that are messages."""
    is_skip = pc.starts_with(letters["reason"], PREFIX)
    return letters.filter(is_skip), letters.filter(pc.invert(is_skip))


class ResumedHistory:
    """A topic with event times, the statements, and the Appends that counted."""

    def __init__(self, world: World, late_rows: LateRows, history: History) -> None:
        self.world, self.history = world, history
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
        former = (*described.former, source.topic_start)
        source = replace(source, start=start)
        self.world.descriptions[:] = [replace(described, source=source, former=former)]

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
        self._judge_rows(rows)
        skips, messages = split(letters)
        self._judge_skips(skips)
        places = zip(
            messages["partition"].to_pylist(), messages["offset"].to_pylist(), strict=True
        )
        numbers = Counter(self.logs[number].messages[at].number for number, at in places)
        assert numbers == self.truth.letters
        assert binding.total(self.bound(), Fact.LATE) == self.truth.late

    def _judge_skips(self, skips: pa.Table) -> None:
        """Each skip is said once, whoever said it and after however many statements."""
        starts = [
            start
            for start in self.world.descriptions[0].topic_starts
            if start.start.generation <= self.truth.generation
        ]
        wanted = Counter(
            (skip.partition, skip.first, skip.reason)
            for skip in skipped(starts, self.bound(), 0)
        )
        columns = (skips[name].to_pylist() for name in ("partition", "offset", "reason"))
        rows = Counter(zip(*columns, strict=True))
        assert rows == wanted
        said = Counter[tuple[int, int]]()
        for (partition, first, reason), count in rows.items():
            last = int(reason.split(" to ")[1].split(maxsplit=1)[0].rstrip(","))
            said.update({(partition, offset): count for offset in range(first, last + 1)})
        assert not self.truth.left_out - said

    def _judge_rows(self, rows: pa.Table) -> None:
        actual = Counter(zip(rows["id"].to_pylist(), rows["_time"].to_pylist(), strict=True))
        assert actual == self.truth.rows


class KeyedResumedHistory(ResumedHistory):
    """The same of a source that keeps the latest row of each key by event time."""

    def __init__(self, world: World, late_rows: LateRows) -> None:
        super().__init__(world, late_rows, KeyedHistory(world, late_rows, "value"))

    def write_some(self, rng: random.Random, most: int) -> None:
        """Send fewer than `most` messages: out of order, equal, late, early, bad."""
        self.history.states[-1] = (self._seen[0], {})
        self.keyed.write_some(rng, most)
        for log, messages in zip(self.logs, self.history.messages, strict=True):
            new = messages[len(log.messages) :]
            log.messages += [Message(number, at) for number, at in new]

    @property
    def keyed(self) -> KeyedHistory:
        """The topic."""
        assert isinstance(self.history, KeyedHistory)
        return self.history

    def _judge_rows(self, rows: pa.Table) -> None:
        actual = Counter[tuple[str, int, int]]()
        for row in rows.to_pylist():
            actual[row["k"], row["id"], row["_time"]] += row["_diff"]
        assert {change: n for change, n in actual.items() if n} == self.keyed.changes(
            self.truth.rows
        )
