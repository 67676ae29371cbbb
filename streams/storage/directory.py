"""Which group an id belongs to: a log of its own decides, and remembers for ever.

An id is bound in the log of its group, and a second Create of it in the same group finds it
there. That two clients give one id to different groups is excluded by the *registry*: a group
whose collections, the entries, hold nothing and are named after the ids, each described by the
group and the log topic that it was given to. The first in the registry's log has the id.

Who deletes the topics of a group drops the entries of its ids first (`Directory.retire`). So an
id whose entry is dropped was dropped itself, for ever; one whose entry lives and whose log is
not there has lost it: somebody else deleted the topic.

What the catalog makes has no entry before it is dropped: the catalog is a log of its own, which
numbers its objects, and nobody else gets such a name.
"""

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId
from streams.kafka.log import Truncated
from streams.storage.events import Body, Create, Drop, write_capability
from streams.storage.group import MADE_ANEW, lost
from streams.storage.lifecycle import Claimed, Command, NotBound, refusal
from streams.storage.outcomes import Created, Outcome, Unavailable
from streams.storage.sending import unread
from streams.storage.shards import Shards
from streams.storage.state import BEFORE_THE_LOG, CollectionState, forgotten

REGISTRY = "storage.ids"
"""The registry's group."""

ENTRY = "id:"
"""What the registry's own collections are called, and no other is."""

CATALOG_ID = re.compile("[suk][0-9]+")
"""The ids of sources, views and sinks, which the catalog numbers and never gives twice.

Each has a group of its own name, made by the coordinator without the registry.
"""

DELETED = "the topic is gone, and no drop of the collection is on record: what it held is lost"


