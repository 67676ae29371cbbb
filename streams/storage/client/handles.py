"""Capabilities as values that clients hold, and the errors for invalid ones.

A capability names a collection and a frontier, and is identified by `name`, which the system
assigns. Any client that presents the name, and the token if the capability is fenced, may use
it. It is a value: a command that moves it returns a new one. A capability with an empty
frontier is useless.
"""

from dataclasses import dataclass
from typing import TypeVar

from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId
from streams.progress import EMPTY, Antichain
from streams.storage.client.lifecycle import Sealed
from streams.storage.limits import check_size
from streams.storage.log.events import Right
from streams.storage.log.state import State

LONGEST_LEASE_MS = 366 * 24 * 3_600_000
LONGEST_TOKEN = 256
"""Longest token, in characters: it is part of the group's state and of error messages."""

NO_CAPABILITY = CapabilityId("")
"""The name of a useless capability."""


@dataclass(frozen=True, slots=True)
class ReadCapability:
    """A right to read from `frontier` on: since does not pass `frontier`."""

    id: CollectionId
    frontier: Antichain
    name: CapabilityId = NO_CAPABILITY
    token: str = ""


@dataclass(frozen=True, slots=True)
class WriteCapability:
    """A right to write at times from `frontier` on: upper does not pass `frontier`."""

    id: CollectionId
    frontier: Antichain
    name: CapabilityId = NO_CAPABILITY
    token: str = ""


Capability = ReadCapability | WriteCapability
Held = TypeVar("Held", bound=Capability)


class InvalidCapability(InvalidUsage):
    """The capability is invalid as presented: expired, dropped, transferred, or foreign."""

    def __init__(self, collection: CollectionId, why: str) -> None:
        super().__init__(collection, why)
        self.collection, self.why = collection, why

    def __str__(self) -> str:
        return f"capability to collection {self.collection}: {self.why}: acquire another one"


class FencedCapability(InvalidUsage):
    """Another holder has set the token of the critical capability: this holder is a zombie."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"capability to collection {self.collection}: fenced, another token was set by"
            " its new holder: stop, or acquire a capability of your own"
        )


class NotForward(InvalidUsage):
    """A downgrade has to move the frontier forward."""

    def __init__(self, collection: CollectionId, held: Antichain, wanted: Antichain) -> None:
        super().__init__(collection, held, wanted)
        self.collection, self.held, self.wanted = collection, held, wanted

    def __str__(self) -> str:
        return (
            f"capability to collection {self.collection}: expected a frontier beyond"
            f" {self.held}, actual {self.wanted}"
        )


def right_of(capability: Capability) -> Right:
    """Return the right that a capability gives."""
    return Right.READ if isinstance(capability, ReadCapability) else Right.WRITE


def useless_read(id_: CollectionId) -> ReadCapability:
    """Return a read capability to nothing."""
    return ReadCapability(id_, EMPTY)


def useless_write(id_: CollectionId) -> WriteCapability:
    """Return a write capability to nothing."""
    return WriteCapability(id_, EMPTY)


def check_lease(lease_ms: int | None) -> None:
    """Check a lease, None if critical. Errors: InvalidUsage below 1 ms; TooLarge."""
    if lease_ms is None:
        return
    if lease_ms < 1:
        raise InvalidUsage(f"lease_ms: expected 1 to {LONGEST_LEASE_MS}, actual {lease_ms}")
    what = "lease_ms (renew it by heartbeats, or make the capability critical)"
    check_size(what, LONGEST_LEASE_MS, lease_ms)


def check_token(token: str | None) -> None:
    """Errors: TooLarge when it is too long."""
    check_size("characters of the token", LONGEST_TOKEN, len(token or ""))


def not_held(state: State, capability: Capability) -> InvalidUsage:
    """Return the error for a capability that the log does not know as presented."""
    collection = state.collections[capability.id]
    if right_of(capability) is Right.WRITE and collection.upper.is_empty:
        return Sealed(capability.id)
    return InvalidCapability(capability.id, why_not(state, capability))


def why_not(state: State, capability: Capability) -> str:
    """Return the text of `not_held`."""
    if capability.frontier.is_empty:
        return "it has an empty frontier: a right to nothing"
    if capability.name in state.collections[capability.id].capabilities:
        return f"it is not a {right_of(capability).value.lower()} capability"
    for owner, collection in state.collections.items():
        if capability.name in collection.capabilities:
            return f"it is one to collection {owner}"
    return "it has expired, was dropped or passed on, or was never granted"
