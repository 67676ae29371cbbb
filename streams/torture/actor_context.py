"""The context of every actor: a client, a random source, a journal, and the collections."""

from dataclasses import dataclass
from random import Random

from streams.ids import CapabilityId, CollectionId
from streams.storage import Storage
from streams.storage.description import Description
from streams.torture.journal import Journal, Wrong

DESCRIPTION = Description((("writer", "VARCHAR"), ("number", "BIGINT")), kind="table")


@dataclass(frozen=True, slots=True)
class Target:
    """A collection, and the critical capabilities to it that all actors share."""

    id: CollectionId
    group: str
    read: CapabilityId
    write: CapabilityId


@dataclass(frozen=True, slots=True)
class ActorPlace:
    """An actor's place. `name` is of this incarnation: a killed actor returns as another."""

    name: str
    storage: Storage
    rng: Random
    journal: Journal
    targets: tuple[Target, ...]

    def some_target(self) -> Target:
        """Any of the collections."""
        return self.rng.choice(self.targets)

    def note_if(self, wrong: Wrong | None) -> None:
        """Record a problem, if there is one."""
        if wrong is not None:
            self.journal.note(wrong)
