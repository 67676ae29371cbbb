"""Preconditions of a command about a capability, its event, and the meaning of the outcome.

Conditions that the folded state can decide are checked before the event is sent. Those that
only the log can decide are translated from the outcome, so that both give the same error.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import CapabilityId, CollectionId
from streams.progress import EMPTY, Antichain
from streams.storage.client.handles import (
    Capability,
    FencedCapability,
    InvalidCapability,
    ReadCapability,
    WriteCapability,
    not_held,
    right_of,
    useless_read,
)
from streams.storage.client.id_registry import Directory
from streams.storage.client.lifecycle import Command, check, refusal
from streams.storage.client.shards import Shards
from streams.storage.client.submit import unread_error
from streams.storage.log.events import Acquire, Right
from streams.storage.log.outcomes import (
    Acquired,
    Outcome,
    Refused,
    TokenMismatch,
    Unavailable,
    UnknownCapability,
    UnknownCollection,
)
from streams.storage.log.state import CollectionState

NEEDED = {Command.SUBSCRIBE: Right.READ, Command.UPDATE: Right.WRITE}
"""The right that a command exercises; commands that are not listed accept either."""


@dataclass(frozen=True, slots=True)
class CapabilityConditions:
    """Preconditions and outcomes of commands about capabilities.

    A command that is `decided` was executed before and only its answer was lost: its recorded
    outcome counts, not the present state.
    """

    shards: Shards
    directory: Directory
    new_id: Callable[[], str]
    is_decided: bool = False

    def name(self) -> CapabilityId:
        """Return a name for a capability, as hard to guess as the result of `new_id`.

        For `Storage` that is a random UUID; for a command of the topics it is the command's id,
        which therefore has to be random (`schemas/CLIENTS.md`).
        """
        return CapabilityId(self.new_id())

    def usable(self, command: Command, capability: Capability) -> CollectionState:
        """Return the collection of a capability that is valid in the folded state.

        The folded state may lag. That is enough for sending an event, which the log decides;
        before a command is refused, the log is read to its end.

        Errors: what the id answers to the command; InvalidCapability, Sealed.
        """
        try:
            return self.valid(command, capability)
        except InvalidUsage:
            return self.current(command, capability)

    def current(self, command: Command, capability: Capability) -> CollectionState:
        """Like `usable`, after reading the log to its present end."""
        if self.directory.find(capability.id) is not None:
            self.directory.sync(capability.id)
        return self.valid(command, capability)

    def valid(self, command: Command, capability: Capability) -> CollectionState:
        """Like `usable`, on the folded state only."""
        id_ = capability.id
        collection = self.directory.find(id_)
        if self.is_decided and collection is not None:
            return collection
        self.directory.check(command, id_, collection)
        assert collection is not None, "no command is allowed on what is not bound"
        needed, right = NEEDED.get(command), right_of(capability)
        if needed is not None and right is not needed:
            raise InvalidCapability(
                id_,
                f"expected a {needed.value.lower()} capability, actual a {right.value.lower()}"
                " capability",
            )
        stored = collection.capabilities.get(capability.name)
        if stored is None or stored.right is not right_of(capability):
            raise not_held(self.shards.group_state(self.shards.group_of(id_)), capability)
        return collection

    def free(self, id_: CollectionId) -> None:
        """Errors: AlreadyBound, NeverReused when the id was ever bound."""
        if not self.is_decided and self.directory.find(id_) is not None:
            self.directory.sync(id_)  # another client may have dropped it a moment ago
            check(Command.CREATE, id_, self.directory.find(id_))

    def readable(self, capability: ReadCapability) -> CollectionState:
        """Like `usable`, for a command without an event: the log is read to its end first.

        Errors: as `usable`, and FencedCapability.
        """
        collection = self.current(Command.SUBSCRIBE, capability)
        if collection.capabilities[capability.name].token != capability.token:
            raise FencedCapability(capability.id)
        return collection

    def writable(self, capability: WriteCapability) -> CollectionState:
        """Like `readable`, for a command that presents a write capability outside the log.

        Errors: as `usable`, and FencedCapability.
        """
        collection = self.current(Command.UPDATE, capability)
        stored = collection.capabilities.get(capability.name)
        if stored is not None and stored.token != capability.token and not self.is_decided:
            raise FencedCapability(capability.id)
        return collection

    def acquire_event(
        self, id_: CollectionId, right: Right, lease_ms: int | None, token: str
    ) -> Acquire:
        """Return an event that creates a capability."""
        return Acquire(
            collection=id_,
            capability=self.name(),
            right=right,
            lease_ms=lease_ms,
            token=token,
        )

    def acquired(self, id_: CollectionId, outcome: Outcome) -> Antichain:
        """The frontier of a new capability; empty if the collection was dropped meanwhile."""
        match outcome:
            case Acquired(at):
                return at
            case UnknownCollection():
                return EMPTY
            case _:
                raise self.refused(Command.ACQUIRE, useless_read(id_), outcome)

    def refused(
        self, command: Command, capability: Capability, outcome: Outcome
    ) -> SlackwaterError:
        """Return the error to raise for an outcome other than the expected one."""
        id_ = capability.id
        match outcome:
            case UnknownCollection():
                state = self.directory.folded(id_)
                return refusal(command, id_, state) or InvalidUsage(f"{outcome}")
            case UnknownCapability():
                return not_held(self.shards.group_state(self.shards.group_of(id_)), capability)
            case TokenMismatch():
                return FencedCapability(id_)
            case Unavailable(reason):
                return unread_error(reason)
            case Refused(reason):
                return InvalidUsage(f"collection {id_}: {reason}")
            case _:
                return InvalidUsage(f"collection {id_}: the log answers {outcome}")
