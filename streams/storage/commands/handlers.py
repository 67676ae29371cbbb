"""Handlers: turn a client's command into a storage generator that returns its outcome.

Invalid contents of a command are detected here and refused with the same errors as misuse of
`Storage`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import pyarrow as pa

from schemas import stream
from streams.errors import Corrupt, InvalidUsage
from streams.ids import MINIMUM_TIME, Timestamp
from streams.storage.client.handles import (
    Capability,
    InvalidCapability,
    ReadCapability,
    WriteCapability,
)
from streams.storage.commands.wire import (
    AcquireCapabilities,
    Clone,
    Command,
    Create,
    Current,
    Cut,
    Downgrade,
    Drop,
    Heartbeat,
    Outcome,
    Share,
    Stage,
    Status,
    SubscribeAt,
    Transfer,
    UpdateAndDowngrade,
)
from streams.storage.description import loads
from streams.storage.limits import (
    LARGEST_ROWS,
    MOST_CHUNKS,
    MOST_PIECES,
    MOST_SHARES,
    TooLarge,
    check_size,
)
from streams.storage.log.events import is_system
from streams.storage.log.outcomes import UpperMismatch
from streams.storage.read.options import Comparison, Operator, Options, selection
from streams.storage.read.reader import check_readable, end, is_complete, pieces
from streams.storage.sans_io import CommandGenerators, Conversation
from streams.storage.storage import LEASE_MS
from streams.storage.write.update import UpdateWriter, Write
from streams.storage.write.validation import WrongRows

LONG = 1 << 20
"""Decoded bytes of an update's rows from which on the command counts as long."""


@dataclass(frozen=True, slots=True)
class CommandHandlers:
    """Commands as generators. `counting` is the `UpdateWriter` that checks multiplicities."""

    conversations: CommandGenerators
    counting: UpdateWriter

    def ask(self, command: Command) -> Conversation[Outcome]:
        """Return the generator of a command.

        Errors, raised by the generator: as the methods of `Storage`, and TooLarge.
        """
        check_presented(command)
        match command:
            case Create() | AcquireCapabilities():
                return pair(self._granted(command))
            case SubscribeAt():
                return self._subscribe_at(command)
            case UpdateAndDowngrade():
                return self._update(command)
            case Stage():
                return self._stage(command)
            case Drop():
                return self._drop(command)
            case _:
                return single_capability(self._moved(command))

    def _moved(
        self, command: Clone | Transfer | Downgrade | Heartbeat
    ) -> Conversation[Capability]:
        """The generator of a command that returns the presented capability, changed."""
        execution = self.conversations
        match command:
            case Clone(capability, lease_ms):
                return execution.clone(capability, lease_ms)
            case Transfer(capability):
                return execution.transfer(capability)
            case Downgrade(capability, target, token):
                return execution.downgrade(capability, target, token)
            case Heartbeat(capability):
                return execution.heartbeat(capability)
            case _:
                assert_never(command)

    def _granted(
        self, command: Create | AcquireCapabilities
    ) -> Conversation[tuple[ReadCapability, WriteCapability]]:
        """The generator of a command that returns a read and a write capability."""
        lease_ms = lease(command.lease_ms, is_critical=command.is_critical)
        execution = replace(self.conversations, lease_ms=lease_ms)
        match command:
            case AcquireCapabilities():
                conversation = execution.acquire(command.collection, command.token)
            case Create(id_, text, start, group):
                conversation = execution.create(id_, loads(text), start, group)
            case _:
                assert_never(command)
        return (yield from conversation)

    def _drop(self, command: Drop) -> Conversation[Outcome]:
        capability = command.capability
        if capability is None:
            raise InvalidCapability(
                command.collection, "expected a capability to drop, actual none"
            )
        if capability.id != command.collection:
            raise InvalidCapability(
                command.collection, f"it is one to collection {capability.id}"
            )
        yield from self.conversations.drop(capability, whole=command.whole)
        return Outcome(status=Status.DONE)

    def _update(self, command: UpdateAndDowngrade) -> Conversation[Outcome]:
        if not command.shares:
            raise InvalidUsage("update: expected one collection or more, actual none")
        execution = self.conversations
        check_size("collections of an update", MOST_SHARES, len(command.shares))
        check_size("chunks", MOST_CHUNKS, sum(len(share.chunks) for share in command.shares))
        if is_long(command):
            execution.directory.waits()
        writes = [write_of(share) for share in command.shares]
        if command.checks_counts:
            execution = replace(execution, writing=self.counting)
        match (yield from execution.update(writes)):
            case UpperMismatch(frontier, collection):
                return Outcome(status=Status.LOST, current=Current(collection, frontier))
            case moved:
                return Outcome(status=Status.DONE, capabilities=moved)

    def _stage(self, command: Stage) -> Conversation[Outcome]:
        capability = command.capability
        if not isinstance(capability, WriteCapability):
            raise InvalidCapability(capability.id, "it is not a write capability")
        lease_ms = LEASE_MS if command.lease_ms is None else command.lease_ms
        yield from self.conversations.stage(capability, command.stage, command.chunks, lease_ms)
        return Outcome(status=Status.DONE)

    def _subscribe_at(self, command: SubscribeAt) -> Conversation[Outcome]:
        """Answer without an event: looking up the capability has read the log to its end."""
        yield from ()
        capability = command.capability
        if not isinstance(capability, ReadCapability) or capability.frontier.is_empty:
            raise InvalidCapability(capability.id, "it is not a read capability in use")
        collection = self.conversations.asking.readable(capability)
        as_of = capability.frontier.time
        after = command.after
        if after is not None and after < as_of:
            raise InvalidUsage(f"expected after to be {as_of} or beyond, actual {after}")
        if command.until is not None and command.until <= as_of:
            raise InvalidUsage(f"expected until beyond {as_of}, actual {command.until}")
        check_readable(collection, as_of)
        shards = self.conversations.shards
        lower = MINIMUM_TIME if after is None else Timestamp(after + 1)
        upper = end(collection) if command.until is None else command.until
        pieces_ = pieces(collection, lower, min(end(collection), upper))
        if after is None and not is_complete(collection, as_of):
            pieces_ = ()  # the contents at as_of are not known yet
        wanted = selection(options_of(command), loads(collection.description)).may_match
        pieces_ = tuple(piece for piece in pieces_ if wanted(piece.ref))
        check_size("chunks of the cut", MOST_PIECES, len(pieces_))
        topic = shards.data_topic(collection.id)
        cut = Cut(collection.since, collection.upper, topic, pieces_)
        return Outcome(status=Status.DONE, cut=cut)