@dataclass(frozen=True, slots=True)
class Entry:
    """The group that has an id, and its log topic's id when it was given to it.

    A retired one says only that the id was dropped, and that its log is gone or about to go.
    """

    group: str
    topic_id: str
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """The ids of an environment.

    `waits` is called before anything is asked of brokers: who must not wait raises there.
    """

    shards: Shards
    waits: Callable[[], None] = lambda: None

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
        self.waits()
        self.shards.make(REGISTRY)
        known = self._folded_entry(id_)
        if known is not None and (known.is_retired or known.group != group):
            raise self._given_away(id_)
        self.shards.make(group)
        topic_id = self.shards.following.group(group).topic_id
        return REGISTRY, made_entry(id_, group, topic_id)

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

        One whose topics were deleted after its drop is forgotten. The registry's own are bound
        for nobody.

        Errors: Truncated when its log is lost.
        """
        if id_.startswith(ENTRY):
            return None
        try:
            found = self.folded(id_)
        except Truncated:  # its log is gone: deleted after the drop, or lost
            if not self.leave_retired([id_]):
                raise
            found = None
        if found is not None:
            return found
        entry = self.entry(id_)
        if entry is None:
            return None
        if entry.is_retired:
            return forgotten(id_)
        self._check_log(entry)
        self.shards.open(entry.group)
        found = self.folded(id_)
        if found is None:
            self.shards.sync_group(entry.group)
            found = self.folded(id_)
        return found

    def leave_retired(self, ids: Collection[CollectionId]) -> bool:
        """Whether some of the ids are retired; the groups of these are followed no more.

        What was folded of them may be older than the drop, and their logs are gone. Asked of
        what has failed; where the registry fails too, nothing is known, and that is said.
        """
        try:
            entries = self.all_registered(ids)
        except SlackwaterError:
            return False
        retired = [
            id_
            for id_, entry in zip(ids, entries, strict=True)
            if entry is not None and entry.is_retired
        ]
        for home in filter(None, map(self.shards.following.home, retired)):
            self.shards.close(home)
        return bool(retired)

    def _check_log(self, entry: Entry) -> None:
        """Errors: Truncated when the log that the id was given to is not there any more."""
        topic_id = self.shards.identity(entry.group)
        if topic_id != entry.topic_id:
            log = self.shards.names(entry.group).log
            raise lost(log, BEFORE_THE_LOG, DELETED if topic_id is None else MADE_ANEW)

    def retire(self, group: str, ids: Collection[CollectionId]) -> None:
        """Remember that these ids were dropped, before the topics of their group are deleted.

        May be repeated; what is remembered already is not written again.

        Errors: as `Shards.submit`, and Unread when the registry has failed.
        """
        self.shards.make(REGISTRY)
        entries = {id_: self._folded_entry(id_) for id_ in ids}
        topic_id = self.shards.identity(group) or ""
        missing = [id_ for id_, entry in entries.items() if entry is None]  # the catalog's
        live = [id_ for id_, entry in entries.items() if entry is None or not entry.is_retired]
        # one after the other: a copy of the first that is sent again may come after the second
        self._write([made_entry(id_, group, topic_id) for id_ in missing])
        self._write([Drop(entry_of(id_)) for id_ in live])

    def _write(self, bodies: Sequence[Body]) -> None:
        """Errors: as `retire`."""
        for outcome in self.shards.submit([(REGISTRY, body) for body in bodies]):
            if isinstance(outcome, Unavailable):
                raise unread(outcome.reason)

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
        return "" if entry is None else entry.group

    def sync(self, id_: CollectionId) -> None:
        """Read the log of the collection to its end, if there is one, and it can tell more."""
        self.waits()
        found = self.find(id_)
        if found is not None and not found.is_dropped:
            self.shards.sync(id_)

    def folded(self, id_: CollectionId) -> CollectionState | None:
        """The collection as far as the open groups know it."""
        try:
            return self.shards.state(id_)
        except InvalidUsage:
            return None

    def entry(self, id_: CollectionId) -> Entry | None:
        """Where the id is.

        What was made without the registry has its own group. Of what the catalog makes the
        registry knows only what was dropped, so it is asked only where that group is gone.
        """
        self.waits()
        is_catalogs = CATALOG_ID.fullmatch(id_) is not None
        known = None if is_catalogs else self.registered(id_)
        if known is not None:
            return known
        own = self.shards.identity(id_)
        if own is not None:
            return Entry(id_, own)
        return self.registered(id_) if is_catalogs else None

    def registered(self, id_: CollectionId) -> Entry | None:
        """As `entry`, of what the registry knows."""
        (known,) = self.all_registered([id_])
        return known

    def all_registered(self, ids: Collection[CollectionId]) -> list[Entry | None]:
        """As `registered`, of many with one look."""
        self.waits()
        if self.shards.identity(REGISTRY) is None:
            return [None for _ in ids]
        self.shards.open(REGISTRY)
        self.shards.sync_group(REGISTRY)
        return [self._folded_entry(id_) for id_ in ids]

    def given(self, id_: CollectionId) -> str | None:
        """The group that the registry gave an id to, as far as it is followed; asks nobody."""
        following = self.shards.following
        registry = following.groups.get(following.home(entry_of(id_)) or "")
        if registry is None:
            return None
        known = registry.state.collections.get(entry_of(id_))
        return None if known is None else known.description.partition(" ")[0] or None

    def follow_registry(self) -> None:
        """Follow the registry, if there is one. If it fails, who looks an id up is told."""
        with suppress(SlackwaterError):
            if self.shards.identity(REGISTRY) is not None:
                self.shards.open(REGISTRY)

    def _folded_entry(self, id_: CollectionId) -> Entry | None:
        """As `registered`, as far as the registry is folded."""
        known = self.folded(entry_of(id_))
        if known is None:
            return None
        group, _, topic_id = known.description.partition(" ")
        return Entry(group, topic_id, is_retired=known.is_dropped)


def made_entry(id_: CollectionId, group: str, topic_id: str) -> Create:
    """The event that gives an id to a group."""
    return Create(
        collection=entry_of(id_),
        description=f"{group} {topic_id}",
        frontier=MINIMUM_TIME,
        write=write_capability(entry_of(id_)),
    )


def entry_of(id_: CollectionId) -> CollectionId:
    """The registry's collection for an id."""
    return CollectionId(f"{ENTRY}{id_}")
