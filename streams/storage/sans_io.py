"""Storage commands as generators without I/O: each yields the I/O it needs and gets the result.

A generator yields requests to store chunks (`StoreChunks`) or to submit events
(`SubmitEvents`), is sent the result, and returns the command's outcome or raises the refusal.
Only id lookup and topic creation block, so many commands can be interleaved: `Storage` runs one
at a time, and the command service runs a batch together (`streams.storage.commands`). Both
execute the same code.
"""

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain, frontier
from streams.storage.client.catalog_ids import CATALOG_ID
from streams.storage.client.handles import (
    Held,
    NotForward,
    ReadCapability,
    WriteCapability,
    check_lease,
    check_token,
    useless_read,
    useless_write,
)
from streams.storage.client.id_registry import Directory
from streams.storage.client.lifecycle import AlreadyBound, Command, Phase, phase_of, refusal
from streams.storage.client.preconditions import CapabilityConditions
from streams.storage.client.shards import Shards
from streams.storage.client.submit import unread_error
from streams.storage.description import Description, check_columns, dumps, loads
from streams.storage.limits import (
    LARGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_STAGE,
    MOST_CHUNKS,
    MOST_COLUMNS,
    check_size,
)
from streams.storage.log.events import (
    Body,
    Clone,
    Create,
    Downgrade,
    Drop,
    Right,
    Stage,
    Transfer,
    write_capability,
)
from streams.storage.log.outcomes import (
    Appended,
    ChunksReclaimed,
    Cloned,
    Created,
    Downgraded,
    Dropped,
    Misuse,
    Outcome,
    Overtaken,
    Refused,
    Staged,
    Transferred,
    Unavailable,
    UpperMismatch,
)
from streams.storage.write.update import (
    UpdateWriter,
    ValidatedWrites,
    Write,
    as_frontier,
    moved_capability,
    renewal,
)

T = TypeVar("T")

NAME_CHARACTERS = "letters of ASCII, digits, '.', '_' and '-'"
NAME = re.compile("[A-Za-z0-9._-]+")
"""The characters of an id and of a group's name.

Topics are named after a group. A stage's name is the collection's id, ':', and the client's
name for the stage.
"""


class Reclaimed(InvalidUsage):
    """A chunk that was written beforehand was garbage-collected before it was linked."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"updates of collection {self.collection}: a chunk was reclaimed before it was"
            " linked: write it again"
        )


class Recount(InvalidUsage):
    """Others wrote to the collection between the check of its multiplicities and the write."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"updates of collection {self.collection}: others wrote to it while its rows were"
            " counted, and nothing was written: send the command again"
        )


