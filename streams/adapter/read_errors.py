"""What keeps a collection from being read, in the words of who reads it.

A collection with an error that is alive at a time cannot be read at that time: the read returns
the error. One whose log is halted is not read until an operator has looked at the log.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from streams.errors import Corrupt, InvalidStatement, SlackwaterError
from streams.ids import Timestamp
from streams.kafka.log import Truncated
from streams.storage.client.shards import Shards
from streams.storage.read.reader import SinceViolation
from streams.storage.read.soundness import present_errors


def refuse_errors(name: str, errors: pa.Table, time: Timestamp) -> None:
    """Errors: InvalidStatement if an error is alive at `time`."""
    rows = present_errors(errors, time)
    if not rows.num_rows:
        return
    first = rows.column("error")[0].as_py()
    count = sum(rows.column("diff").to_pylist())
    raise InvalidStatement(
        f"{name} holds {'an error' if count == 1 else f'{count} errors'} at {time}",
        first,
        "the collection can be read again once what causes the error is retracted",
    )


VERIFY = "says what is wrong, and the way past it"


def with_way_out(error: SlackwaterError, shards: Shards) -> str:
    """Return an error's text; for a halted log, also what to do."""
    text = str(error)
    if not isinstance(error, Corrupt | Truncated):
        return text
    log = re.search(rf"log {re.escape(shards.namespace)}\.(\S+?)\.log\b", text)
    return text if log is None else f"{text}; 'slackwater shard verify {log[1]}' {VERIFY}"


@contextmanager
def halted(name: str, group: str) -> Iterator[None]:
    """Turn a log that cannot be followed, or a chunk that is damaged, into a refusal.

    Errors: InvalidStatement with the cause, and the command that says what to do.
    """
    try:
        yield
    except (Corrupt, Truncated) as cause:
        raise InvalidStatement(
            f"{name} cannot be read: its log or its chunks are damaged",
            str(cause),
            f"'slackwater shard verify {group} --chunks' {VERIFY}",
        ) from cause


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Says in the user's words that since has passed what is being read."""
    try:
        yield
    except SinceViolation as passed:
        since = None if passed.since.is_empty else passed.since.time
        raise unreadable(name, since, passed.as_of) from passed


@contextmanager
def refuse_nonsense(name: str) -> Iterator[None]:
    """Turn an answer of a replica that is not what it may say into a refusal.

    Errors: InvalidStatement with what was expected and what came.
    """
    try:
        yield
    except Corrupt as cause:
        raise InvalidStatement(
            f"{name} cannot be read by a replica: its answer is malformed",
            str(cause),
            "SHOW CLUSTER REPLICAS lists the replicas; one of them may be of another version",
        ) from cause


def unreadable(name: str, since: int | None, as_of: Timestamp | None) -> InvalidStatement:
    """The error of a read that no waiting will help."""
    if since is None:
        return InvalidStatement(f"{name} can no longer be read", "it was dropped")
    return InvalidStatement(
        f"{name} cannot be read at {as_of}",
        f"its history before {since} has been compacted",
        f"read it at {since} or later",
    )
