"""How soon a subscriber has what a replica has appended to a view.

The subscriber is a user's: SUBSCRIBE over the coordinator's HTTP endpoint, by the client of
`slackwater sql`. For each append of the replica with changes of the view, two events:

the append    the broker stores the record in the log of the view's shard, and times it. The
              acknowledgement follows, so that the replica's wait for it counts too.
the arrival   the client has the progress message behind the changes: all of them have come.

Both clocks are the wall clock of this machine: the broker runs on it, and gives milliseconds,
cut off. So a figure is never less than the delivery after the acknowledgement, and it has the
decoding of the changes in it, which the client does. What the coordinator sends together counts
for each append.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from streams.app.client import Client
from streams.app.freshness import percentile
from streams.bench import bids
from streams.bench.compute.scale import ComputeScale
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.rig import Rig
from streams.errors import Determinate, SlackwaterError
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.client.bounded_read import records_until
from streams.storage.log.event_codec import decode
from streams.storage.log.events import Append

VIEW = (
    "CREATE MATERIALIZED VIEW delivered AS SELECT auction, count(*) AS bids,"
    " max(price) AS highest FROM bids GROUP BY auction"
)
P50_MS = 20.0
FEW = 100
"""Events a second of the load that leaves the machine idle most of the time."""

WARM_S = 3.0
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class TimedFrontier:
    """A frontier that was reached at an instant. Units: `at_ms` is on the wall clock."""

    at_ms: float
    frontier: int


def delivery_ms(
    appended: Sequence[TimedFrontier], arrived: Sequence[TimedFrontier]
) -> list[float]:
    """Return the milliseconds from each append to the first arrival that includes it.

    Both are in the order of their frontiers. What has not arrived is left out.
    """
    frontiers = [arrival.frontier for arrival in arrived]
    places = [bisect_left(frontiers, append.frontier) for append in appended]
    return [
        arrived[place].at_ms - append.at_ms
        for append, place in zip(appended, places, strict=True)
        if place < len(arrived)
    ]


@dataclass(slots=True)
class Subscriber:
    """Follows a view by SUBSCRIBE, in a thread that ends with the environment."""

    client: Client
    view: str
    options: str = ""
    arrived: list[TimedFrontier] = field(default_factory=list)
    failure: str = ""

    def start(self) -> None:
        """Subscribe. Errors: Determinate when the contents do not come."""
        threading.Thread(target=self._follow, name="subscriber", daemon=True).start()
        self.await_frontier(0)

    def await_frontier(self, frontier: int) -> None:
        """Wait until everything before a time has arrived. Errors: Determinate."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.arrived or self.arrived[-1].frontier < frontier:
            if self.failure or time.monotonic() > deadline:
                raise Determinate(f"SUBSCRIBE {self.view} did not deliver: {self.failure}")
            time.sleep(0.01)

    def _follow(self) -> None:
        try:
            for message in self.client.stream(f"SUBSCRIBE {self.view} {self.options}"):
                now_ms = time.time() * 1000
                match message:
                    case {"type": "progress", "frontier": int(frontier)}:
                        self.arrived.append(TimedFrontier(now_ms, frontier))
                    case {"type": "error", "error": error}:
                        self.failure = str(error)
                    case _:
                        pass
        except SlackwaterError as failure:
            self.failure = str(failure)


def subscribe(bench: Rig, scale: ComputeScale) -> Outcome:
    """Deliver the changes of a view, with few events a second and with many."""
    source, view = bench.create(bids.SOURCE), bench.create(VIEW)
    bids.Load(bench.publisher, lambda _: None).burst(bids.every_key(0, bids.KEYS))
    bench.await_readable(source, [view])
    subscriber = Subscriber(bench.environment.client, "delivered")
    subscriber.start()
    lasting = scale.seconds
    few = _delivered(bench, subscriber, (source, view), (FEW, lasting))
    many = _delivered(bench, subscriber, (source, view), (scale.events, lasting))
    passed_on = Subscriber(bench.environment.client, "delivered", "WITH (REPLICAS)")
    passed_on.start()
    by_replicas = _delivered(bench, passed_on, (source, view), (FEW, lasting))
    figures = (
        at_most("subscribe_ms_p50", percentile(few, 0.5), "ms", P50_MS),
        Figure("subscribe_ms_p90", percentile(few, 0.9), "ms"),
        Figure("subscribe_appends", len(few)),
        at_most("subscribe_loaded_ms_p50", percentile(many, 0.5), "ms", P50_MS),
        Figure("subscribe_loaded_ms_p90", percentile(many, 0.9), "ms"),
        Figure("subscribe_loaded_appends", len(many)),
        Figure("subscribe_by_replicas_ms_p50", percentile(by_replicas, 0.5), "ms"),
        Figure("subscribe_by_replicas_ms_p90", percentile(by_replicas, 0.9), "ms"),
    )
    note = (
        f"from an append to its arrival over SUBSCRIBE, with {FEW} events a second; loaded:"
        f" with {scale.events:,}; by replicas: few again, WITH (REPLICAS)"
    )
    return Outcome("subscribe", figures, note=note)


def _delivered(
    bench: Rig,
    subscriber: Subscriber,
    objects: tuple[CollectionId, CollectionId],
    load: tuple[int, float],
) -> list[float]:
    """The delivery times of the appends while events arrive at a rate for some seconds."""
    (source, view), (rate, seconds) = objects, load
    bench.say(f"{rate:,} events a second")
    publishing = bids.Load(bench.publisher, lambda _: None)
    publishing.steady(rate, WARM_S)
    log = bench.shards.names(bench.shards.group_of(view)).log
    start = bench.shards.logs.bounds(log)[1]
    publishing.steady(rate, seconds)
    bench.await_readable(source, [view])
    appended = list(appends(bench, view, log, start))
    if not appended:
        raise Determinate("nothing was appended to the view")
    subscriber.await_frontier(appended[-1].frontier)
    return delivery_ms(appended, subscriber.arrived)


def appends(
    bench: Rig, view: CollectionId, log: Topic, start: Offset
) -> Iterator[TimedFrontier]:
    """The appends with changes of a view that its log has from an offset on."""
    logs = bench.shards.logs
    tail = logs.tail({log: start})
    reached = 0
    for entry in records_until(logs, tail, log, (start, logs.bounds(log)[1])):
        body = decode(entry.value).body
        parts = body.parts if isinstance(body, Append) else ()
        for part in parts:
            if part.collection == view and part.chunks and part.upper.time > reached:
                reached = part.upper.time
                yield TimedFrontier(entry.at_ms, reached)
    tail.close()
