"""Bulk loads, as a stranger writes them from the page: chunks beforehand, staged, linked."""

import uuid
from collections.abc import Callable, Iterable

import pyarrow as pa

from tests.stranger import chunk
from tests.stranger.client import Client
from tests.stranger.values import Record

MOST_CHUNKS = 4096  # of an update, and of a stage
AT_ONCE = 16  # chunks that are staged by one command
TRIES = 5


def load(
    client: Client,
    where: tuple[str, str],
    held: Record,
    tables: Iterable[pa.Table],
    new_frontier: int | None,
) -> Record:
    """Write tables of any size in one update, however long it takes; the capability, moved.

    `where` is the data topic and the group's UUID.
    """
    stage = uuid.uuid4().hex
    refs: list[Record] = []
    some: list[tuple[bytes, int]] = []
    for body in (body for rows in tables for body in chunk.written(rows)):
        some.append(body)
        if len(some) == AT_ONCE:
            refs += staged(client, where, held, stage, some)
            some = []
    refs += staged(client, where, held, stage, some)
    assert len(refs) <= MOST_CHUNKS
    chunk.check_references(refs)
    write = {"capability": held, "updates": None, "chunks": refs, "new_frontier": new_frontier}
    (moved,) = client.done("update_and_downgrade", writes=[write])
    client.done("stage", capability=moved, stage=stage, chunks=[], lease_ms=0)
    return moved


def staged(
    client: Client,
    where: tuple[str, str],
    held: Record,
    stage: str,
    bodies: list[tuple[bytes, int]],
) -> list[Record]:
    """Write chunks and stage them; anew when a collector was faster."""

    def write() -> Record:
        refs = [client.write_chunk(*where, held["collection"], *body) for body in bodies]
        return {"capability": held, "stage": stage, "chunks": refs, "lease_ms": 60_000}

    return list(again(client, "stage", write)["chunks"])


def again(client: Client, name: str, fields: Callable[[], Record]) -> Record:
    """Send a command, anew as long as others were faster; the fields of what was done."""
    for _ in range(TRIES):
        columns = fields()
        answer = client.ask(name, **columns)
        if answer["status"] == "DONE":
            return columns
        overtaken = ("Reclaimed", "Recount")
        assert answer["status"] == "REFUSED", answer
        assert answer["error"]["code"] in overtaken, answer
    raise TimeoutError(f"{name} was overtaken {TRIES} times")
