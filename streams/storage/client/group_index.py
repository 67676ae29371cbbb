"""An index of open groups by collection."""

from streams.ids import CollectionId
from streams.storage.client.group import Group
from streams.storage.log.events import Create, Event
from streams.storage.log.outcomes import Created, Decision


class GroupIndex:
    """The groups of one client by the ids in them; the caller serialises calls.

    An id is in one group; if it is in two, the group of the id's own name has it, else the
    newer one.
    """

    def __init__(self) -> None:
        self._home: dict[CollectionId, str] = {}

    def came(self, group: Group) -> None:
        """Add a group with its folded state."""
        self._home.update(dict.fromkeys(group.state.collections, group.names.group))

    def left(self, group: Group) -> None:
        """Remove a group."""
        for id_ in group.state.collections:
            if self._home.get(id_) == group.names.group:
                del self._home[id_]

    def folded(self, group: Group, event: Event, outcome: Decision) -> None:
        """Update the index after a record: it may have created a collection."""
        if isinstance(event.body, Create) and isinstance(outcome, Created):
            self._home[event.body.collection] = group.names.group

    def find(self, id_: CollectionId) -> str | None:
        """Return the name of the group that holds a collection; None if none does."""
        return self._home.get(id_)
