"""The life cycle of an id, and the error of each command in each state. Pure.

    UNBOUND     it was not created. After a Create that was killed half-way its id may belong
                to a group already: that group can create it, another gets Claimed
    BOUND       since = upper at first; both move forward only
    SEALED      upper is empty: it cannot be written any more, and can be read
    FORGOTTEN   since is empty too: it cannot be read, and its chunks are garbage. The id alone
                is kept, so that it is never used again, even after all topics of its group
                are deleted

    command                UNBOUND    BOUND         SEALED        FORGOTTEN
    create                 ok         AlreadyBound  AlreadyBound  NeverReused
    subscribe_at           NotBound   ok            ok            Unreadable
    update_and_downgrade   NotBound   ok            Sealed        Forgotten
    acquire_capabilities   NotBound   ok            ok            ok, with empty frontiers
    the others             NotBound   ok            ok            Forgotten
    drop                   NotBound   ok            ok            ok, nothing is left to drop

A collection is forgotten once it was dropped whole and its last read capability is gone, so
other readers keep what they hold until then. A client cannot drop it whole while another holds
a write capability. Neither condition applies to the system.

A collection is sealed when its last write capability is dropped or moved to the empty frontier.
If the last one expires instead, the collection is sealed only if another writer had finished
(moved its capability to the empty frontier) and there was no write since. A sealed collection
has no write capability; presenting one raises `Sealed`.
"""

from collections.abc import Mapping
from enum import Enum

from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.storage.description import Description, loads
from streams.storage.log.state import CollectionState


class Phase(Enum):
    """The state of an id."""

    UNBOUND = "not bound"
    BOUND = "bound"
    SEALED = "sealed"
    FORGOTTEN = "forgotten"


class Command(Enum):
    """A method of Storage; `USE` stands for the four that use a capability."""

    CREATE = "create"
    SUBSCRIBE = "subscribe_at"
    UPDATE = "update_and_downgrade"
    ACQUIRE = "acquire_capabilities"
    USE = "clone, transfer, downgrade, heartbeat"
    DROP = "drop"


class NotBound(InvalidUsage):
    """The id was never bound. `group` is the group that the registry gave it to, if any."""

    def __init__(self, collection: CollectionId, group: str = "") -> None:
        super().__init__(collection, group)
        self.collection, self.group = collection, group

    def __str__(self) -> str:
        where = f" in group {self.group}, which has its id" if self.group else ""
        return f"collection {self.collection} is not bound: create it first{where}"


class Claimed(InvalidUsage):
    """The registry gave the id to another group, which has not bound it yet."""

    def __init__(self, collection: CollectionId, group: str) -> None:
        super().__init__(collection, group)
        self.collection, self.group = collection, group

    def __str__(self) -> str:
        return (
            f"collection {self.collection}: its id was given to group {self.group}, where it is"
            " not bound yet: create it there, or choose another id"
        )


class AlreadyBound(InvalidUsage):
    """The id is bound already."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return f"collection {self.collection} is bound already: choose another id"


class NeverReused(InvalidUsage):
    """The id belonged to a collection that was dropped."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} was dropped, and no id is used twice: choose another"
        )


class Sealed(InvalidUsage):
    """The upper of the collection is empty: it cannot be written to."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} is sealed and accepts no writes (its upper is empty)"
            ": read it, or create another collection"
        )


class Unreadable(InvalidUsage):
    """The since of the collection is empty: it cannot be read."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} is unreadable: it was dropped, and its since is"
            " empty: read another collection"
        )


class Forgotten(InvalidUsage):
    """The collection was dropped, and all capabilities with it."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} was dropped, with all capabilities to it: create"
            " another collection, under another id"
        )


REFUSALS: Mapping[tuple[Command, Phase], type[InvalidUsage]] = {
    **{
        (command, Phase.UNBOUND): NotBound
        for command in Command
        if command is not Command.CREATE
    },
    (Command.CREATE, Phase.BOUND): AlreadyBound,
    (Command.CREATE, Phase.SEALED): AlreadyBound,
    (Command.CREATE, Phase.FORGOTTEN): NeverReused,
    (Command.SUBSCRIBE, Phase.FORGOTTEN): Unreadable,
    (Command.UPDATE, Phase.SEALED): Sealed,
    (Command.UPDATE, Phase.FORGOTTEN): Forgotten,
    (Command.USE, Phase.FORGOTTEN): Forgotten,
}


def description_of(collection: CollectionState) -> Description:
    """Return the description of a collection. Errors: Forgotten when it has been dropped."""
    if collection.is_dropped:
        raise Forgotten(collection.id)
    return loads(collection.description)


def phase_of(collection: CollectionState | None) -> Phase:
    """Return the state of an id, given its collection, or None for one that no log knows."""
    if collection is None:
        return Phase.UNBOUND
    if collection.is_dropped:
        return Phase.FORGOTTEN
    return Phase.SEALED if collection.upper.is_empty else Phase.BOUND


def refusal(
    command: Command, id_: CollectionId, collection: CollectionState | None
) -> InvalidUsage | None:
    """Return the error for a command that the state of the id does not allow; else None."""
    kind = REFUSALS.get((command, phase_of(collection)))
    return None if kind is None else kind(id_)


def check(command: Command, id_: CollectionId, collection: CollectionState | None) -> None:
    """Raise what the table above has for the command and the state of the id."""
    usage = refusal(command, id_, collection)
    if usage is not None:
        raise usage
