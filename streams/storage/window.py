"""The outcomes a fold remembers: of the last `WINDOW` offsets, found by event id (rule 1).

Those of commands, which a service sends on behalf of clients, are kept longer: `Kept`.

At offset o the outcome of the event at p is remembered iff p >= o - WINDOW. A copy at o of an
event at p carries `seen` < p, for its writer had folded no further. So if the outcome was
forgotten then `seen` < o - WINDOW: that is the test for a stale copy, and it needs no memory.
And only what was decided after `seen` has to be looked through: mostly nothing.

A persistent value: recording copies at most one block of a few dozen entries. What a Rollup
remembers is read from it when somebody asks: nobody does, mostly, and a thousand groups that
are opened would read millions of outcomes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count

from streams.ids import EventId, Offset
from streams.storage.outcomes import Decision
from streams.values import value

WINDOW = 1024
BLOCK = 64


@value(frozen=True, slots=True)
class Decided:
    """The event `id` was decided at `offset`."""

    id: EventId
    offset: Offset
    outcome: Decision


COMMAND = "command:"
"""What the id of an event begins with that carries out a command of a client's."""

KEPT = 4096
"""How many outcomes of such events a fold keeps, however long ago they were decided."""

QUICK_LOOKS = 32
"""Ids that are looked for in the bytes of outcomes before the ids in them are read."""

Block = dict[EventId, Decided]
Numbered = dict[EventId, tuple[int, Decided]]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What was decided through `upto`, in the order of the log, as a Rollup remembers it.

    `may_hold` says for certain that an id is not there, without reading.
    """

    upto: Offset
    read: Callable[[], tuple[Decided, ...]]
    may_hold: Callable[[EventId], bool]

    def find(self, id_: EventId) -> tuple[int, Decided] | None:
        """The last decision of this id, and how many came after it."""
        if not self.may_hold(id_):
            return None
        found = enumerate(reversed(self.read()))
        return next((place for place in found if place[1].id == id_), None)


def earlier_of(
    upto: Offset,
    read: Callable[[], tuple[Decided, ...]],
    is_in_bytes: Callable[[EventId], bool],
) -> Earlier:
    """Outcomes that lie in bytes, to be read when somebody asks.

    The bytes of an id that is among them are in those: that is a quick look, but one at all of
    them. Who asks often is answered by the ids.
    """
    asked = count()

    @cache
    def ids() -> frozenset[EventId]:
        return frozenset(each.id for each in read())

    def may_hold(id_: EventId) -> bool:
        return id_ in ids() if next(asked) >= QUICK_LOOKS else is_in_bytes(id_)

    return Earlier(upto, read, may_hold)


@value(frozen=True, slots=True)
class Window:
    """Blocks of decided events by id, oldest first; `newest` is still growing."""

    blocks: tuple[Block, ...] = ()
    newest: Block = field(default_factory=dict)
    earlier: Earlier | None = None

    def find(self, id_: EventId, seen: Offset) -> Decision | None:
        """What was decided for this event at an offset after `seen`."""
        for block in (self.newest, *reversed(self.blocks)):
            if block and _last_offset(block) <= seen:
                return None
            found = block.get(id_)
            if found is not None:
                return found.outcome if found.offset > seen else None
        if self.earlier is None or self.earlier.upto <= seen:
            return None
        place = self.earlier.find(id_)
        return place[1].outcome if place is not None and place[1].offset > seen else None

    def record(self, decided: Decided) -> "Window":
        """The window with one more outcome, and without blocks that are forgotten."""
        newest = {**self.newest}
        newest.pop(decided.id, None)  # an id that is decided anew is the last now
        newest[decided.id] = decided
        if len(newest) < BLOCK:
            return Window(self.blocks, newest, self.earlier)
        oldest = decided.offset - WINDOW
        kept = tuple(block for block in self.blocks if _last_offset(block) >= oldest)
        is_needed = self.earlier is not None and self.earlier.upto >= oldest
        return Window((*kept, newest), {}, self.earlier if is_needed else None)

    def remembered(self, at: Offset) -> Iterator[Decided]:
        """What is remembered at offset `at`, in the order of the log; of an id the last.

        So it is the same for all who fold, wherever their blocks begin.
        """
        found: Block = {}
        earlier = () if self.earlier is None else self.earlier.read()
        for decided in chain(earlier, *(each.values() for each in (*self.blocks, self.newest))):
            if decided.offset >= at - WINDOW:
                found.pop(decided.id, None)
                found[decided.id] = decided
        return iter(found.values())


def is_stale(seen: Offset, at: Offset) -> bool:
    """Whether the outcome of an earlier copy may have been forgotten at offset `at`."""
    return seen < at - WINDOW


def _last_offset(block: Block) -> Offset:
    return next(reversed(block.values())).offset


@value(frozen=True, slots=True)
class Kept:
    """The outcomes of the last `KEPT` events of commands, found by event id.

    Whoever carries out commands names its events after them. If it is killed between effect and
    answer, its successor sends the same names, and is told what became of the first (the bound
    is derived in `streams.storage.commands`). `count` is how many there were since `earlier`;
    it numbers them.
    """

    blocks: tuple[Numbered, ...] = ()
    newest: Numbered = field(default_factory=dict)
    count: int = 0
    earlier: Earlier | None = None

    def find(self, id_: EventId) -> Decision | None:
        """What was decided for this event, if it is one of the last `KEPT`."""
        for block in (self.newest, *reversed(self.blocks)):
            found = block.get(id_)
            if found is not None:
                number, decided = found
                return decided.outcome if number >= self.count - KEPT else None
        place = None if self.earlier is None else self.earlier.find(id_)
        if place is None:
            return None
        later, decided = place
        return decided.outcome if self.count + later < KEPT else None

    def record(self, decided: Decided) -> "Kept":
        """One more outcome; blocks that hold only forgotten ones go."""
        newest = {**self.newest, decided.id: (self.count, decided)}
        if len(newest) < BLOCK:
            return Kept(self.blocks, newest, self.count + 1, self.earlier)
        full = KEPT // BLOCK
        earlier = self.earlier if self.count + 1 < KEPT else None
        return Kept((*self.blocks[-full:], newest), {}, self.count + 1, earlier)

    def __iter__(self) -> Iterator[Decided]:
        """The last `KEPT`, in the order of the log."""
        room = KEPT - self.count
        if self.earlier is not None and room > 0:
            yield from self.earlier.read()[-room:]
        for block in (*self.blocks, self.newest):
            for number, decided in block.values():
                if number >= self.count - KEPT:
                    yield decided
