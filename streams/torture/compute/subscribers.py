"""Subscribers of views: some of replicas, some that read as a coordinator does.

They ask at random for contents or changes alone, with an end or without one, and leave midway.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pyarrow as pa

from streams.compute.protocol import Command
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeOutcome,
)
from streams.errors import SlackwaterError
from streams.ids import Timestamp
from streams.progress import EMPTY, END, frontier
from streams.storage.client.shards import Shards, fresh_uuid
from streams.storage.read import reader
from streams.torture.compute.deliveries import AskedSubscribe
from streams.torture.compute.objects import Maintained
from streams.torture.compute.questions import planned
from streams.torture.compute.truth import Truth
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import consolidate, flatten

MOST_SUBSCRIBERS = 12
LONGEST_MS = 8_000
OWN = "a coordinator"


@dataclass(slots=True)
class Subscribers:
    """All subscribes of the run, by uuid. Deliveries of controllers are in `delivered`."""

    rng: Random
    shards: Shards
    delivered: dict[str, list[SubscribeOutcome]]
    asked: dict[str, AskedSubscribe] = field(default_factory=dict)
    kernel: Kernel = field(default_factory=Kernel)

    def ask(self, view: Maintained, as_of: int, replicas: Sequence[str]) -> list[Command]:
        """Subscribe to a view, and return the commands to send."""
        rng = self.rng
        if len(self.open()) >= MOST_SUBSCRIBERS:
            return []
        by = rng.choice(("replicas", "replicas", "one replica", OWN))
        where = "true"
        if by != OWN and rng.random() < 0.3:  # noqa: PLR2004  now and then
            where = f'"{view.flow.columns[0].name}" % 2 = {rng.randrange(2)}'
        plan, project = planned(view, where)
        subscribe = Subscribe(
            uuid=fresh_uuid(),
            collection=view.flow.export,
            group=view.flow.group,
            as_of=Timestamp(as_of),
            plan=plan,
            project=project,
            snapshot=rng.random() < 0.7,  # noqa: PLR2004  more often than not
            replica=rng.choice(replicas) if by == "one replica" else "",
        )
        if rng.random() < 0.6:  # noqa: PLR2004  more often than not
            until = Timestamp(as_of + rng.randint(1, LONGEST_MS))
            subscribe = replace(subscribe, until=until)
        outcomes = self.delivered.setdefault(subscribe.uuid, [])
        asked = AskedSubscribe(subscribe, view, where, by, outcomes)
        self.asked[subscribe.uuid] = asked
        return [] if by == OWN else [subscribe]

    def open(self) -> list[AskedSubscribe]:
        """Those that wait for more."""
        return [asked for asked in self.asked.values() if not asked.is_over]

    def acknowledge(self) -> list[Command]:
        """Record a delivery, and return the commands to send."""
        open_ = [asked for asked in self.open() if asked.by != OWN and asked.delivered]
        if not open_:
            return []
        taken = self.rng.choice(open_)
        return [AcknowledgeSubscribe(taken.subscribe.uuid, Timestamp(taken.reached))]

    def leave(self, asked: AskedSubscribe) -> list[Command]:
        """Cancel a subscribe, and return the commands to send."""
        asked.is_canceled = True
        return [] if asked.by == OWN else [CancelSubscribe(asked.subscribe.uuid)]

    def lose(self) -> None:
        """Mark the subscribes of a killed controller as lost."""
        for asked in self.open():
            asked.is_killed = asked.by != OWN

    def held(self, view: Maintained) -> Iterator[int]:
        """Yield the times of a view that open subscribes still read."""
        for asked in self.open():
            if asked.view.name == view.name:
                yield min(asked.subscribe.as_of, asked.reached - 1)

    def behind(self, moment: int) -> list[AskedSubscribe]:
        """Those that have not come to their end, or to a moment if they have none."""
        return [
            asked
            for asked in self.open()
            if asked.subscribe.until is not None or asked.reached <= moment
        ]

    def follow(self) -> None:
        """Read the available updates for subscribers that read shards themselves."""
        for asked in self.open():
            if asked.by == OWN:
                try:
                    asked.delivered += self._read(asked)
                except SlackwaterError as failure:
                    error = SubscribeError(Timestamp(asked.reached), str(failure))
                    asked.delivered.append(error)

    def _read(self, asked: AskedSubscribe) -> Iterator[SubscribeBatch]:
        subscribe, lower = asked.subscribe, Timestamp(asked.reached)
        collection, until = subscribe.collection, subscribe.until or END
        state = self.shards.state(collection)
        if reader.end(state) <= lower:
            return
        if lower == subscribe.as_of:
            updates, errors = reader.snapshot(self.shards, collection, lower)
            upper = Timestamp(lower + 1)
            reached = EMPTY if upper >= until else frontier(upper)
        else:
            news = reader.changes(self.shards, state, lower, until=until)
            updates, errors = news.updates, news.errors
            reached = EMPTY if news.upper >= until else news.reached
        if errors.num_rows:
            raise SlackwaterError(f"{asked.view.name} is in error")
        schema = arrow_schema([column.type for column in asked.view.flow.columns])
        rows = consolidate(flatten([updates], schema), self.kernel)
        yield SubscribeBatch(lower, reached, rows.num_rows, _streamed(rows))

    def wrong(self, truth: Truth, figures: Counter[str]) -> Iterator[str]:
        """What is wrong with any of them."""
        for uuid in self.delivered.keys() - self.asked.keys():
            yield f"subscribe {uuid} was not asked"
        for asked in self.asked.values():
            figures[f"subscribes by {asked.by}"] += 1
            figures["intervals checked"] += len(asked.delivered)
            fault = asked.wrong(truth)
            if fault:
                yield fault


def _streamed(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
