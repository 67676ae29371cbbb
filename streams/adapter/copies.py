"""Executes COPY: the answer of a SELECT at one time, computed, encoded and then written.

The rows are those of SELECT: the same plan, time and process compute them. The files are
spooled before the first byte is written, so what fails in the computation writes nothing, and a
slow file system keeps no worker and no history. A thread writes, for it may wait; closing the
answer cancels it.
"""

import json
import logging
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from streams.adapter.catalog import Item
from streams.adapter.catalog_log import CatalogLog
from streams.adapter.copy_peeks import by_replica
from streams.adapter.instances import Instances
from streams.adapter.read_times import When
from streams.adapter.reads import Reads
from streams.adapter.results import Columns, Complete, Progress, Result, Rows
from streams.adapter.sessions import Session, session_facts
from streams.adapter.system_columns import SCHEMA, telling_names
from streams.adapter.system_reads import Readable, imported
from streams.adapter.workers.framing import Garbled
from streams.adapter.workers.requests import EncodeFiles, FileSizes, Planned
from streams.copies.destination import CopyManifest, Destination, opened
from streams.copies.parquet_types import refuse_columns
from streams.copies.targets import CopyTarget, CopyTargets, refuse_unfit
from streams.errors import InvalidStatement
from streams.ids import Timestamp
from streams.plan.physical import Column
from streams.plan.sql.copy import CopyTo
from streams.progress import frontier

log = logging.getLogger(__name__)

COLUMNS = tuple(Column(name, "BIGINT") for name in ("rows", "files", "bytes", "time"))
BEAT_S = 1.0

_Returned = TypeVar("_Returned")


@dataclass(frozen=True, slots=True)
class Copies:
    """Executes COPY statements. Thread-safe.

    `open_` gives the directory of a target for an attempt.
    """

    reads: Reads
    catalog: CatalogLog
    targets: CopyTargets
    instances: Instances
    open_: Callable[[CopyTarget, str], Destination] = opened

    def execute(self, statement: CopyTo, session: Session) -> Iterator[Result]:
        """Yield one row: rows, files, bytes and the time. Errors: InvalidStatement."""
        refuse_unfit(statement.uri)  # a secret reaches neither topics nor logs
        catalog = self.catalog.state
        items = [item for item in catalog.ordered() if item.has_shard]
        functions = tuple(catalog.functions.values())
        query = statement.selected.query
        with telling_names():
            plan, planned = yield from self.reads.planned(query, items, functions)
        refuse_columns([Column(*column) for column in planned.shown])
        read = imported(planned, items)
        when = When(statement.selected.as_of, session)
        if statement.replica:
            peeks = by_replica(statement.replica, self.instances, planned)
            item = _of_a_replica(read[0][0])
            ask = partial(peeks.answer, statement, planned, item)
            time, sizes = yield from self.reads.asked(item, when, items, ask)
        else:
            time, sizes = yield from self._computed(statement, plan, planned, when, items)
        log.info("copied", extra={"target": statement.uri, "rows": sizes.rows})
        yield Columns(COLUMNS)
        row = [sizes.rows, len(sizes.files), sizes.bytes, time if read else None]
        yield Rows((json.dumps(row),))
        facts: dict[str, str | int] = {"as_of": time} if read else {}
        yield Complete(f"COPY {sizes.rows}", {**facts, **session_facts(session)})

    def _computed(
        self,
        statement: CopyTo,
        plan: bytes,
        planned: Planned,
        when: When,
        items: Sequence[Item],
    ) -> Generator[Result, None, tuple[Timestamp, FileSizes]]:
        """Compute the answer in a worker, and write it here; return its time and files."""
        target = self.targets.find(statement.uri)
        destination = yield from _on(target, lambda _: self._begun(target))
        read = imported(planned, items)
        request = partial(EncodeFiles, plan, file_bytes=statement.file_bytes)
        with self.reads.spool("files") as spool:
            computed = self.reads.computed(read, when, items, request, spool.take)
            time, ended = yield from computed
            sizes = FileSizes.told(ended.facts)
            if sizes.bytes != spool.size:
                raise Garbled("a worker's files have other sizes than it says")
            manifest = CopyManifest(
                destination.attempt, time if read else None, planned.shown, sizes.files
            )
            yield from _on(target, partial(destination.write, spool.blocks(), manifest))
        return time, sizes

    def _begun(self, target: CopyTarget) -> Destination:
        """Return the directory, if it can be written. Errors: InvalidStatement, OSError."""
        destination = self.open_(target, uuid.uuid4().hex)
        destination.refuse_taken()
        return destination


def _of_a_replica(read: Readable) -> Item:
    if isinstance(read, Item):
        return read
    raise InvalidStatement(
        f"COPY by a replica expected an object, actual {SCHEMA}{read.name}",
        "only the coordinator has the system relations",
        "leave out REPLICA",
    )


def _on(
    target: CopyTarget, work: Callable[[Callable[[], bool]], _Returned]
) -> Generator[Result, None, _Returned]:
    """Do work on a file system, and beat for the user meanwhile.

    `work` gets a function that says whether it is canceled.

    Errors: InvalidStatement, also for those of the file system, without secrets.
    """
    canceled, result = threading.Event(), Future[_Returned]()

    def run() -> None:
        try:
            result.set_result(work(canceled.is_set))
        except BaseException as error:  # noqa: BLE001  the statement's thread raises it
            result.set_exception(error)

    threading.Thread(target=run, name="copy", daemon=True).start()
    try:
        while not wait([result], BEAT_S).done:
            yield Progress(frontier(0))
        return result.result()
    except (OSError, pa.ArrowException) as error:
        raise InvalidStatement(
            f"COPY could not write to {target.shown}",
            target.redacted(str(error).splitlines()[0] if str(error) else repr(error)),
            "check the target, its permissions and the credentials of the coordinator",
        ) from None
    finally:
        canceled.set()
