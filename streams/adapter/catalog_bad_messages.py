"""The catalog's event about bad messages of a source, and the source after it. Pure."""

from dataclasses import dataclass, replace

from streams.compute import dead_letters
from streams.compute.description import IngestionDescription
from streams.ids import CollectionId
from streams.plan.metadata import ErrorLimit, OnError


@dataclass(frozen=True, slots=True)
class BadMessages:
    """What becomes of a source's messages that cannot be decoded: its next revision."""

    id: CollectionId
    on_error: OnError
    error_limit: ErrorLimit | None
    revision: int

    def applied(self, source: IngestionDescription) -> IngestionDescription:
        """Return the source after the event; dead letters that it has stay."""
        letters = source.dead_letters
        if self.on_error == "dead_letter":
            letters = dead_letters.of(self.id)
        return replace(
            source,
            on_error=self.on_error,
            error_limit=self.error_limit,
            revision=self.revision,
            dead_letters=letters,
        )
