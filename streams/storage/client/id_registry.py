"""The id registry: a log that decides which group an id belongs to, permanently.

The log of a group binds its ids, so a second Create of an id in the same group is found there.
The *registry* keeps two clients from giving one id to different groups. It is a group too: its
collections, the entries, are named after the ids and hold no data, and their description names
the group and the log topic that got the id. The first Create in the log of the registry wins.

Before the topics of a group are deleted, the entries of its ids are dropped
(`Directory.retire`). So if the entry of an id is dropped, the id was dropped permanently. If
the entry lives and the log is gone, the log is lost: the topic was deleted externally.

Objects of the catalog have no entry until they are dropped: the catalog is a log that numbers
its objects, and such names are reserved for it. Only those in a shared group have one, without
a log topic: the coordinator makes a group that is lost again.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId
from streams.kafka.log import Truncated
from streams.storage.client.catalog_ids import CATALOG_ID, own_group
from streams.storage.client.group import MADE_ANEW, lost_records
from streams.storage.client.lifecycle import Claimed, Command, NotBound, refusal
from streams.storage.client.reserved_names import ENTRY, REGISTRY, refuse_reserved
from streams.storage.client.shards import Shards
from streams.storage.client.submit import unread_error
from streams.storage.log.events import Body, Create, Drop, write_capability
from streams.storage.log.outcomes import Created, Outcome, Unavailable
from streams.storage.log.state import BEFORE_THE_LOG, CollectionState, forgotten_collection

DELETED = "the topic is gone, and no drop of the collection is on record: what it held is lost"


@dataclass(frozen=True, slots=True)
class Entry:
    """The group that has an id, and the id of its log topic at that time, if that is fixed.

    A retired entry tells only that the id was dropped, and that its log is or will be deleted.
    """

    group: str
    topic_id: str
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """The ids of an environment and their groups.

    `waits` is called before each broker request; a caller that must not wait raises there.
    """

    shards: Shards
    waits: Callable[[], None] = lambda: None

    def claim(self, id_: CollectionId, group: str) -> tuple[str, Body]:
        """Create a group; return the event that gives it the id, which its log has yet to bind.

        Nothing is created for an id that is known to be taken.

        Errors: as `claimed`; InvalidUsage for a reserved name, and for a name that no topic can
        have.
        """
        for name in (id_, group):
            refuse_reserved(name)
        self.waits()
        self.shards.make(REGISTRY)
        entry = self._folded_entry(id_)
        if entry is not None and (entry.is_retired or entry.group != group):
            raise self._given_away(id_)
        self.shards.make(group)
        topic_id = self.shards.following.group(group).topic_id
        return REGISTRY, made_entry(id_, group, topic_id)

    def claimed(self, id_: CollectionId, outcome: Outcome) -> None:
        """Check that the id is free. Errors: AlreadyBound, Claimed, NeverReused."""
        match outcome:
            case Created():
                return
            case Unavailable(reason):
                raise unread_error(reason)
            case _:
                raise self._given_away(id_)

    def _given_away(self, id_: CollectionId) -> InvalidUsage:
        usage = refusal(Command.CREATE, id_, self.find(id_))
        return usage or Claimed(id_, self.claimant(id_))

    def find(self, id_: CollectionId) -> CollectionState | None:
        """Return the collection as folded, or None if it is not bound; opens its group.

        A collection whose topics were deleted after its drop is forgotten. The entries of the
        registry count as not bound.

        Errors: Truncated when its log is lost.
        """
        if id_.startswith(ENTRY):
            return None
        try:
            collection = self.folded(id_)
        except Truncated:  # its log is gone: deleted after the drop, or lost
            if not self.leave_retired([id_]):
                raise
            collection = None
        if collection is not None:
            return collection
        entry = self.entry(id_)
        if entry is None:
            return None
        if entry.is_retired:
            return forgotten_collection(id_)
        self._check_log(entry)
        self.shards.open(entry.group)
        collection = self.folded(id_)
        if collection is None:
            self.shards.sync_group(entry.group)
            collection = self.folded(id_)
        return collection

    def leave_retired(self, ids: Collection[CollectionId]) -> bool:
        """Stop following the groups of ids that are retired; tell whether there are any.

        The folded state of such a group may be older than its drop, and its log is gone. Called
        for groups that have failed. False if the registry fails too, since then nothing is
        known.
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
        """Errors: Truncated if the log that the id was given to no longer exists."""
        topic_id = self.shards.identity(entry.group)
        if topic_id is None or (entry.topic_id and topic_id != entry.topic_id):
            log = self.shards.names(entry.group).log
            raise lost_records(log, BEFORE_THE_LOG, DELETED if topic_id is None else MADE_ANEW)

    def give(self, id_: CollectionId, group: str) -> None:
        """Record that an object of the catalog is in a group that it shares. Idempotent.

        Errors: InvalidUsage if the id was given away before, by another catalog; as `retire`.
        """
        self.shards.make(REGISTRY)
        if self._folded_entry(id_) == Entry(group, ""):
            return
        (outcome,) = self.shards.submit([(REGISTRY, made_entry(id_, group, ""))])
        if isinstance(outcome, Unavailable):
            raise unread_error(outcome.reason)
        if not isinstance(outcome, Created):
            raise InvalidUsage(
                f"id {id_} is to be in group {group}, but was given away before, by another"
                " catalog: put its topic back, or drop the object and create it with OWN TOPIC"
            )

    def retire(self, group: str, ids: Collection[CollectionId]) -> None:
        """Record that these ids were dropped, before the topics of their group are deleted.

        The call can be repeated; it does not write again what is recorded already.

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
                raise unread_error(outcome.reason)

    def check(self, command: Command, id_: CollectionId, state: CollectionState | None) -> None:
        """Raise the error of the command in the id's state (`client.lifecycle`)."""
        usage = refusal(command, id_, state)
        if isinstance(usage, NotBound):
            raise NotBound(id_, self.claimant(id_))
        if usage is not None:
            raise usage

    def claimant(self, id_: CollectionId) -> str:
        """Return the group that the registry gave the id to; empty if there is none."""
        entry = self.registered(id_)
        return "" if entry is None else entry.group

    def sync(self, id_: CollectionId) -> None:
        """Read the log of the collection to its end, unless it is unbound or dropped."""
        self.waits()
        collection = self.find(id_)
        if collection is not None and not collection.is_dropped:
            self.shards.sync(id_)

    def folded(self, id_: CollectionId) -> CollectionState | None:
        """Return the collection as folded in the open groups; None if it is in none."""
        try:
            return self.shards.state(id_)
        except InvalidUsage:
            return None

    def entry(self, id_: CollectionId) -> Entry | None:
        """Return the group of an id; None if it has none.

        A collection that was created without the registry has a group of its own name. So have
        most objects of the catalog, and the registry is asked about those that have none.
        """
        self.waits()
        is_catalogs = CATALOG_ID.fullmatch(id_) is not None
        registered = None if is_catalogs else self.registered(id_)
        if registered is not None:
            return registered
        group = own_group(id_)
        own = self.shards.identity(group)
        if own is not None:
            return Entry(group, own)
        return self.registered(id_) if is_catalogs else None

    def registered(self, id_: CollectionId) -> Entry | None:
        """Return the registry's entry for the id; None if there is none."""
        (entry,) = self.all_registered([id_])
        return entry

    def all_registered(self, ids: Collection[CollectionId]) -> list[Entry | None]:
        """Like `registered`, for many ids with one read of the registry."""
        self.waits()
        if self.shards.identity(REGISTRY) is None:
            return [None for _ in ids]
        self.shards.open(REGISTRY)
        self.shards.sync_group(REGISTRY)
        return [self._folded_entry(id_) for id_ in ids]

    def given(self, id_: CollectionId) -> str | None:
        """The group that the registry gave the id to, as folded here; no broker request."""
        following = self.shards.following
        registry = following.groups.get(following.home(entry_of(id_)) or "")
        if registry is None:
            return None
        collection = registry.state.collections.get(entry_of(id_))
        return None if collection is None else collection.description.partition(" ")[0] or None

    def follow_registry(self) -> None:
        """Follow the registry if it exists. If it fails, each lookup of an id reports that."""
        with suppress(SlackwaterError):
            if self.shards.identity(REGISTRY) is not None:
                self.shards.open(REGISTRY)

    def _folded_entry(self, id_: CollectionId) -> Entry | None:
        """Like `registered`, from the folded state."""
        collection = self.folded(entry_of(id_))
        if collection is None:
            return None
        group, _, topic_id = collection.description.partition(" ")
        return Entry(group, topic_id, is_retired=collection.is_dropped)


def made_entry(id_: CollectionId, group: str, topic_id: str) -> Create:
    """Return the event that gives an id to a group."""
    return Create(
        collection=entry_of(id_),
        description=f"{group} {topic_id}",
        frontier=MINIMUM_TIME,
        write=write_capability(entry_of(id_)),
    )


def entry_of(id_: CollectionId) -> CollectionId:
    """Return the id of an id's entry in the registry."""
    return CollectionId(f"{ENTRY}{id_}")
