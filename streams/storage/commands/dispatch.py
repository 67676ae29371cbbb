"""Scheduler of commands: which may begin now, given those that are in progress. Pure.

The desk holds the records that were taken and not answered, in the order of the topic. A
*crowd* is a set of commands that are executed together. A command that may have to wait (for
chunks, for a log to be read to its end, for topic creation) is a crowd of its own, so that it
delays no other; all others run together and share one flush.

    a record waits for      because
    its group               an earlier record about the same group is in progress, or waits
    its id                  a copy is answered once the command itself is, and has no effect
    a creation, by 256      the registry's log remembers so many: `streams.storage.commands`

So commands about one group are executed in the order of the topic, and none waits for a command
about another group. A command that names collections of several groups is refused, so it delays
none of them: otherwise one waiting client could make others wait. Nor does a copy delay
anything. The group of an id is known from the followed groups and from the registry.

Slots for commands that run alone are few, and groups take turns: a group that was served after
a command arrived queues behind that command. So a client that sends many commands makes others
wait for one of them, not for all.

Within a crowd the logs decide in the order of the events. But some conditions are looked up
before the event is sent: whether an id is bound, sealed or dropped, what it holds. So a command
that changes such a condition, or reads, waits for earlier commands about its collections, and
later commands wait for one that changes a condition.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from streams.ids import CollectionId, Offset
from streams.storage.commands.dedup import Report, decides, may_wait, subjects
from streams.storage.commands.wire import Create, Request, SubscribeAt

BATCH = 256
"""Maximum of commands in a crowd. The bounds in `streams.storage.commands` depend on it."""

BATCH_BYTES = 8 << 20
"""Maximum bytes of a crowd with more than one command."""

CREATIONS = 256
"""How many creations may begin beyond the first creation that is not answered."""


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A record that is not answered. It may not overtake a record with which it shares `keys`.

    It runs alone from the start, or once it would have delayed others or failed together with
    others. `laid` is the number of lone turns that came before it. Units: `size` bytes, `due`
    monotonic seconds.
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
        """The record's offset."""
        return self.record.offset

    @property
    def decides(self) -> bool:
        """Whether later commands about its collections have to see its effect."""
        return isinstance(self.record, Request) and decides(self.record.command)

    @property
    def looks(self) -> bool:
        """Whether it has to see the effects of earlier commands about its collections."""
        asks = isinstance(self.record, Request) and isinstance(self.record.command, SubscribeAt)
        return asks or self.decides


Crowd = tuple[PendingRecord, ...]
"""Records that are executed together, in the order of the topic."""

Home = Callable[[CollectionId], str | None]
"""The group that holds a collection, or was given its id, as far as is known."""

TURNS = 4096
"""Maximum of keys whose last turn is remembered."""


@dataclass(slots=True)
class Capacity:
    """What may begin: whether a crowd of brief commands, and how many lone commands."""

    together: bool
    alone: int


@dataclass(slots=True)
class OpenCrowd:
    """A crowd being assembled, and the keys that later records may not overtake."""

    blocked: set[str]
    crowd: list[PendingRecord] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    touched: set[CollectionId] = field(default_factory=set)
    closed: set[CollectionId] = field(default_factory=set)
    size: int = 0

    def may_join(self, item: PendingRecord) -> bool:
        """Whether the record may join the crowd."""
        is_copy = f"id:{item.record.id}" in self.keys
        looks_back = item.looks and bool(item.collections & self.touched)
        is_shut = bool(item.collections & self.closed)
        is_small = self.size + item.size <= BATCH_BYTES or not self.crowd
        is_full = len(self.crowd) >= BATCH or not is_small
        return not (is_full or is_copy or looks_back or is_shut)

    def join(self, item: PendingRecord) -> None:
        """Add the record to the crowd."""
        self.crowd.append(item)
        self.size += item.size
        self.keys |= item.keys
        self.touched |= item.collections
        self.closed |= item.collections if item.decides else frozenset()


class PendingRecords:
    """The records that were taken and are not answered."""

    def __init__(self) -> None:
        self._items: dict[Offset, PendingRecord] = {}
        self._under_way: set[Offset] = set()
        self._creations = 0
        self._ids: Counter[str] = Counter()
        self._turns = 0
        self._served: dict[str, int] = {}  # key -> its last turn, the latest last
        self.size = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> Offset | None:
        """The offset of the first record that is not answered."""
        return next(iter(self._items), None)

    def lay(
        self,
        records: Iterable[tuple[Request | Report, int]],
        home: Home,
        registered: Home = lambda _: None,
        *,
        is_alone: bool,
    ) -> None:
        """Add records, each with its size.

        `home` returns the group that holds a followed collection, `registered` the one that the
        registry gave an id to.
        """
        for record, size in records:
            item = self._item(record, size, home, registered)
            item.laid = self._turns
            item.is_alone = item.is_alone or is_alone
            self._items[item.offset] = item
            self._ids[record.id] += 1
            self.size += size

    def _item(
        self, record: Request | Report, size: int, home: Home, registered: Home
    ) -> PendingRecord:
        ids = {f"id:{record.id}"} if record.id else set()
        if isinstance(record, Report) or (record.id and self._ids[record.id]):
            return PendingRecord(
                record, size, frozenset(), frozenset(ids), None, is_alone=False
            )
        about, creation = subjects(record.command), None
        followed = {collection: home(collection) for collection in about}
        # an id by itself, too: its group may come to be known between two commands
        homes = {
            collection: group or registered(collection)
            for collection, group in followed.items()
        }
        groups = {group for group in homes.values() if group is not None}
        if len({*homes.values()}) > 1:  # if a group is known, all its collections are
            about, groups = (
                frozenset(collection for collection in about if homes[collection] is None),
                set(),
            )
        keys = ids | {f"collection:{collection}" for collection in about}
        keys |= {f"group:{group}" for group in groups}
        if isinstance(record.command, Create):
            keys.add(f"group:{record.command.group}")
            creation, self._creations = self._creations, self._creations + 1
        is_alone = may_wait(record.command) or {*followed.values()} != groups
        return PendingRecord(record, size, about, frozenset(keys), creation, is_alone)

    def pick(self, now: float, room: Capacity) -> list[Crowd]:
        """Return what begins now and mark it as in progress; brief commands come first.

        Units: monotonic seconds.
        """
        under_way = (self._items[offset].keys for offset in self._under_way)
        gathering = OpenCrowd(set[str]().union(*under_way))
        alone: list[PendingRecord] = []
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

    def _turn_of(self, waiting: Sequence[PendingRecord], places: int) -> list[PendingRecord]:
        """The lone records in order of turn: by arrival, groups served since then last."""

        def behind(item: PendingRecord) -> int:
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
        waiting = (item.creation for item in self._items.values() if item.creation is not None)
        return next(waiting, 0) + CREATIONS

    def put_back(self, items: Sequence[PendingRecord], due: float) -> None:
        """Return records to the desk, each to be executed alone. Units: monotonic seconds."""
        for item in items:
            item.is_alone, item.due = True, due
            self._under_way.discard(item.offset)

    @property
    def is_under_way(self) -> bool:
        """Whether any record is in progress."""
        return bool(self._under_way)

    @property
    def span(self) -> tuple[Offset, Offset]:
        """Return the first and the last record that are not answered. There has to be one."""
        return next(iter(self._items)), next(reversed(self._items))

    def answered(self, items: Iterable[PendingRecord]) -> None:
        """Remove answered records."""
        for item in items:
            del self._items[item.offset]
            self._ids -= Counter([item.record.id])
            self._under_way.discard(item.offset)
            self.size -= item.size
