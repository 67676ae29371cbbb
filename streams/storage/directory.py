"""Which group an id belongs to: a log of its own decides, and remembers for ever.

An id is bound in the log of its group, and a second Create of it in the same group finds it
there. That two clients give one id to different groups is excluded by the *registry*: a group
whose collections hold nothing and are named after the ids, each described by the group and the
log topic that it was given to. The first in the registry's log has the id. It stays when a
group is deleted with all that was in it, and one made anew has another topic: no id is used
again. What the catalog makes is not in it: the catalog is a log of its own, which numbers its
objects, and nobody else gets such a name.
"""

import re
from dataclasses import dataclass

from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId
from streams.kafka.log import Truncated
from streams.storage.events import Body, Create, write_capability
from streams.storage.lifecycle import Claimed, Command, NotBound, refusal
from streams.storage.outcomes import Created, Outcome, Unavailable
from streams.storage.sending import unread
from streams.storage.shards import Shards
from streams.storage.state import CollectionState, forgotten

REGISTRY = "storage.ids"
"""The registry's group."""

ENTRY = "id:"
"""What the registry's own collections are called, and no other is."""

CATALOG_ID = re.compile("[suk][0-9]+")
"""The ids of sources, views and sinks, which the catalog numbers and never gives twice.

Each has a group of its own name, made and deleted by the coordinator without the registry.
"""


@dataclass(frozen=True, slots=True)
class Directory:
    """The ids of an environment."""

    shards: Shards

    def claim(self, id_: CollectionId, group: str) -> tuple[str, Body]:
        """Make a group; returns the event that gives it the id, which its log has yet to bind.

        Nothing is made for an id that is known to be given away.

        Errors: as `claimed`; InvalidUsage for a name of ours, and for what no topic can be.
        """
        if REGISTRY in {id_, group}:
            raise InvalidUsage(f"{REGISTRY} is the registry of ids: choose another name")
        if id_.startswith(ENTRY):
            raise InvalidUsage(f"{id_}: names with {ENTRY} are the registry's: choose another")
        for name in (id_, group):
            if CATALOG_ID.fullmatch(name):
                raise InvalidUsage(
                    f"{name}: s, u or k and a number name the catalog's sources, views and"
                    " sinks: choose another name"
                )
        self.shards.make(REGISTRY)
        given = self.folded(entry_of(id_))
        if given is not None and given.description.partition(" ")[0] not in {group, ""}:
            raise self._given_away(id_)
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
        """Errors: AlreadyBound, Claimed or NeverReused when the id was given away before."""
        match outcome:
            case Created():
                return
            case Unavailable(reason):
                raise unread(reason)
            case _:
                raise self._given_away(id_)

    def _given_away(self, id_: CollectionId) -> InvalidUsage:
        known = refusal(Command.CREATE, id_, self.find(id_))
        return known or Claimed(id_, self.claimant(id_))

    def find(self, id_: CollectionId) -> CollectionState | None:
        """The collection as folded, its group opened if need be; None when it is not bound.

        One whose group is there no more is forgotten. The registry's own are bound for nobody.
        """
        if id_.startswith(ENTRY):
            return None
        try:
            found = self.folded(id_)
        except Truncated:  # its log is gone: deleted, with all that was in it, or lost
            if not self._is_deleted(id_):
                raise
            return forgotten(id_)
        if found is not None:
            return found
        entry = self.entry(id_)
        if entry is None:
            return None
        group, topic_id = entry
        if self.shards.identity(group) != topic_id:
            return forgotten(id_)
        self.shards.open(group)
        found = self.folded(id_)
        if found is None:
            self.shards.sync_group(group)
            found = self.folded(id_)
        return found

    def _is_deleted(self, id_: CollectionId) -> bool:
        """Whether the log that the registry gave the id to is not there any more."""
        entry = self.registered(id_)
        return entry is not None and self.shards.identity(entry[0]) != entry[1]

    def check(self, command: Command, id_: CollectionId, found: CollectionState | None) -> None:
        """Errors: what the id answers to the command, as in `streams.storage.lifecycle`."""
        known = refusal(command, id_, found)
        if isinstance(known, NotBound):
            raise NotBound(id_, self.claimant(id_))
        if known is not None:
            raise known

    def claimant(self, id_: CollectionId) -> str:
        """The group that the registry gave the id to; empty when there is none."""
        entry = self.registered(id_)
        return "" if entry is None else entry[0]

    def sync(self, id_: CollectionId) -> None:
        """Read the log of the collection to its end, if there is one, and it can tell more."""
        found = self.find(id_)
        if found is not None and not found.is_dropped:
            self.shards.sync(id_)

    def folded(self, id_: CollectionId) -> CollectionState | None:
        """The collection as far as the open groups know it."""
        try:
            return self.shards.state(id_)
        except InvalidUsage:
            return None

    def entry(self, id_: CollectionId) -> tuple[str, str] | None:
        """The group that has the id, and its log topic's id when it was given to it.

        What was made without the registry has its own group.
        """
        known = self.registered(id_)
        if known is not None:
            return known
        own = self.shards.identity(id_)
        return None if own is None else (id_, own)

    def registered(self, id_: CollectionId) -> tuple[str, str] | None:
        """As `entry`, of what the registry knows."""
        if self.shards.identity(REGISTRY) is None:
            return None
        self.shards.open(REGISTRY)
        self.shards.sync_group(REGISTRY)
        entry = self.folded(entry_of(id_))
        if entry is None:
            return None
        group, _, topic_id = entry.description.partition(" ")
        return group, topic_id


def entry_of(id_: CollectionId) -> CollectionId:
    """The registry's collection for an id."""
    return CollectionId(f"{ENTRY}{id_}")
