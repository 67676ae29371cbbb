"""Honest clients beside the attacker: their answers must be right, and on time.

`HonestWriter` writes rows through the command topics and reads them back from the shard.
`HonestView` publishes messages and reads the view over them in SQL. Both know what every answer
has to be, at every time.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from streams.app.client import Client
from streams.errors import Determinate, SlackwaterError
from streams.ids import CapabilityId, CollectionId, Topic
from streams.kafka.client.bulk_producer import Publisher
from streams.progress import frontier
from streams.storage import Storage
from streams.storage.client.handles import ReadCapability
from streams.torture.hostile.arrow_streams import sound
from streams.torture.hostile.attacker_knowledge import DESCRIPTION
from streams.torture.hostile.command_client import CommandClient, Fields
from streams.torture.hostile.sessions import create_source, create_view, wrong

COLLECTION = CollectionId("honest")
SOURCE = "honest_source"
VIEW = "honest_view"
TOPIC = Topic("honest.raw")
MESSAGES = 20
LOOK_EVERY_S = 0.02
WAIT_MS = 1000


@dataclass(slots=True)
class HonestWriter:
    """Writes a few rows at each time, takes others back, and reads all of them."""

    requester: CommandClient
    storage: Storage
    patience_s: float
    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    _read: Fields = field(default_factory=dict)
    _write: Fields = field(default_factory=dict)

    def create(self) -> None:
        """Make the collection. Errors: Determinate."""
        self._read, self._write = self.requester.done(
            "create", self.patience_s, collection=COLLECTION, description=DESCRIPTION
        )

    def write(self, at: int) -> None:
        """Two rows at this time; the next write takes one back. Errors: Determinate."""
        updates = [("stays", at, at, 1), ("goes", at, at, 1)]
        if self.rows[("goes", at - 1)]:
            updates.append(("goes", at - 1, at, -1))
        (self._write,) = self.requester.done(
            "update_and_downgrade",
            self.patience_s,
            writes=[
                {
                    "capability": self._write,
                    "updates": sound(updates),
                    "chunks": [],
                    "new_frontier": at + 1,
                }
            ],
            check_counts=at % 10 == 0,
        )
        for writer, number, _, diff in updates:
            self.rows[(writer, number)] += diff

    def check(self, at: int) -> str:
        """The errors in the contents at this time; empty when there are none.

        Errors: Determinate when there is no answer in time.
        """
        (self._read,) = self.requester.done(
            "downgrade", self.patience_s, capability=self._read, new_frontier=at
        )
        capability = ReadCapability(
            COLLECTION, frontier(at), CapabilityId(str(self._read["name"]))
        )
        subscription, began = self.storage.subscribe_at(capability), self.requester.now_s()
        delivery = subscription.next(WAIT_MS)
        while delivery is None and self.requester.now_s() - began < self.patience_s:
            delivery = subscription.next(WAIT_MS)
        if delivery is None:
            raise Determinate(f"expected contents as of {at}, none came in time")
        contents_ = contents(delivery.updates)
        wanted = +self.rows
        if contents_ == wanted and not delivery.errors.num_rows:
            return ""
        missing, surplus = wanted - contents_, contents_ - wanted
        return f"{COLLECTION} as of {at}: {len(missing)} rows missing, {len(surplus)} too many"

    def batches(self) -> int:
        """The number of batches of the collection."""
        return self.storage.shards.state(COLLECTION).batches.count


def contents(updates: pa.Table) -> Counter[tuple[str, int]]:
    """The rows and how often each is there."""
    counts: Counter[tuple[str, int]] = Counter()
    for row in updates.to_pylist():
        counts[(row["c0"], row["c1"])] += row["diff"]
    return +counts


@dataclass(slots=True)
class HonestView:
    """Publishes numbers in order: a view that has seen n has to show the sum of the first n."""

    client: Client
    publisher: Publisher
    patience_s: float
    now_s: Callable[[], float] = time.monotonic
    published: int = 0
    as_of: int = 0

    def create(self) -> tuple[str, ...]:
        """Make source and view; their ids. Errors: Determinate, InvalidStatement."""
        answers = self.client.run(
            f"{create_source(SOURCE, TOPIC)}; {create_view(VIEW, SOURCE)}"
        )
        return tuple(str(answer.facts["id"]) for answer in answers)

    def publish(self) -> None:
        """A few more messages."""
        first = self.published + 1
        values = [f'{{"v": {number}}}' for number in range(first, first + MESSAGES)]
        self.publisher.publish(TOPIC, None, pa.array(values, pa.utf8()))
        self.publisher.flush()
        self.published += MESSAGES

    def check(self) -> str:
        """Wait until all messages are in the view; return the problem, or an empty text."""
        deadline = self.now_s() + self.patience_s
        problem = "no answer"
        while self.now_s() < deadline:
            try:
                (answer,) = self.client.run(f"SELECT n, total FROM {VIEW}")
            except SlackwaterError as error:
                problem = f"{type(error).__name__}: {error}"
                time.sleep(LOOK_EVERY_S)
                continue
            said = wrong(answer.rows, 0)
            if said:
                return f"{VIEW}: {said}"
            seen = int(str(answer.rows[0][0]))
            self.as_of = int(str(answer.facts["as_of"]))
            if seen == self.published:
                return ""
            problem = f"{seen} of {self.published} messages seen"
            time.sleep(LOOK_EVERY_S)
        return f"{VIEW}: not complete within {self.patience_s:g} s: {problem}"


def timed(do: Callable[[], str], seconds: list[float]) -> str:
    """The result of `do`, or how it failed; adds the elapsed time to `seconds`."""
    began = time.monotonic()
    try:
        return do()
    except SlackwaterError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        seconds.append(time.monotonic() - began)
