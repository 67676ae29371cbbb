"""COPY by a replica: a copy-to of the compute protocol, which one replica reads and writes.

The replica writes to its own file systems, below its own settings, and its answer is the only
one: it or its successor. A SELECT qualifies if it only compares and shows columns of one
collection, since a replica evaluates no expressions of users (`streams.adapter.index_reads`).
"""

from collections.abc import Generator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass

from streams.adapter.catalog import Item
from streams.adapter.instances import Instances
from streams.adapter.results import Progress, Result
from streams.adapter.workers.requests import FileSizes, Planned
from streams.compute.controller import Controller
from streams.compute.peeks import (
    MOST_COPIED,
    CopyFiles,
    Peek,
    PeekError,
    PeekFiles,
    PeekTarget,
)
from streams.compute.protocol import replica_of
from streams.errors import InvalidStatement, SlackwaterError
from streams.ids import Timestamp
from streams.plan.physical import SortKey
from streams.plan.sql.copy import CopyTo
from streams.progress import frontier
from streams.storage.client.shards import fresh_uuid

BEAT_S = 1.0


@dataclass(frozen=True, slots=True)
class CopyPeeks:
    """Asks the replicas of one cluster to copy."""

    controller: Controller

    def answer(
        self, statement: CopyTo, planned: Planned, item: Item, time: Timestamp
    ) -> Generator[Result, None, FileSizes]:
        """Have the replica of a statement copy, and return the files.

        Closing it cancels the copy. Errors: InvalidStatement; Determinate if it is not sent.
        """
        peek = _peek(statement, planned, item, time)
        try:
            result = self.controller.peek(peek)
            while not wait([result], BEAT_S).done:
                yield Progress(frontier(0))
            outcome = result.result()
        finally:
            with suppress(SlackwaterError):
                self.controller.cancel_peek(peek.uuid)
        match outcome:
            case PeekFiles(sizes):
                return FileSizes(sizes)
            case PeekError(message):
                raise refused(message)
            case _:
                raise InvalidStatement(f"a replica answered COPY by {type(outcome).__name__}")


def controller_of(replica: str, instances: Instances) -> Controller:
    """Return the controller of a replica, of any cluster; of two, the older cluster's.

    Errors: InvalidStatement if no such replica is live.
    """
    by_name: dict[str, Controller] = {}
    for controller in instances.controllers.values():
        for process in controller.observed.replicas:
            by_name.setdefault(replica_of(process), controller)
    if replica not in by_name:
        names = ", ".join(sorted(by_name))
        raise InvalidStatement(
            f"there is no replica {replica}",
            f"live replicas are {names}" if names else "no replica is live",
            "SHOW CLUSTER REPLICAS lists them",
        )
    return by_name[replica]


def by_replica(replica: str, instances: Instances, planned: Planned) -> CopyPeeks:
    """Return who asks a replica.

    Errors: InvalidStatement if no such replica is live, or none can copy the plan.
    """
    controller = controller_of(replica, instances)
    if planned.peek is None:
        raise InvalidStatement(
            "COPY by a replica expected a SELECT that shows columns of one collection and"
            " compares them with constants",
            "a replica evaluates no other expressions",
            "leave out REPLICA, or make a materialized view of the SELECT and copy that",
        )
    return CopyPeeks(controller)


def _peek(statement: CopyTo, planned: Planned, item: Item, time: Timestamp) -> Peek:
    assert planned.peek is not None, "it was checked"
    names = tuple(name for name, _ in planned.shown)
    return Peek(
        uuid=fresh_uuid(),
        target=PeekTarget(item.id, item.group),
        time=time,
        plan=planned.peek.plan,
        project=tuple(range(len(names))),
        most_bytes=MOST_COPIED,
        order=tuple(SortKey(*key) for key in planned.peek.order),
        replica=statement.replica,
        files=CopyFiles(statement.uri, names, statement.file_bytes),
    )


def refused(message: str) -> InvalidStatement:
    """Return the error that a replica answered: `str` of an InvalidStatement, or one line."""
    rest, _, hint = message.partition("\nHINT: ")
    first, _, detail = rest.partition("\nDETAIL: ")
    return InvalidStatement(first, detail, hint)
