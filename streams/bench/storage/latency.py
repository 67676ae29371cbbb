"""Latencies: creating a collection, a durable append, delivery to a reader.

create   a collection in a group of its own: topics made, id claimed, log followed
append   ten rows through `update_and_downgrade`: chunk and event stored, the outcome read back
listen   from the call of the append to its delivery by a subscription of another client
"""

import threading
import time
from statistics import median

import numpy as np

from streams.app.freshness import percentile
from streams.bench.figures import Figure, Outcome, at_most
from streams.bench.storage.rig import Client, StorageRig, cpu, load_average
from streams.bench.storage.rows import DESCRIPTION, rows
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.storage.client.handles import ReadCapability, WriteCapability
from streams.storage.read.options import Options
from streams.storage.read.subscription import Subscription

ROWS = 10
WARM_UP = 50
CREATED, APPENDS, LISTENED = 30, 2_000, 500
PAUSE_S = 0.01
"""Between the appends that are listened to, so that none waits for the one before."""


PATIENCE_S = 60.0


def create(rig: StorageRig) -> Outcome:
    """Collections one after the other; the first one opens the client's connections."""
    count, load = rig.scaled(CREATED, least=5), load_average()
    taken = list[float]()
    with rig.client() as client, rig.bar("creating", count) as step:
        for number in range(count + 1):
            began = time.perf_counter()
            opened(client, f"created_{number}")
            taken.append(time.perf_counter() - began)
            step(1)
    return Outcome(
        "create",
        (
            at_most("create_s_p50", percentile(taken[1:], 0.5), "s", 0.3),
            Figure("create_s_max", max(taken[1:]), "s"),
            Figure("create_first_s", taken[0], "s"),
            Figure("create_load", load),
        ),
        note=f"{count} collections, each in a group of its own",
    )


def append(rig: StorageRig) -> Outcome:
    """Appends one after the other, each durable before the next."""
    count, load = rig.scaled(APPENDS, least=20), load_average()
    with rig.client() as client:
        _, write = opened(client, "appended")
        for _ in range(WARM_UP):
            write = appended(client, write)
        client.chunks.write_ms.clear()
        client.logs.append_ms.clear()
        before, taken = cpu(), list[float]()
        with rig.bar("appending", count) as step:
            for _ in range(count):
                began = time.perf_counter()
                write = appended(client, write)
                taken.append((time.perf_counter() - began) * 1000)
                step(1)
        used = cpu().since(before)
    chunk, log = median(client.chunks.write_ms), median(client.logs.append_ms)
    whole = median(taken)
    phases = {"whole": whole, "chunk": chunk, "event": log, "rest": whole - chunk - log}
    return Outcome(
        "append",
        (
            at_most("append_ms_p50", percentile(taken, 0.5), "ms", 10),
            at_most("append_ms_p99", percentile(taken, 0.99), "ms", 40),
            Figure("append_ms_max", max(taken), "ms"),
            Figure("append_cpu_ms", used.ours * 1000 / count, "ms"),
            Figure("append_broker_cpu_ms", used.broker * 1000 / count, "ms"),
            Figure("append_load", load),
        ),
        {"append": phases},
        note=f"{count:,} appends of {ROWS} rows by one client; the rest is checking, encoding,"
        " and reading the event back",
        of="median of an append, ms",
    )


def opened(client: Client, name: str) -> tuple[ReadCapability, WriteCapability]:
    """A new collection."""
    return client.storage.create(CollectionId(name), DESCRIPTION, critical=True, start=0)


def appended(client: Client, write: WriteCapability) -> WriteCapability:
    """The capability after one append of a few rows."""
    time_ = write.frontier.time
    updates = rows(np.arange(ROWS) + ROWS * time_, 0, time_)
    moved = client.storage.update_and_downgrade(write, updates, time_ + 1)
    assert isinstance(moved, WriteCapability), "there is no other writer"
    return moved


def listen(rig: StorageRig) -> Outcome:
    """Appends at a walking pace, and a reader in a thread of its own."""
    count, load = rig.scaled(LISTENED, least=20), load_average()
    called, returned, heard = dict[int, float](), dict[int, float](), dict[int, float]()
    with rig.client() as writer, rig.client() as reader:
        read, write = opened(writer, "listened")
        options = Options(snapshot=False, until=Timestamp(WARM_UP + count))
        subscription = reader.storage.subscribe_at(read, options)
        ear = threading.Thread(target=hear, args=(subscription, heard), daemon=True)
        ear.start()
        with rig.bar("appending and listening", count) as step:
            for number in range(WARM_UP + count):
                called[number] = time.perf_counter()
                write = appended(writer, write)
                returned[number] = time.perf_counter()
                time.sleep(PAUSE_S)
                step(number >= WARM_UP)
        ear.join(PATIENCE_S)
    if len(heard) < WARM_UP + count - 1:  # the contents at time 0 were not asked for
        raise Determinate(f"listen: expected {WARM_UP + count - 1} times, actual {len(heard)}")
    counted = [number for number in heard if number >= WARM_UP]
    whole = [(heard[number] - called[number]) * 1000 for number in counted]
    after = [(heard[number] - returned[number]) * 1000 for number in counted]
    return Outcome(
        "listen",
        (
            at_most("listen_ms_p50", percentile(whole, 0.5), "ms", 15),
            Figure("listen_ms_p99", percentile(whole, 0.99), "ms"),
            Figure("listen_after_return_ms_p50", percentile(after, 0.5), "ms"),
            Figure("listen_deliveries", len(counted)),
            Figure("listen_load", load),
        ),
        note="from the call of the append, which returns durable, to the delivery of its rows",
    )


def hear(subscription: Subscription, heard: dict[int, float]) -> None:
    """Note when the rows of each time come, until the subscription ends."""
    for delivery in subscription:
        now = time.perf_counter()
        times = set(delivery.updates.column("time").to_pylist())
        heard.update(dict.fromkeys(times, now))
