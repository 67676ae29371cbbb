"""Capabilities as their holders have them, and what is answered when they do not hold.

A capability names a collection and a frontier, and is identified by `name`, which the system
has assigned: whoever presents the name has the right, and the token if it is fenced. It is a
value; a command that moves it returns another. One with an empty frontier is useless.
"""

from dataclasses import dataclass
from typing import TypeVar

from streams.errors import InvalidUsage
from streams.ids import CapabilityId, CollectionId
from streams.progress import EMPTY, Antichain
from streams.storage.events import Right
from streams.storage.lifecycle import Sealed
from streams.storage.limits import check_size
from streams.storage.state import State

LONGEST_LEASE_MS = 366 * 24 * 3_600_000
LONGEST_TOKEN = 256
"""Characters of a token: it stands in the state of its group, and in what is refused by it."""

NOBODY = CapabilityId("")
"""The name of a useless capability."""


@dataclass(frozen=True, slots=True)
class ReadCapability:
    """Since does not pass `frontier`; the collection can be read from there on."""

    id: CollectionId
    frontier: Antichain
    name: CapabilityId = NOBODY
    token: str = ""


@dataclass(frozen=True, slots=True)
class WriteCapability:
    """Upper does not pass `frontier`; the times from there on may be written."""

    id: CollectionId
    frontier: Antichain
    name: CapabilityId = NOBODY
    token: str = ""


Capability = ReadCapability | WriteCapability
Held = TypeVar("Held", bound=Capability)


class InvalidCapability(InvalidUsage):
    """The capability is not valid as presented: expired, dropped, passed on, or foreign."""

    def __init__(self, collection: CollectionId, why: str) -> None:
        super().__init__(collection, why)
        self.collection, self.why = collection, why

    def __str__(self) -> str:
        return f"capability to collection {self.collection}: {self.why}: acquire another one"


class FencedCapability(InvalidUsage):
    """Somebody else has set the token of the critical capability: this holder is a zombie."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"capability to collection {self.collection}: fenced, another token was set by"
            " whoever has taken over: stop, or acquire a capability of your own"
        )


class NotForward(InvalidUsage):
    """A frontier moves forward only."""

    def __init__(self, collection: CollectionId, held: Antichain, wanted: Antichain) -> None:
        super().__init__(collection, held, wanted)
        self.collection, self.held, self.wanted = collection, held, wanted

    def __str__(self) -> str:
        return (
            f"capability to collection {self.collection}: expected a frontier beyond"
            f" {self.held}, actual {self.wanted}"
        )


def right_of(capability: Capability) -> Right:
    """What a capability entitles to."""
    return Right.READ if isinstance(capability, ReadCapability) else Right.WRITE


def useless_read(id_: CollectionId) -> ReadCapability:
    """A read capability to nothing."""
    return ReadCapability(id_, EMPTY)


def useless_write(id_: CollectionId) -> WriteCapability:
    """A write capability to nothing."""
    return WriteCapability(id_, EMPTY)


def check_lease(lease_ms: int | None) -> None:
    """None is critical. Errors: InvalidUsage below 1 ms, TooLarge beyond 366 days."""
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
    """Why a capability that the log does not know as presented is not valid."""
    collection = state.collections[capability.id]
    if right_of(capability) is Right.WRITE and collection.upper.is_empty:
        return Sealed(capability.id)
    return InvalidCapability(capability.id, why_not(state, capability))


def why_not(state: State, capability: Capability) -> str:
    """The same in words."""
    if capability.frontier.is_empty:
        return "it has an empty frontier: a right to nothing"
    if capability.name in state.collections[capability.id].capabilities:
        return f"it is not a {right_of(capability).value.lower()} capability"
    for owner, each in state.collections.items():
        if capability.name in each.capabilities:
            return f"it is one to collection {owner}"
    return "it has expired, was dropped or passed on, or was never granted"
