"""Measures rows through driver and connector into a database, and where CPU time goes."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel

from connectors.driver import Driver, Stream
from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Tuples
from connectors.protocol.spec_builder import Bind, materialization
from connectors.sql.columns import TableColumn
from connectors.sql.connector import Resource, SqlConnector
from connectors.sql.dialect import Database, Existing, Name
from connectors.transport.local import Local
from schemas import materialize_pb2 as wire
from schemas.consumer_pb2 import Checkpoint
from schemas.flow_columns import Elements
from streams.bench.connectors.rows import ORDERS, Parts
from streams.bench.storage.limits import used

TENTHS = 10

Config = TypeVar("Config", bound=BaseModel)
Kept = TypeVar("Kept", bound=Resource)


@dataclass(frozen=True, slots=True)
class RowCost:
    """The cost of some rows: wall clock, CPU of this process, and CPU by phase."""

    rows: int
    wall: float
    cpu: float
    phases: Mapping[str, float]
    growth_mb: float = 0.0
    """The growth of this process's memory, from the first tenth of the rows to the last."""

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.wall

    @property
    def cpu_rate(self) -> float:
        """Rows a second of this process's processor time."""
        return self.rows / self.cpu


class Phases:
    """Seconds by phase: of the thread's processor, and of waiting for a server."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str, waiting: str = "") -> Iterator[None]:
        """Attribute the block's CPU time to a phase, and its other time to another."""
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        spent = time.thread_time() - cpu
        self.seconds[name] += spent
        if waiting:
            self.seconds[waiting] += time.perf_counter() - wall - spent


class Timed:
    """A database whose two expensive calls are phases."""

    def __init__(self, database: Database, phases: Phases) -> None:
        self.database, self.phases = database, phases

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        """See `Database`."""
        with self.phases.phase("statements", "waiting"):
            return self.database.execute(sql, values)

    def select(self, sql: str, values: Sequence[object] = ()) -> Iterator[Sequence[object]]:
        """See `Database`."""
        return self.database.select(sql, values)

    def fill(
        self, table: Name, columns: Sequence[TableColumn], data: Sequence[Elements]
    ) -> None:
        """See `Database`."""
        with self.phases.phase("fill", "waiting"):
            self.database.fill(table, columns, data)

    def columns_of(self, table: Name) -> Mapping[str, Existing]:
        """See `Database`."""
        return self.database.columns_of(table)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Database`; the commit is timed, and what is inside not again."""
        transaction = self.database.transaction()
        transaction.__enter__()
        try:
            yield
        except BaseException as error:
            transaction.__exit__(type(error), error, error.__traceback__)
            raise
        with self.phases.phase("statements", "waiting"):
            transaction.__exit__(None, None, None)


def timed(connector: SqlConnector[Config, Kept], phases: Phases) -> SqlConnector[Config, Kept]:
    """The connector, with what its database takes as phases."""

    @contextmanager
    def connect(config: Config) -> Iterator[Database]:
        opened: AbstractContextManager[Database] = connector.connect(config)
        with opened as database:
            yield Timed(database, phases)

    return replace(connector, connect=connect)


def through(
    connector: SqlConnector[Config, Kept],
    config: Mapping[str, object],
    passes: Sequence[tuple[bool, Parts]],
    say: Callable[[str], None] = lambda _: None,
) -> list[RowCost]:
    """Write rows, a transaction for each of them; of each pass whether its rows are there."""
    phases = Phases()
    driver = Driver(Local(timed(connector, phases)))
    bind = Bind(collection=ORDERS, resource={"table": "orders"}, path=("orders",))
    task = materialization("bench", config, [bind])
    driver.apply(wire.ApplyRequest(materialization=task, version="1"))
    opening = messages.Open(
        materialization=task, version="1", extensions=Extensions(delete=True)
    )
    with driver.open(opening) as stream:
        spent = [_pass(stream, phases, rows, say, exists=exists) for exists, rows in passes]
        stream.finish()
    return spent


def _pass(
    stream: Stream, phases: Phases, parts: Parts, say: Callable[[str], None], *, exists: bool
) -> RowCost:
    phases.seconds.clear()
    wall = cpu = 0.0
    count, resident = 0, Resident(parts.rows, say)
    for number, rows in enumerate(parts, 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        source = Checkpoint.Source(read_through=number)
        stream.flush(Checkpoint(sources={"bench": source}).SerializeToString())
        with phases.phase("pack"):
            message = messages.Store(
                binding=0,
                keys=Tuples.of_columns(rows.keys, len(rows)),
                values=Tuples.of_columns(rows.values, len(rows)),
                documents=rows.documents,
                exists=[exists] * len(rows),
            )
        with phases.phase("check and encode"):
            stream.send(message)
        stream.commit()
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu
        count += len(rows)
        resident.look(count)
    seconds = dict(phases.seconds)
    seconds["decode and check"] = cpu - sum(seconds.values()) + seconds.get("waiting", 0.0)
    return RowCost(count, wall, cpu, seconds, resident.growth_mb)


class Resident:
    """The memory of this process at each tenth of a pass."""

    def __init__(self, rows: int, say: Callable[[str], None]) -> None:
        self._rows, self._say = rows, say
        self._seen: list[float] = []

    def look(self, count: int) -> None:
        """So many rows are written."""
        if count * TENTHS >= self._rows * (len(self._seen) + 1):
            mib = used(os.getpid(), 0.0).mib
            self._seen.append(mib)
            self._say(f"{count:,} rows, {mib:,.0f} MiB")

    @property
    def growth_mb(self) -> float:
        """The growth from the first tenth, when everything is warm, to the last."""
        return self._seen[-1] - self._seen[0] if self._seen else 0.0