def check_presented(command: Command) -> None:
    """Errors: InvalidCapability for one that the system keeps to itself.

    Its name is derived from public ids, so knowing the name gives no right.
    """
    for capability in presented_capabilities(command):
        if is_system(capability.name):
            raise InvalidCapability(
                capability.id, f"{capability.name} is reserved for the system"
            )


def presented_capabilities(command: Command) -> Sequence[Capability]:
    """Return the capabilities that a command exercises."""
    match command:
        case Create() | AcquireCapabilities():
            return ()
        case UpdateAndDowngrade(shares):
            return [share.capability for share in shares]
        case Drop():
            return () if command.capability is None else (command.capability,)
        case _:
            return (command.capability,)


def options_of(command: SubscribeAt) -> Options:
    """Return the filter of a command. Errors: InvalidUsage for an unknown operator."""
    operators = {operator.value: operator for operator in Operator}
    for _, operator, _ in command.where:
        if operator not in operators:
            raise InvalidUsage(f"expected one of {' '.join(operators)}, actual {operator!r}")
    where = tuple(Comparison(name, operators[op], value) for name, op, value in command.where)
    return Options(where=where)


def single_capability(conversation: Conversation[Capability]) -> Conversation[Outcome]:
    """Return the outcome of a command with one capability as its result."""
    capability = yield from conversation
    return Outcome(status=Status.DONE, capabilities=(capability,))


def pair(
    conversation: Conversation[tuple[ReadCapability, WriteCapability]],
) -> Conversation[Outcome]:
    """Return the outcome of a command with two capabilities as its result."""
    return Outcome(status=Status.DONE, capabilities=(yield from conversation))


def lease(lease_ms: int | None, *, is_critical: bool) -> int | None:
    """Return the requested lease. Errors: InvalidUsage for a lease of a critical capability."""
    if lease_ms is None:
        return None if is_critical else LEASE_MS
    if is_critical:
        raise InvalidUsage(f"lease_ms: expected none with critical, actual {lease_ms}")
    return lease_ms


def is_long(command: UpdateAndDowngrade) -> bool:
    """Whether the rows of an update take so long to decode that other commands must not wait.

    130 KB may hold eight million rows: the declared sizes in the stream count, not its length.
    """
    try:
        return (
            sum(stream.decoded_bytes(share.updates or b"") for share in command.shares) > LONG
        )
    except Corrupt:
        return False  # the handler refuses it at once


def write_of(share: Share) -> Write:
    """A share as a `Write` of Storage. Errors: InvalidCapability, WrongRows, TooLarge."""
    capability = share.capability
    if not isinstance(capability, WriteCapability):
        raise InvalidCapability(capability.id, "it is not a write capability")
    rows = None if share.updates is None else table(capability, share.updates)
    return Write(capability, rows, share.new_frontier, share.chunks)


def table(capability: WriteCapability, body: bytes) -> pa.Table:
    """Decode and validate the rows of an Arrow IPC stream. Errors: WrongRows, TooLarge."""
    try:
        schema, batches = stream.read(body, LARGEST_ROWS)
    except stream.TooMuch as cause:
        what = f"{cause.what} of updates of collection {capability.id}"
        raise TooLarge(what, cause.most, cause.actual) from cause
    except Corrupt as cause:
        raise WrongRows(capability.id, str(cause)) from cause
    return pa.Table.from_batches(batches, schema=schema)