class StillWritable(InvalidUsage):
    """The collection cannot be dropped whole: others may write to it."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} is not dropped: others may write to it: drop it when"
            " no write capability is live but the one that you present"
        )


@dataclass(frozen=True, slots=True)
class StoreChunks:
    """A request to write rows as chunks. Shape: each table has c0 .. cn, time, diff."""

    writes: tuple[tuple[CollectionId, pa.Table], ...]


@dataclass(frozen=True, slots=True)
class SubmitEvents:
    """A request to append events to the logs of their groups."""

    events: tuple[tuple[str, Body], ...]


@dataclass(frozen=True, slots=True)
class StoredChunks:
    """The references to the chunks of each write."""

    chunks: tuple[tuple[ChunkRef, ...], ...]


@dataclass(frozen=True, slots=True)
class SubmittedOutcomes:
    """The outcome of each event."""

    outcomes: tuple[Outcome, ...]


Conversation = Generator[StoreChunks | SubmitEvents, StoredChunks | SubmittedOutcomes, T]


def store_chunks(
    writes: Sequence[tuple[CollectionId, pa.Table]],
) -> Conversation[tuple[tuple[ChunkRef, ...], ...]]:
    """Request that rows be written; return the chunks of each write."""
    if not writes:
        return ()
    answer = yield StoreChunks(tuple(writes))
    assert isinstance(answer, StoredChunks), "chunks were asked for"
    return answer.chunks


def submit_events(events: Sequence[tuple[str, Body]]) -> Conversation[tuple[Outcome, ...]]:
    """Request that events be submitted; return their outcomes."""
    answer = yield SubmitEvents(tuple(events))
    assert isinstance(answer, SubmittedOutcomes), "outcomes were asked for"
    return answer.outcomes


def run_generator(shards: Shards, conversation: Conversation[T]) -> T:
    """Run one generator to its end and return its result."""
    try:
        ask = next(conversation)
        while True:
            ask = conversation.send(answer_of(shards, ask))
    except StopIteration as over:
        result: T = over.value
        return result


def answer_of(
    shards: Shards, ask: StoreChunks | SubmitEvents
) -> StoredChunks | SubmittedOutcomes:
    """Execute a request at once and return its result."""
    match ask:
        case StoreChunks(writes):
            return StoredChunks(tuple(shards.write_all(writes)))
        case SubmitEvents(events):
            return SubmittedOutcomes(tuple(shards.submit(events)))


@dataclass(frozen=True, slots=True)
class CommandGenerators:
    """The commands. A non-empty `creator` distinguishes the creator of an id from copies."""

    shards: Shards
    directory: Directory
    asking: CapabilityConditions
    writing: UpdateWriter
    lease_ms: int | None
    creator: str = ""

    def create(
        self, id_: CollectionId, description: Description, start: int, group: str
    ) -> Conversation[tuple[ReadCapability, WriteCapability]]:
        """Bind an id. Errors: as `Storage.create`."""
        check_new(id_, description, start, group)
        check_lease(self.lease_ms)
        self.asking.free(id_)
        text = dumps(description, self.creator)
        yield from self._claim(id_, group)
        read, write = self.asking.name(), self.asking.name()
        is_system_fed = not description.is_user_fed
        body = Create(
            collection=id_,
            description=text,
            frontier=Timestamp(start),
            write=write_capability(id_) if is_system_fed else write,
            read=read,
            lease_ms=self.lease_ms,
            is_write_critical=is_system_fed,
        )
        (outcome,) = yield from submit_events([(group, body)])
        if isinstance(outcome, Unavailable):
            raise unread_error(outcome.reason)
        state = self.shards.state(id_)
        # another Create may have said the same, unless its creator is named in it
        is_ours = isinstance(outcome, Created) and (self.creator or read in state.capabilities)
        if not is_ours:
            raise refusal(Command.CREATE, id_, state) or AlreadyBound(id_)
        at = frontier(start)
        if is_system_fed:
            return ReadCapability(id_, at, read), useless_write(id_)
        return ReadCapability(id_, at, read), WriteCapability(id_, at, write)

    def _claim(self, id_: CollectionId, group: str) -> Conversation[None]:
        (outcome,) = yield from submit_events([self.directory.claim(id_, group)])
        self.directory.claimed(id_, outcome)

    def update(
        self, writes: Sequence[Write]
    ) -> Conversation[tuple[WriteCapability, ...] | UpperMismatch]:
        """Write, and move the capabilities. Errors: as `Storage.update_and_downgrade`."""
        for write in writes:
            self.asking.usable(Command.UPDATE, write.capability)
        try:
            group = self.writing.group(writes)
            checked = self._checked(writes)
        except InvalidUsage:
            for write in writes:
                self.asking.current(Command.UPDATE, write.capability)
            raise
        pairs = tuple(zip(writes, checked.rows, strict=True))
        inline = [(write.capability.id, own) for write, own in pairs if own is not None]
        refs = iter((yield from store_chunks(inline)))
        chunks = [(*write.chunks, *(() if own is None else next(refs))) for write, own in pairs]
        events = self.writing.events(group, writes, chunks, checked.read_upto)
        outcomes = yield from submit_events(events)
        if all(write.is_heartbeat for write in writes):
            lost = self._lost_heartbeat(writes, outcomes)
        else:
            lost = self._lost_append(writes, outcomes[0])
        return lost or tuple(moved_capability(write) for write in writes)

    def _checked(self, writes: Sequence[Write]) -> ValidatedWrites:
        """Check the rows of all writes before any is stored.

        A command that was decided needs no check, only its event's name: its rows are in the
        collection already, and its chunks may have been merged.
        """
        if self.asking.is_decided:
            return ValidatedWrites(tuple(None for _ in writes), None)
        return self.writing.checked(writes)

    def _lost_append(self, writes: Sequence[Write], outcome: Outcome) -> UpperMismatch | None:
        """The lost race of an Append, if it lost one. Errors: if it is invalid otherwise."""
        match outcome:
            case Appended():
                return None
            case UpperMismatch():
                return outcome
            case ChunksReclaimed():
                raise Reclaimed(writes[0].capability.id)
            case Overtaken(collection):
                raise Recount(collection)
            case _:
                raise self.asking.refused(Command.UPDATE, self._culprit(writes), outcome)

    def _lost_heartbeat(
        self, writes: Sequence[Write], outcomes: Sequence[Outcome]
    ) -> UpperMismatch | None:
        """Return the first capability that has moved. Errors: if one is invalid."""
        for write, outcome in zip(writes, outcomes, strict=True):
            match outcome:
                case Downgraded(at) if at == write.capability.frontier:
                    continue
                case Downgraded(at):
                    return UpperMismatch(at, write.capability.id)
                case _:
                    raise self.asking.refused(Command.UPDATE, write.capability, outcome)
        return None

    def _culprit(self, writes: Sequence[Write]) -> WriteCapability:
        """Return the first of the capabilities that the log does not know; else the first."""
        for write in writes:
            stored = self.shards.state(write.capability.id).capabilities.get(
                write.capability.name
            )
            if stored is None or stored.token != write.capability.token:
                return write.capability
        return writes[0].capability

    def stage(
        self,
        capability: WriteCapability,
        name: str,
        chunks: tuple[ChunkRef, ...],
        lease_ms: int,
    ) -> Conversation[None]:
        """Protect chunks until they are linked. Errors: as `Storage.stage`."""
        check_stage(name)
        if lease_ms:
            check_lease(lease_ms)
        stage_name = f"client:{capability.id}:{name}"
        self.asking.writable(capability)
        group = self.shards.group_of(capability.id)
        staged = self.shards.group_state(group).stages.get(stage_name)
        count = len(chunks) + (len(staged.chunks) if staged else 0)
        if not self.asking.is_decided:
            what = f"chunks of stage {name} (link them, and use another stage)"
            check_size(what, MOST_CHUNKS, count)
        body = Stage(stage=stage_name, chunks=chunks, lease_ms=lease_ms)
        match (yield from submit_events([(group, body)]))[0]:
            case Staged():
                return
            case ChunksReclaimed():
                raise Reclaimed(capability.id)
            case outcome:
                raise self.asking.refused(Command.UPDATE, capability, outcome)

    def acquire(
        self, id_: CollectionId, token: str
    ) -> Conversation[tuple[ReadCapability, WriteCapability]]:
        """Acquire capabilities. Errors: as `Storage.acquire_capabilities`."""
        check_lease(self.lease_ms)
        check_token(token)
        collection = self.directory.find(id_)
        self.directory.check(Command.ACQUIRE, id_, collection)
        if collection is None or collection.is_dropped:
            return useless_read(id_), useless_write(id_)
        event = self.asking.acquire_event(id_, Right.READ, self.lease_ms, token)
        events = [event, self.asking.acquire_event(id_, Right.WRITE, self.lease_ms, token)]
        is_user_fed = loads(collection.description).is_user_fed
        outcomes = yield from self._asked(id_, *events[: 1 + is_user_fed])
        fronts = [self.asking.acquired(id_, outcome) for outcome in outcomes]
        read, write = useless_read(id_), useless_write(id_)
        if not fronts[0].is_empty:
            read = ReadCapability(id_, fronts[0], event.capability, token)
        if is_user_fed and not fronts[1].is_empty:
            write = WriteCapability(id_, fronts[1], events[1].capability, token)
        return read, write

    def clone(self, capability: Held, lease_ms: int | None) -> Conversation[Held]:
        """Create a second capability. Errors: as `Storage.clone`."""
        check_lease(lease_ms)
        self.asking.usable(Command.USE, capability)
        name = self.asking.name()
        body = Clone(
            collection=capability.id,
            capability=capability.name,
            clone=name,
            lease_ms=lease_ms,
            token=capability.token,
        )
        match (yield from self._asked(capability.id, body))[0]:
            case Cloned(at):
                token = "" if lease_ms is not None else capability.token
                return replace(capability, frontier=at, name=name, token=token)
            case outcome:
                raise self.asking.refused(Command.USE, capability, outcome)

    def transfer(self, capability: Held) -> Conversation[Held]:
        """Give a capability another name. Errors: as `Storage.transfer`."""
        self.asking.usable(Command.USE, capability)
        name = self.asking.name()
        body = Transfer(
            collection=capability.id,
            capability=capability.name,
            to=name,
            token=capability.token,
        )
        match (yield from self._asked(capability.id, body))[0]:
            case Transferred(at):
                return replace(capability, frontier=at, name=name)
            case outcome:
                raise self.asking.refused(Command.USE, capability, outcome)

    def downgrade(
        self, capability: Held, target: Antichain, token: str | None
    ) -> Conversation[Held]:
        """Move a capability forward. Errors: as `Storage.downgrade`."""
        check_token(token)
        self.asking.usable(Command.USE, capability)
        if not capability.frontier.precedes(target):
            self.asking.current(Command.USE, capability)
            raise NotForward(capability.id, capability.frontier, target)
        if target.is_empty:
            yield from self.drop(capability)
            return replace(capability, frontier=target)
        body = Downgrade(
            collection=capability.id,
            capability=capability.name,
            frontier=target,
            token=capability.token,
            new_token=token,
        )
        match (yield from self._asked(capability.id, body))[0]:
            case Downgraded(at) if at == target:
                next_token = capability.token if token is None else token
                return replace(capability, frontier=target, token=next_token)
            case Downgraded(at):
                raise NotForward(capability.id, at, target)
            case outcome:
                raise self.asking.refused(Command.USE, capability, outcome)

    def drop(
        self, capability: ReadCapability | WriteCapability, *, whole: bool = False
    ) -> Conversation[None]:
        """Drop a capability, or with it a collection. Errors: as `Storage.drop`."""
        id_ = capability.id
        if whole and CATALOG_ID.fullmatch(id_):
            raise InvalidUsage(f"collection {id_} belongs to the catalog: drop it in SQL")
        collection = self.directory.find(id_)
        self.directory.check(Command.DROP, id_, collection)
        if phase_of(collection) is Phase.FORGOTTEN:
            return
        body = Drop(id_, capability.name, capability.token, whole, sole=whole)
        (outcome,) = yield from self._asked(id_, body)
        if outcome == Refused(Misuse.OTHER_WRITERS):
            raise StillWritable(id_)
        if not isinstance(outcome, Dropped):
            raise self.asking.refused(Command.DROP, capability, outcome)

    def heartbeat(self, capability: Held) -> Conversation[Held]:
        """Renew a lease. Errors: as `Storage.heartbeat`."""
        self.asking.usable(Command.USE, capability)
        body = renewal(capability)
        match (yield from self._asked(capability.id, body))[0]:
            case Downgraded(at):
                return replace(capability, frontier=at)
            case outcome:
                raise self.asking.refused(Command.USE, capability, outcome)

    def _asked(self, id_: CollectionId, *bodies: Body) -> Conversation[tuple[Outcome, ...]]:
        group = self.shards.group_of(id_)
        return (yield from submit_events([(group, body) for body in bodies]))


def check_stage(name: str) -> None:
    """Check the name of a stage. Errors: InvalidUsage if it is empty; TooLarge."""
    if not name:
        raise InvalidUsage("stage: expected a name, actual an empty one")
    check_size("characters of the stage's name", LONGEST_STAGE, len(name))


def check_name(what: str, name: str) -> None:
    """Check a name of topics and stages. Errors: TooLarge; InvalidUsage for bad characters."""
    check_size(f"characters of the {what}", LONGEST_NAME, len(name))
    if not NAME.fullmatch(name):
        raise InvalidUsage(f"create: expected a {what} of {NAME_CHARACTERS}, actual {name!r}")


def check_new(id_: CollectionId, description: Description, start: int, group: str) -> None:
    """Check a new collection. Errors: InvalidUsage for a bad name or description; TooLarge."""
    if not id_ or not group:
        raise InvalidUsage(
            f"create: expected the names of a collection and a group, actual {id_!r} and"
            f" {group!r}"
        )
    check_name("collection's id", id_)
    check_name("group's name", group)
    check_size("columns of the description", MOST_COLUMNS, len(description.columns))
    size = len(dumps(description).encode(errors="replace"))
    check_size("bytes of the description", LARGEST_DESCRIPTION, size)
    as_frontier(start)
    check_columns(description)
