"""Which commands may be carried out now, beside those that are under way. Pure.

The desk holds the records that were taken and are not answered, in the order of the topic. What
may be carried out together is a *crowd*. A command that may have to wait for something (for
chunks, for a log to be read to its end, for topics to be made) is a crowd of its own, so that
others need not wait with it; all others go together, for one flush serves them all.

    a record waits for      because
    its group               of what came before about the same group is under way, or waits
    its id                  a copy is answered once the command itself is, and has no effect
    a creation, by 256      the registry's log remembers so many: `streams.storage.commands`

So commands about one group are carried out in the order of the topic, and nobody waits for a
command about another group. One that names collections of several groups is refused: it holds
up none of them, or whoever waits could have others wait with it. Nor does a copy. Which group
an id has is known of what is followed, and of what the registry has given away.

There are few turns for those that are carried out alone, and groups take them one after the
other: one that was served since a command came goes behind that command, so whoever sends many
makes others wait for one of theirs, not for all.

Within a crowd the logs decide in the order in which they are asked. But some is looked up
before: whether an id is bound, sealed or dropped, what it holds. So a command that decides such
things, or reads, waits for what comes before about its collections, and what comes after one
that decides waits for that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from streams.ids import CollectionId, Offset
from streams.storage.commands.ledger import Report, decides, lingers, subjects
from streams.storage.commands.wire import Create, Request, SubscribeAt

BATCH = 256
"""Commands of one crowd. `streams.storage.commands` says what hangs on it."""

BATCH_BYTES = 8 << 20
"""Bytes of a crowd, if it is of more than one."""

CREATIONS = 256
"""How far a creation may be ahead of the first that is not answered, in creations."""


@dataclass(slots=True, eq=False)
class Item:
    """A record that is not answered. `keys` is what it shares with those it may not overtake.

    It is taken by itself from the start, or once it would have kept others waiting, or failed
    together with others. It was `laid` after so many turns of those alone. Units: `size` bytes,
    `due` monotonic seconds.
    """

    record: Request | Report
    size: int
    collections: frozenset[CollectionId]
    keys: frozenset[str]
    creation: int | None
    is_alone: bool
    due: float = 0.0
    laid: int = 0

    @property
    def offset(self) -> Offset:
        """Where the record lies."""
        return self.record.offset

    @property
    def decides(self) -> bool:
        """Whether what follows about its collections has to see what it did."""
        return isinstance(self.record, Request) and decides(self.record.command)

    @property
    def looks(self) -> bool:
        """Whether it has to see what came before about its collections."""
        asks = isinstance(self.record, Request) and isinstance(self.record.command, SubscribeAt)
        return asks or self.decides


Crowd = tuple[Item, ...]
"""What is carried out together, in the order of the topic."""

Home = Callable[[CollectionId], str | None]
"""The group that holds a collection, or was given its id, as far as is known."""

TURNS = 4096
"""Keys of which it is remembered when they last had a turn."""


@dataclass(slots=True)
class Room:
    """What may begin: a crowd of those who wait for nothing, and so many of one each."""

    together: bool
    alone: int


@dataclass(slots=True)
class Gathering:
    """A crowd in the making, and what those behind may not overtake."""

    blocked: set[str]
    crowd: list[Item] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    touched: set[CollectionId] = field(default_factory=set)
    closed: set[CollectionId] = field(default_factory=set)
    size: int = 0

    def may_join(self, item: Item) -> bool:
        """Whether the crowd may have this one, too."""
        is_copy = f"id:{item.record.id}" in self.keys
        looks_back = item.looks and bool(item.collections & self.touched)
        is_shut = bool(item.collections & self.closed)
        is_small = self.size + item.size <= BATCH_BYTES or not self.crowd
        is_full = len(self.crowd) >= BATCH or not is_small
        return not (is_full or is_copy or looks_back or is_shut)

    def join(self, item: Item) -> None:
        """Let it be carried out with the crowd."""
        self.crowd.append(item)
        self.size += item.size
        self.keys |= item.keys
        self.touched |= item.collections
        self.closed |= item.collections if item.decides else frozenset()


class Desk:
    """The records that were taken and are not answered."""

    def __init__(self) -> None:
        self._items: dict[Offset, Item] = {}
        self._under_way: set[Offset] = set()
        self._creations = 0
        self._ids: Counter[str] = Counter()
        self._turns = 0
        self._served: dict[str, int] = {}  # at which turn, the latest last
        self.size = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> Offset | None:
        """The first record that is not answered."""
        return next(iter(self._items), None)

    def lay(
        self,
        records: Iterable[tuple[Request | Report, int]],
        home: Home,
        given: Home = lambda _: None,
        *,
        is_alone: bool,
    ) -> None:
        """Take more records, each with its size.

        `home` tells the group of what is followed, `given` the group that was given an id.
        """
        for record, size in records:
            item = self._item(record, size, home, given)
            item.laid = self._turns
            item.is_alone = item.is_alone or is_alone
            self._items[item.offset] = item
            self._ids[record.id] += 1
            self.size += size

    def _item(self, record: Request | Report, size: int, home: Home, given: Home) -> Item:
        ids = {f"id:{record.id}"} if record.id else set()
        if isinstance(record, Report) or (record.id and self._ids[record.id]):
            return Item(record, size, frozenset(), frozenset(ids), None, is_alone=False)
        about, creation = subjects(record.command), None
        followed = {each: home(each) for each in about}
        # an id by itself, too: its group may come to be known between two commands
        homes = {each: found or given(each) for each, found in followed.items()}
        groups = {group for group in homes.values() if group is not None}
        if len({*homes.values()}) > 1:  # all of a group that is known are known to be there
            about, groups = frozenset(each for each in about if homes[each] is None), set()
        keys = ids | {f"collection:{each}" for each in about}
        keys |= {f"group:{group}" for group in groups}
        if isinstance(record.command, Create):
            keys.add(f"group:{record.command.group}")
            creation, self._creations = self._creations, self._creations + 1
        is_alone = lingers(record.command) or {*followed.values()} != groups
        return Item(record, size, about, frozenset(keys), creation, is_alone)

    def pick(self, now: float, room: Room) -> list[Crowd]:
        """What begins now; it is under way from then on. Those who wait for nothing are first.

        Units: monotonic seconds.
        """
        under_way = (self._items[each].keys for each in self._under_way)
        gathering = Gathering(set[str]().union(*under_way))
        alone: list[Item] = []
        creations = self._creations_until()
        for item in self._items.values():
            if item.offset in self._under_way:
                continue
            is_due = item.due <= now and (item.creation is None or item.creation < creations)
            if item.keys & gathering.blocked or not is_due:
                gathering.blocked |= item.keys
            elif item.is_alone and not item.keys & gathering.keys:
                alone.append(item)
                gathering.blocked |= item.keys
            elif not item.is_alone and room.together and gathering.may_join(item):
                gathering.join(item)
            else:
                gathering.blocked |= item.keys
        crowds: list[Crowd] = [(item,) for item in self._turn_of(alone, room.alone)]
        crowds[:0] = [tuple(gathering.crowd)] if gathering.crowd else []
        self._under_way.update(item.offset for crowd in crowds for item in crowd)
        return crowds

    def _turn_of(self, waiting: Sequence[Item], places: int) -> list[Item]:
        """Whose turn it is: who came first, but those served since then stand behind."""

        def behind(item: Item) -> int:
            return max([item.laid, *(self._served.get(key, 0) for key in item.keys)])

        chosen = sorted(waiting, key=behind)[:places]  # stable: in the order of the topic
        for item in chosen:
            self._turns += 1
            for key in item.keys:
                self._served.pop(key, None)
                self._served[key] = self._turns
        for key in [*self._served][:-TURNS]:
            del self._served[key]
        return chosen

    def _creations_until(self) -> int:
        waiting = (each.creation for each in self._items.values() if each.creation is not None)
        return next(waiting, 0) + CREATIONS

    def put_back(self, items: Sequence[Item], due: float) -> None:
        """These are to be carried out yet, each by itself. Units: monotonic seconds."""
        for item in items:
            item.is_alone, item.due = True, due
            self._under_way.discard(item.offset)

    @property
    def is_under_way(self) -> bool:
        """Whether anything is."""
        return bool(self._under_way)

    @property
    def span(self) -> tuple[Offset, Offset]:
        """The first and the last record that are not answered. There has to be one."""
        return next(iter(self._items)), next(reversed(self._items))

    def answered(self, items: Iterable[Item]) -> None:
        """These are done with."""
        for item in items:
            del self._items[item.offset]
            self._ids -= Counter([item.record.id])
            self._under_way.discard(item.offset)
            self.size -= item.size
