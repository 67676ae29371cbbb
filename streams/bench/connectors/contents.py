"""Measures the initial contents through `slackwater materialize`: rate, peak memory.

The collection is written to a broker of its own; a process follows it into a file of SQLite,
until it is caught up. What it needs at most is what the operating system says of it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streams.app.service_process import now_ms
from streams.errors import Determinate
from streams.ids import CollectionId, Timestamp
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Downgrade, Part, system_capability
from streams.trace.kernel.kernel import arrow_schema

COLUMNS = (("id", "BIGINT"), ("region", "VARCHAR"), ("amount", "DOUBLE"), ("note", "VARCHAR"))
BATCH = 200_000
NAME = "contents"
TASK = """
task: {id}
connector: sqlite
config: {{path: {path}}}
bindings: [{{collection: {id}, resource: {{table: contents}}}}]
limits: {{spill: {spill}}}
"""


@dataclass(frozen=True, slots=True)
class Peak:
    """The cost of a collection's contents: seconds by the clock, peak MiB."""

    rows: int
    seconds: float
    memory: float


def contents(counts: Sequence[int], directory: Path) -> Iterator[Peak]:
    """Write collections of so many rows, and follow each in a process of its own.

    Errors: Determinate if one does not end well.
    """
    with EmbeddedBroker(directory / "broker") as broker, clients(broker) as shards:
        for number, count in enumerate(counts):
            collection = CollectionId(f"u{number + 1}")
            written(shards, collection, count)
            yield followed(broker, collection, count, directory)


@contextmanager
def clients(broker: EmbeddedBroker) -> Iterator[Shards]:
    """A client that writes."""
    kafka = KafkaBroker(ClientSettings(broker.bootstrap))
    shards = Shards(
        kafka.logs, kafka.chunks, kafka.topics, namespace=NAME, now_ms=now_ms, pump=True
    )
    try:
        yield shards
    finally:
        shards.close()
        kafka.close()


def written(shards: Shards, collection: CollectionId, count: int) -> None:
    """Make a collection; a tenth of its rows are changed once."""
    description = Description(COLUMNS, keys=("id",))
    hold = system_capability(collection, "bench")
    shards.create(collection, collection, description, Timestamp(0), read=hold)
    upper = 0
    for first in range(0, count, BATCH):
        ids = np.arange(first, min(first + BATCH, count))
        changed = ids[ids % 10 == 0]
        changes = [table(changed, 0, upper + 1, -1), table(changed, 1, upper + 1, 1)]
        for rows in (table(ids, 0, upper, 1), pa.concat_tables(changes)):
            part = Part(
                collection=collection,
                capability=write_capability(collection),
                lower=frontier(upper),
                upper=frontier(upper + 1),
                chunks=shards.write(collection, rows),
            )
            shards.submit([(collection, Append((part,)))])
            upper += 1
    # what came before is the contents, and not a history that could be followed
    last = Downgrade(collection=collection, capability=hold, frontier=frontier(upper - 1))
    shards.submit([(collection, last)])


def table(ids: NDArray[np.int64], version: int, at: int, diff: int) -> pa.Table:
    """Some rows, at one time."""
    regions = np.char.add("region ", (ids % 97).astype(str))
    notes = np.char.add("a note on ", ids.astype(str))
    arrays = [
        pa.array(ids),
        pa.array(regions),
        pa.array(ids * 0.25 + version),
        pa.array(notes),
        pa.array(np.full(len(ids), at)),
        pa.array(np.full(len(ids), diff)),
    ]
    return pa.table(arrays, schema=arrow_schema([type_ for _, type_ in COLUMNS]))


def followed(
    broker: EmbeddedBroker, collection: CollectionId, count: int, directory: Path
) -> Peak:
    """Follow a collection until its table is complete."""
    file, path = directory / f"{collection}.yaml", directory / f"{collection}.db"
    file.write_text(TASK.format(id=collection, path=path, spill=directory))
    where = ["--brokers", broker.bootstrap, "--namespace", NAME, "--json"]
    command = [sys.executable, "-m", "streams.app.main", "materialize", "run", str(file)]
    begun = time.perf_counter()
    with (directory / f"{collection}.log").open("w+") as said:
        process = subprocess.Popen(  # noqa: S603  our own program
            [*command, *where, "--until-caught-up"], stdout=said, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise Determinate(f"materialize: {(directory / f'{collection}.log').read_text()}")
    path.unlink()
    return Peak(count, time.perf_counter() - begun, used.ru_maxrss / 1024)
