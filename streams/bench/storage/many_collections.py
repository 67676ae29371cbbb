"""The cost of a thousand collections in one environment: opening them, and idling.

Each collection has a group of its own, with its own log, and some events behind it. `open` is
a new client that follows all of them; it is idle when it follows and there are no writes. A
table says what is used then, and where ten thousand would break.
"""

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.storage.limits import (
    Use,
    broker_pid,
    broker_used,
    limits,
    table,
    used,
)
from streams.bench.storage.restart import declare, restarted
from streams.bench.storage.rig import (
    NAMESPACE,
    Client,
    Cpu,
    Idle,
    Start,
    StorageRig,
    idle,
    load_average,
)
from streams.bench.storage.rows import DESCRIPTION, rows
from streams.compute import dead_letters
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.kafka.topic_settings import DEFAULT_DATA_PARTITIONS
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from streams.storage.client.group import names_of
from streams.storage.description import Description, dumps
from streams.storage.log.events import Append, Body, Create, Part, write_capability

COLLECTIONS = 1_000
AT_ONCE = 50
EVENTS = 20
DATA_PARTITIONS = DEFAULT_DATA_PARTITIONS
OPENS = 3
FOLLOWERS = 4
"""The services that follow all logs of an environment."""


def many(rig: StorageRig) -> Outcome:
    """Open a thousand collections, and do nothing; once as a client, once as a coordinator."""
    load = load_average()
    count = rig.collections or rig.scaled(COLLECTIONS, least=5)
    ids = [CollectionId(f"s{number}") for number in range(1, count + 1)]
    broker = broker_used(idle(rig))
    made(rig, ids)
    rig.say("opening them all, and waiting")
    alone = idle(rig)  # with all of them, and without a follower
    gc.collect()
    own = used(os.getpid(), 0.0)
    results = [followed(rig, ids) for _ in range(OPENS)]
    started = restarted(rig, ids)
    before = Followed(alone, broker, own)
    where = table(
        count, (broker, own), (results[0].broker, results[0].own), limits(broker_pid())
    )
    return Outcome(
        "many",
        (
            *figures(count, before, results, started),
            Figure("many_collections", count),
            Figure("many_load", load),
        ),
        where,
        note=f"each with a log of its own and {EVENTS} events behind it, followed by one"
        f" client; median of {OPENS} opens by new clients, and one start of a coordinator"
        f" with as many sources; idle in percent of one core; what {FOLLOWERS} followers of 300"
        " cost the broker is what one follower of all does, in proportion; seconds of CPU are"
        " those of this process, for on a busy machine the others wait",
        of="used, and available",
        by="resource",
    )


def figures(
    count: int, before: "Followed", results: Sequence["Followed"], started: Idle
) -> tuple[Figure, ...]:
    """The cost of this many collections, compared with none."""
    first, thousands = results[0], max(1.0, count / COLLECTIONS)
    opened = [result.idle.ready for result in results]
    ready_s = median(opening.seconds for opening in opened)
    open_s = Cpu(
        median(opening.cpu.ours for opening in opened),
        median(opening.cpu.broker for opening in opened),
    )
    percent = median(result.idle.percent for result in results)
    kib = (first.own.mib - before.own.mib) * 1024 / count
    alone, burdened = before.idle.broker_percent, first.idle.broker_percent
    shared = max(0.0, burdened - alone) * FOLLOWERS * 300 / count
    return (
        at_most("many_open_s", ready_s, "s", 5 * thousands),
        at_most("many_open_cpu_s", open_s.ours, "s", 5 * thousands),
        Figure("many_open_broker_cpu_s", open_s.broker, "s"),
        at_most("many_idle_cpu_percent", percent, "%", 5),
        at_most("many_coordinator_start_s", started.ready.seconds, "s", 5 * thousands),
        at_most("many_coordinator_start_cpu_s", started.ready.cpu.ours, "s", 5 * thousands),
        at_most("many_coordinator_idle_cpu_percent", started.percent, "%", 5),
        Figure("many_idle_broker_cpu_percent", burdened, "%"),
        Figure("many_idle_broker_cpu_percent_alone", alone, "%"),
        at_most("many_broker_percent_for_followers_of_300", shared, "%", 1),
        at_most("many_follower_kib_per_group", kib, "KiB", 50),
    )


def made(rig: StorageRig, ids: list[CollectionId]) -> None:
    """Make the collections, and the catalog of a coordinator that has them."""
    with rig.client() as client:
        with rig.bar("making collections", len(ids)) as step:
            for at in range(0, len(ids), AT_ONCE):
                make(client, ids[at : at + AT_ONCE])
                step(len(ids[at : at + AT_ONCE]))
        declare(rig, client, ids)


def make(client: Client, ids: list[CollectionId]) -> None:
    """Collections, each in a group of its own, with some appends behind it."""
    names = [names_of(NAMESPACE, collection) for collection in ids]
    logs = [TopicSpec(name.log, 1, TopicKind.LOG) for name in names]
    data = [TopicSpec(name.data, DATA_PARTITIONS, TopicKind.DATA) for name in names]
    client.broker.topics.create(logs + data)
    client.shards.open(*ids)
    client.shards.submit(
        [(collection, event) for collection in ids for event in created(collection)]
    )
    times = range(EVENTS - 1)
    client.shards.submit(
        [(collection, appended(client, collection, t)) for t in times for collection in ids]
    )


def created(source: CollectionId) -> tuple[Body, Body]:
    """The first events of a source and of its dead letters, as a coordinator makes them."""
    letters = tuple((column.name, column.type) for column in dead_letters.COLUMNS)
    return (
        _created(source, replace(DESCRIPTION, kind="source")),
        _created(dead_letters.of(source), Description(letters, kind="errors")),
    )


def _created(id_: CollectionId, description: Description) -> Body:
    return Create(
        collection=id_,
        description=dumps(description),
        frontier=Timestamp(0),
        write=write_capability(id_),
    )


def appended(client: Client, source: CollectionId, time_: int) -> Body:
    """An append of a source and of its dead letters; the first one carries rows."""
    chunks = () if time_ else client.shards.write(source, rows(np.arange(10), 0, time_))
    parts = ((source, chunks), (dead_letters.of(source), ()))
    return Append(
        tuple(
            Part(
                collection=id_,
                capability=write_capability(id_),
                lower=frontier(time_),
                upper=frontier(time_ + 1),
                chunks=of_part,
            )
            for id_, of_part in parts
        )
    )


@dataclass(frozen=True, slots=True)
class Followed:
    """The time until a follower is ready, and its and the broker's resources then."""

    idle: Idle
    broker: Use
    own: Use


def followed(rig: StorageRig, ids: list[CollectionId]) -> Followed:
    """Open everything with a new client, then wait.

    Errors: Determinate when something is not where it was left.
    """
    start = Start()
    with rig.client() as client:
        client.shards.open(*ids)
        ready = start.ready()
        for collection in ids:
            if client.shards.state(collection).upper != frontier(EVENTS - 1):
                raise Determinate(f"collection {collection} was not read to its end")
        gc.collect()
        rested = idle(rig, ready)
        return Followed(rested, broker_used(rested), used(os.getpid(), rested.percent))
