"""What a thousand collections in one environment cost: to open, and when nothing happens.

Each collection has a group of its own, with its own log, and some events behind it. `open` is
a new client that follows all of them; it is idle when it follows and nobody writes. All logs
are followed by one consumer.
"""

import time
from statistics import median

import numpy as np

from streams.app.bench.figures import Figure, Outcome, at_most
from streams.app.bench.storage.restart import declare, restarted
from streams.app.bench.storage.rig import NAMESPACE, Client, Idle, Rig, idle, load_average
from streams.app.bench.storage.rows import DESCRIPTION, rows
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.kafka.choices import DEFAULT_DATA_PARTITIONS
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from streams.storage.description import dumps
from streams.storage.events import Append, Body, Create, Part, write_capability
from streams.storage.group import names_of

COLLECTIONS = 1_000
AT_ONCE = 50
EVENTS = 20
DATA_PARTITIONS = DEFAULT_DATA_PARTITIONS
OPENS = 3


def many(rig: Rig) -> Outcome:
    """Open a thousand collections, and do nothing; once as a client, once as a coordinator."""
    load = load_average()
    count = rig.scaled(COLLECTIONS, least=5)
    ids = [CollectionId(f"s{number}") for number in range(1, count + 1)]
    with rig.client() as client:
        with rig.bar("making collections", count) as step:
            for first in range(0, count, AT_ONCE):
                make(client, ids[first : first + AT_ONCE])
                step(len(ids[first : first + AT_ONCE]))
        declare(rig, client, ids)
    rig.say("opening them all, and waiting")
    found = [followed(rig, ids) for _ in range(OPENS)]
    started = restarted(rig, ids)
    opened_s = median(each.ready_s for each in found)
    percent = median(each.percent for each in found)
    return Outcome(
        "many",
        (
            at_most("many_open_s", opened_s, "s", 5),
            at_most("many_idle_cpu_percent", percent, "%", 5),
            at_most("many_coordinator_start_s", started.ready_s, "s", 5),
            at_most("many_coordinator_idle_cpu_percent", started.percent, "%", 5),
            Figure("many_idle_broker_cpu_percent", found[0].broker_percent, "%"),
            Figure("many_collections", count),
            Figure("many_load", load),
        ),
        note=f"each with a log of its own and {EVENTS} events behind it, followed by one"
        f" consumer; median of {OPENS} opens by new clients, and one start of a coordinator"
        " with as many sources; idle in percent of one core",
    )


def make(client: Client, ids: list[CollectionId]) -> None:
    """Collections, each in a group of its own, with some appends behind it."""
    names = [names_of(NAMESPACE, each) for each in ids]
    logs = [TopicSpec(each.log, 1, TopicKind.LOG) for each in names]
    data = [TopicSpec(each.data, DATA_PARTITIONS, TopicKind.DATA) for each in names]
    client.broker.topics.create(logs + data)
    client.shards.open(*ids)
    client.shards.submit([(each, created(each)) for each in ids])
    times = range(EVENTS - 1)
    client.shards.submit([(each, appended(client, each, t)) for t in times for each in ids])


def created(id_: CollectionId) -> Body:
    """The collection's first event."""
    return Create(
        collection=id_,
        description=dumps(DESCRIPTION),
        frontier=Timestamp(0),
        write=write_capability(id_),
    )


def appended(client: Client, id_: CollectionId, time_: int) -> Body:
    """An append; the first one carries rows."""
    chunks = () if time_ else client.shards.write(id_, rows(np.arange(10), 0, time_))
    part = Part(
        collection=id_,
        capability=write_capability(id_),
        lower=frontier(time_),
        upper=frontier(time_ + 1),
        chunks=chunks,
    )
    return Append((part,))


def followed(rig: Rig, ids: list[CollectionId]) -> Idle:
    """Open everything with a new client, then wait.

    Errors: Determinate when something is not where it was left.
    """
    began = time.perf_counter()
    with rig.client() as client:
        client.shards.open(*ids)
        ready_s = time.perf_counter() - began
        for each in ids:
            if client.shards.state(each).upper != frontier(EVENTS - 1):
                raise Determinate(f"collection {each} was not read to its end")
        return idle(rig, ready_s)
