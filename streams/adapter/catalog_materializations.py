"""The materializations of a catalog: part of its fold, pure.

A materialization is kept by a service that knows nothing of the catalog. One that was dropped
is *ending* until the service has said that it holds nothing more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streams.ids import CollectionId

LETTER = "m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialization:
    """A materialization.

    `task` is JSON: what `slackwater materialize run` reads of a file. `inputs` are the objects
    that it binds, `unbound` those that it was bound to before.
    """

    id: str
    name: str
    statement: str
    task: str
    inputs: tuple[CollectionId, ...]
    unbound: tuple[CollectionId, ...] = ()
    is_paused: bool = False

    @property
    def number(self) -> int:
        """The number in the id; later objects have greater ones."""
        return int(self.id.removeprefix(LETTER))


@dataclass(frozen=True, slots=True)
class Materialize:
    """The materialization of this id is created, or is now this."""

    materialization: Materialization


@dataclass(frozen=True, slots=True)
class Unmaterialize:
    """The materialization's name is free again; it is to hold nothing more."""

    id: str


@dataclass(frozen=True, slots=True)
class Unbind:
    """A dropped materialization holds nothing more."""

    id: str


@dataclass(frozen=True, slots=True)
class Materializations:
    """By their ids, oldest first: those there are, and those that are ending."""

    live: Mapping[str, Materialization] = field(default_factory=dict)
    ending: Mapping[str, Materialization] = field(default_factory=dict)

    def find(self, name: str) -> Materialization | None:
        """Return the one of this name, compared without case."""
        wanted = name.casefold()
        matches = (
            materialization
            for materialization in self.live.values()
            if materialization.name.casefold() == wanted
        )
        return next(matches, None)

    def binding(self, collection: CollectionId) -> tuple[Materialization, ...]:
        """Return those that bind an object, oldest first."""
        return tuple(
            materialization
            for materialization in self.live.values()
            if collection in materialization.inputs
        )

    def objection(self, body: Materialize | Unmaterialize | Unbind, next_number: int) -> str:
        """Why an event is invalid, inputs aside; empty if it is not."""
        match body:
            case Materialize(materialization):
                taken = self.find(materialization.name)
                if taken is not None and taken.id != materialization.id:
                    return f"materialization {taken.name} already exists"
                if (
                    materialization.id not in self.live
                    and materialization.number != next_number
                ):
                    return (
                        f"expected the number {next_number}, actual the id {materialization.id}"
                    )
                return ""
            case Unmaterialize(key):
                return "" if key in self.live else f"no materialization {key}"
            case Unbind(key):
                return "" if key in self.ending else f"no materialization {key} was dropped"

    def applied(self, body: Materialize | Unmaterialize | Unbind) -> "Materializations":
        """The materializations after a valid event."""
        match body:
            case Materialize(materialization):
                return replace(self, live={**self.live, materialization.id: materialization})
            case Unmaterialize(key):
                ending = {**self.ending, key: self.live[key]}
                return Materializations(without(self.live, key), ending)
            case Unbind(key):
                return replace(self, ending=without(self.ending, key))


def without(
    materializations: Mapping[str, Materialization], key: str
) -> Mapping[str, Materialization]:
    """All but one."""
    return {
        id_: materialization for id_, materialization in materializations.items() if id_ != key
    }
