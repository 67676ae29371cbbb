"""Which open group holds a collection, without a look at every group."""

from streams.ids import CollectionId
from streams.storage.events import Create, Event
from streams.storage.group import Group
from streams.storage.outcomes import Created, Decision


class Homes:
    """The groups of one client, by the ids in them; the caller has calls take turns.

    An id is in one group; where it is in two, a group of the id's own name has it, else the
    one that came last.
    """

    def __init__(self) -> None:
        self._home: dict[CollectionId, str] = {}

    def came(self, group: Group) -> None:
        """A group is followed, with what it has folded already."""
        self._home.update(dict.fromkeys(group.state.collections, group.names.group))

    def left(self, group: Group) -> None:
        """A group is followed no more."""
        for id_ in group.state.collections:
            if self._home.get(id_) == group.names.group:
                del self._home[id_]

    def folded(self, group: Group, event: Event, outcome: Decision) -> None:
        """A record was folded: it may have made a collection."""
        if isinstance(event.body, Create) and isinstance(outcome, Created):
            self._home[event.body.collection] = group.names.group

    def find(self, id_: CollectionId) -> str | None:
        """The name of the group that holds a collection; None when none does."""
        return self._home.get(id_)
