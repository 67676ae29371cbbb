"""The life cycle of an id, and what each of its states answers each command. Pure.

    UNBOUND     nobody has created it. A group may have its id already, of a Create that was
                killed half-way: in that group it can be created, in another it is Claimed
    BOUND       since = upper at first; both move forward only
    SEALED      upper is empty: it cannot be written any more, and can be read
    FORGOTTEN   since is empty too: nobody can read it, its chunks are given back, and nothing
                is kept but the id, so that it is never used again; not even when all topics
                of its group are deleted

    command                UNBOUND    BOUND         SEALED        FORGOTTEN
    create                 ok         AlreadyBound  AlreadyBound  NeverReused
    subscribe_at           NotBound   ok            ok            Unreadable
    update_and_downgrade   NotBound   ok            Sealed        Forgotten
    acquire_capabilities   NotBound   ok            ok            ok, with empty frontiers
    the others             NotBound   ok            ok            Forgotten
    drop                   NotBound   ok            ok            ok, nothing is left to drop

A collection is forgotten after it was dropped whole, when its last read capability is gone:
what others hold is theirs until then. It is not dropped whole while anybody else may write to
it. The system may do without either.

A collection is sealed when its last write capability is given up. If its lease ends instead,
it is only sealed if another writer has finished, by moving its own to the empty frontier, and
nobody has written since. A write capability of a sealed collection is gone, and whoever
presents it is told `Sealed`.
"""

from collections.abc import Mapping
from enum import Enum

from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.storage.description import Description, loads
from streams.storage.state import CollectionState


class Phase(Enum):
    """Where in its life an id is."""

    UNBOUND = "not bound"
    BOUND = "bound"
    SEALED = "sealed"
    FORGOTTEN = "forgotten"


class Command(Enum):
    """What may be asked of Storage, by the names of its methods; `USE` is the four others."""

    CREATE = "create"
    SUBSCRIBE = "subscribe_at"
    UPDATE = "update_and_downgrade"
    ACQUIRE = "acquire_capabilities"
    USE = "clone, transfer, downgrade, heartbeat"
    DROP = "drop"


class NotBound(InvalidUsage):
    """The id was never bound; `group`, if any, is the one that it was given to."""

    def __init__(self, collection: CollectionId, group: str = "") -> None:
        super().__init__(collection, group)
        self.collection, self.group = collection, group

    def __str__(self) -> str:
        where = f" in group {self.group}, which has its id" if self.group else ""
        return f"collection {self.collection} is not bound: create it first{where}"


class Claimed(InvalidUsage):
    """The id was given to another group, where nobody has bound it yet."""

    def __init__(self, collection: CollectionId, group: str) -> None:
        super().__init__(collection, group)
        self.collection, self.group = collection, group

    def __str__(self) -> str:
        return (
            f"collection {self.collection}: its id was given to group {self.group}, where it is"
            " not bound yet: create it there, or choose another id"
        )


class AlreadyBound(InvalidUsage):
    """The id is bound: it cannot be given to another collection."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return f"collection {self.collection} is bound already: choose another id"


class NeverReused(InvalidUsage):
    """The id was bound once and dropped."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} was dropped, and no id is used twice: choose another"
        )


class Sealed(InvalidUsage):
    """Upper is empty."""

    def __init__(self, collection: CollectionId) -> None:
        super().__init__(collection)
        self.collection = collection

    def __str__(self) -> str:
        return (
            f"collection {self.collection} is sealed: its upper is empty, nobody may write:"
            " read it, or create another collection"
        )


class Unreadable(InvalidUsage):
    """Since is empty."""

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
    **{(each, Phase.UNBOUND): NotBound for each in Command if each is not Command.CREATE},
    (Command.CREATE, Phase.BOUND): AlreadyBound,
    (Command.CREATE, Phase.SEALED): AlreadyBound,
    (Command.CREATE, Phase.FORGOTTEN): NeverReused,
    (Command.SUBSCRIBE, Phase.FORGOTTEN): Unreadable,
    (Command.UPDATE, Phase.SEALED): Sealed,
    (Command.UPDATE, Phase.FORGOTTEN): Forgotten,
    (Command.USE, Phase.FORGOTTEN): Forgotten,
}


def described(collection: CollectionState) -> Description:
    """The description of a collection, of which nothing is left when it was dropped meanwhile.

    Errors: Forgotten.
    """
    if collection.is_dropped:
        raise Forgotten(collection.id)
    return loads(collection.description)


def phase_of(collection: CollectionState | None) -> Phase:
    """Where the id of this collection is, None when no log knows it."""
    if collection is None:
        return Phase.UNBOUND
    if collection.is_dropped:
        return Phase.FORGOTTEN
    return Phase.SEALED if collection.upper.is_empty else Phase.BOUND


def refusal(
    command: Command, id_: CollectionId, collection: CollectionState | None
) -> InvalidUsage | None:
    """What the id answers to a command that its state does not allow."""
    kind = REFUSALS.get((command, phase_of(collection)))
    return None if kind is None else kind(id_)


def check(command: Command, id_: CollectionId, collection: CollectionState | None) -> None:
    """Errors: what the id's state answers to the command, as in the table above."""
    found = refusal(command, id_, collection)
    if found is not None:
        raise found
