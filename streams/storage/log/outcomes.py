"""The outcomes of events: it counted, it lost a race, or it was misuse.

A lost race is a value, never an exception. `Refused` is misuse: the event broke a rule of the
interface through no other writer's action; it changes nothing, and the writer that reads it
back raises.
"""

from dataclasses import dataclass
from enum import StrEnum

from streams.ids import CollectionId, Offset
from streams.progress import Antichain
from streams.storage.log.events import Offsets
from streams.values import value


@dataclass(frozen=True, slots=True)
class Created:
    """The id is bound; or it already was, to the same description."""


@value(frozen=True, slots=True)
class Appended:
    """Every part counts. `uppers` are the capabilities' frontiers now, in the parts' order."""

    uppers: tuple[Antichain, ...]

    @property
    def upper(self) -> Antichain:
        """The frontier of the first part's capability, usually the only one."""
        return self.uppers[0]


@dataclass(frozen=True, slots=True)
class Advanced:
    """The number of collections of the group that moved; the others were skipped (rule 14)."""

    collections: int


@dataclass(frozen=True, slots=True)
class UpperMismatch:
    """The capability was at `current`, not at the Append's lower: another writer was faster."""

    current: Antichain
    collection: CollectionId


@dataclass(frozen=True, slots=True)
class OffsetsMismatch:
    """The source binding was `current`, not what the Append continues (rule 18)."""

    current: Offsets
    collection: CollectionId


@dataclass(frozen=True, slots=True)
class Fenced:
    """A newer fingerprint has taken over: `fingerprint` (rule 24)."""

    fingerprint: str
    collection: CollectionId


@dataclass(frozen=True, slots=True)
class ChunksReclaimed:
    """The event named a chunk that the collector may have taken (rule 7)."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Updates were linked after what the Append's writer had read of the collection (rule 28).

    Or they were merged since, which looks the same.
    """

    collection: CollectionId


@dataclass(frozen=True, slots=True)
class UnknownStage:
    """The stage was linked or dropped already, or its lease expired."""

    stage: str


@dataclass(frozen=True, slots=True)
class Staged:
    """The chunks are protected until the lease ends."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The floor is raised; chunks below it that the state does not name may be deleted."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The new batch is current."""


@dataclass(frozen=True, slots=True)
class BatchesChanged:
    """A batch to be replaced was no longer current (rule 9)."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The capability is live, at `frontier`."""

    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Cloned:
    """The clone is live, at `frontier`."""

    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Transferred:
    """The capability is live under its new id only, at `frontier`."""

    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Downgraded:
    """The capability is at `frontier`, which may be beyond the requested one."""

    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Dropped:
    """The capability or the collection is gone; or was already."""


@dataclass(frozen=True, slots=True)
class RolledUp:
    """The Rollup is the newest. Records up to `truncate` are no longer needed (rule 8)."""

    truncate: Offset


@dataclass(frozen=True, slots=True)
class RollupSuperseded:
    """A newer Rollup exists already."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The writer's `seen` is before the remembered outcomes: this copy is void (rule 1)."""


@dataclass(frozen=True, slots=True)
class WrongGroup:
    """The event was meant for another group's log, most likely a deleted one of this name."""

    expected: str


@dataclass(frozen=True, slots=True)
class UnknownCollection:
    """No such collection, or it was dropped."""

    collection: CollectionId


@dataclass(frozen=True, slots=True)
class UnknownCapability:
    """No such capability, or it was dropped or has expired."""

    capability: str


@dataclass(frozen=True, slots=True)
class TokenMismatch:
    """The capability is fenced by `token`, which is not the one that was presented."""

    token: str


class Misuse(StrEnum):
    """Which rule an event broke.

    The texts are part of a state and of its hash, so they are never changed, and name nothing
    that the event itself does not say.
    """

    NO_PARTS = "an append has at least one part"
    BOUNDS = "an append's lower is before its upper"
    HALF_A_BINDING = "an append has both from and to offsets, or neither"
    BACKWARD_OFFSETS = "offsets of a source go forward only"
    DROPPED_ID = "an id that was dropped is not used again"
    OTHER_DESCRIPTION = "an id is bound to one description"
    OTHER_RIGHT = "a capability's kind does not change"
    EMPTY_DOWNGRADE = "a capability is downgraded to a time, or dropped"
    NOT_DISTINCT = "a replace names batches, each once"
    GAP = "a replace names contiguous batches"
    BEYOND_SINCE = "a replace advances times to since at most"
    BEYOND_UPPER = "a replace stays below upper"
    MID_STRETCH = "a rollup covers the log up to the end of a stretch"
    TAKEN_NAME = "a capability is given a name that none has"
    FENCED_LEASE = "a token fences a critical capability only"
    BACKWARD_DOWNGRADE = "a token is set together with a frontier that was not passed yet"
    OTHER_WRITERS = "a collection is given up when nobody else may write to it"


@dataclass(frozen=True, slots=True)
class Refused:
    """Misuse; `reason` says which rule was broken."""

    reason: Misuse


Decision = (
    Created
    | Appended
    | Advanced
    | UpperMismatch
    | OffsetsMismatch
    | Fenced
    | ChunksReclaimed
    | Overtaken
    | UnknownStage
    | Staged
    | Reclaimed
    | Replaced
    | BatchesChanged
    | Acquired
    | Cloned
    | Transferred
    | Downgraded
    | Dropped
    | RolledUp
    | RollupSuperseded
    | Stale
    | WrongGroup
    | UnknownCollection
    | UnknownCapability
    | TokenMismatch
    | Refused
)
"""The outcome of an event in the fold."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The outcome cannot be read: the group has failed; others may continue.

    Whether the event counted is unknown.
    """

    reason: str


Outcome = Decision | Unavailable
"""The outcome of an event for the client that submitted it."""
