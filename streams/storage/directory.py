"""Which group an id belongs to: a log of its own decides, and remembers for ever.

An id is bound in the log of its group, and a second Create of it in the same group finds it
there. That two clients give one id to different groups is excluded by the *registry*: a group
whose collections hold nothing and are named after the ids, each described by the group and the
log topic that it was given to. The first in the registry's log has the id. It stays when a
group is deleted with all that was in it, and one made anew has another topic: no id is used
again.
"""

from dataclasses import dataclass

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId
from streams.storage.events import Body, Create, write_capability
from streams.storage.lifecycle import Command, NeverReused, refusal
from streams.storage.outcomes import Created, Outcome, Unavailable
from streams.storage.sending import unread
from streams.storage.shards import Shards
from streams.storage.state import CollectionState

REGISTRY = "storage.ids"
"""The registry's group."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The ids of an environment."""

    shards: Shards

    def claim(self, id_: CollectionId, group: str) -> tuple[str, Body]:
        """Make a group; returns the event that gives it the id, which its log has yet to bind.

        Errors: InvalidUsage for a name of ours, and for one that no topic can have.
        """
        if REGISTRY in {id_, group}:
            raise InvalidUsage(f"{REGISTRY} is the registry of ids: choose another name")
        self.shards.make(REGISTRY)
        self.shards.make(group)
        entry = entry_of(id_)
        topic_id = self.shards.following.group(group).topic_id
        body = Create(
            collection=entry,
            description=f"{group} {topic_id}",
            frontier=MINIMUM_TIME,
            write=write_capability(entry),
        )
        return REGISTRY, body

    def claimed(self, id_: CollectionId, outcome: Outcome) -> None:
        """Errors: AlreadyBound or NeverReused when the id was given away before."""
        match outcome:
            case Created():
                return
            case Unavailable(reason):
                raise unread(reason)
            case _:
                known = refusal(Command.CREATE, id_, self.find(id_))
                raise known or NeverReused(id_)

    def find(self, id_: CollectionId) -> CollectionState | None:
        """The collection as folded, its group opened if need be; None when it is not bound."""
        found = self.folded(id_)
        if found is not None:
            return found
        group = self.group_of(id_)
        if group is None:
            return None
        self.shards.open(group)
        found = self.folded(id_)
        if found is None:
            self.shards.sync_group(group)
            found = self.folded(id_)
        return found

    def folded(self, id_: CollectionId) -> CollectionState | None:
        """The collection as far as the open groups know it."""
        try:
            return self.shards.state(id_)
        except InvalidUsage:
            return None

    def group_of(self, id_: CollectionId) -> str | None:
        """The group that has the id. What was made without the registry has its own group."""
        if self.shards.identity(REGISTRY) is not None:
            self.shards.open(REGISTRY)
            self.shards.sync_group(REGISTRY)
            entry = self.folded(entry_of(id_))
            if entry is not None:
                group, _, topic_id = entry.description.partition(" ")
                return group if self.shards.identity(group) == topic_id else None
        return id_ if self.shards.identity(id_) is not None else None


def entry_of(id_: CollectionId) -> CollectionId:
    """The registry's collection for an id."""
    return CollectionId(f"id:{id_}")
