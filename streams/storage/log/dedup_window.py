"""The outcomes that a fold remembers: those of the last `WINDOW` offsets, by event id (rule 1).

`RecentOutcomes` remembers outcomes of the command service's events for longer.

At offset o the outcome of the event at p is remembered iff p >= o - WINDOW. A copy at o of an
event at p carries `seen` < p, since its writer had folded no further. So if the outcome was
forgotten, `seen` < o - WINDOW: this test for a stale copy needs no memory. Otherwise only the
outcomes decided after `seen` have to be searched, which mostly are none.

A window is a persistent value: recording an outcome copies at most one block of a few dozen
entries. Outcomes in a Rollup are decoded lazily: lookups are rare, and opening a thousand
groups would otherwise decode millions of outcomes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count

from streams.ids import EventId, Offset
from streams.storage.log.outcomes import Decision
from streams.values import value

WINDOW = 1024
BLOCK = 64


@value(frozen=True, slots=True)
class RecordedOutcome:
    """The event `id` was decided at `offset`."""

    id: EventId
    offset: Offset
    outcome: Decision


COMMAND = "command:"
"""Prefix of the ids of events that execute a client's command."""

KEPT = 4096
"""Number of such outcomes that a fold keeps, however old they are."""

QUICK_LOOKS = 32
"""Number of ids searched for in the encoded bytes before the ids are decoded."""

Block = dict[EventId, RecordedOutcome]
Numbered = dict[EventId, tuple[int, RecordedOutcome]]


@dataclass(frozen=True, slots=True)
class RememberedOutcomes:
    """The outcomes that a Rollup remembers: decided through `upto`, in the order of the log.

    If `may_hold` is false for an id, it is not among them; that needs no decoding.
    """

    upto: Offset
    read: Callable[[], tuple[RecordedOutcome, ...]]
    may_hold: Callable[[EventId], bool]

    def find(self, id_: EventId) -> tuple[int, RecordedOutcome] | None:
        """Return the last decision of this id, and the number of decisions after it."""
        if not self.may_hold(id_):
            return None
        decisions = enumerate(reversed(self.read()))
        return next((place for place in decisions if place[1].id == id_), None)


def earlier_of(
    upto: Offset,
    read: Callable[[], tuple[RecordedOutcome, ...]],
    is_in_bytes: Callable[[EventId], bool],
) -> RememberedOutcomes:
    """Return outcomes that are decoded from bytes at the first lookup.

    An id among them occurs in the bytes. Searching the bytes is quick but linear in their
    length, so after a few lookups the ids are decoded and searched instead.
    """
    lookups = count()

    @cache
    def ids() -> frozenset[EventId]:
        return frozenset(decision.id for decision in read())

    def may_hold(id_: EventId) -> bool:
        return id_ in ids() if next(lookups) >= QUICK_LOOKS else is_in_bytes(id_)

    return RememberedOutcomes(upto, read, may_hold)


@value(frozen=True, slots=True)
class Window:
    """Blocks of decided events by id, oldest first; `newest` is still growing."""

    blocks: tuple[Block, ...] = ()
    newest: Block = field(default_factory=dict)
    earlier: RememberedOutcomes | None = None

    def find(self, id_: EventId, seen: Offset) -> Decision | None:
        """Return the decision of this event at an offset after `seen`; else None."""
        for block in (self.newest, *reversed(self.blocks)):
            if block and _last_offset(block) <= seen:
                return None
            decision = block.get(id_)
            if decision is not None:
                return decision.outcome if decision.offset > seen else None
        if self.earlier is None or self.earlier.upto <= seen:
            return None
        place = self.earlier.find(id_)
        return place[1].outcome if place is not None and place[1].offset > seen else None

    def record(self, decided: RecordedOutcome) -> "Window":
        """Return the window with one more outcome and without forgotten blocks."""
        newest = {**self.newest}
        newest.pop(decided.id, None)  # an id that is decided again becomes the last
        newest[decided.id] = decided
        if len(newest) < BLOCK:
            return Window(self.blocks, newest, self.earlier)
        oldest = decided.offset - WINDOW
        recent = tuple(block for block in self.blocks if _last_offset(block) >= oldest)
        is_needed = self.earlier is not None and self.earlier.upto >= oldest
        return Window((*recent, newest), {}, self.earlier if is_needed else None)

    def remembered(self, at: Offset) -> Iterator[RecordedOutcome]:
        """Yield the last decision of each id remembered at offset `at`, in log order.

        It is the same for all readers, wherever their blocks begin.
        """
        block: Block = {}
        earlier = () if self.earlier is None else self.earlier.read()
        for decided in chain(
            earlier, *(block.values() for block in (*self.blocks, self.newest))
        ):
            if decided.offset >= at - WINDOW:
                block.pop(decided.id, None)
                block[decided.id] = decided
        return iter(block.values())


def is_stale(seen: Offset, at: Offset) -> bool:
    """Whether the outcome of an earlier copy may have been forgotten at offset `at`."""
    return seen < at - WINDOW


def _last_offset(block: Block) -> Offset:
    return next(reversed(block.values())).offset


@value(frozen=True, slots=True)
class RecentOutcomes:
    """The outcomes of the last `KEPT` events of commands, found by event id.

    The command service names events after their commands. If it is killed between effect and
    answer, its successor sends events of the same names and gets the outcome of the first
    (`streams.storage.commands` derives the bound). `count` is the number of outcomes since
    `earlier`.
    """

    blocks: tuple[Numbered, ...] = ()
    newest: Numbered = field(default_factory=dict)
    count: int = 0
    earlier: RememberedOutcomes | None = None

    def find(self, id_: EventId) -> Decision | None:
        """Return the decision of this event if it is one of the last `KEPT`."""
        for block in (self.newest, *reversed(self.blocks)):
            decision = block.get(id_)
            if decision is not None:
                number, decided = decision
                return decided.outcome if number >= self.count - KEPT else None
        place = None if self.earlier is None else self.earlier.find(id_)
        if place is None:
            return None
        later, decided = place
        return decided.outcome if self.count + later < KEPT else None

    def record(self, decided: RecordedOutcome) -> "RecentOutcomes":
        """Return the outcomes with one more, and without blocks that are forgotten."""
        newest = {**self.newest, decided.id: (self.count, decided)}
        if len(newest) < BLOCK:
            return RecentOutcomes(self.blocks, newest, self.count + 1, self.earlier)
        full = KEPT // BLOCK
        earlier = self.earlier if self.count + 1 < KEPT else None
        return RecentOutcomes((*self.blocks[-full:], newest), {}, self.count + 1, earlier)

    def __iter__(self) -> Iterator[RecordedOutcome]:
        """Yield the last `KEPT` decisions in log order."""
        room = KEPT - self.count
        if self.earlier is not None and room > 0:
            yield from self.earlier.read()[-room:]
        for block in (*self.blocks, self.newest):
            for number, decided in block.values():
                if number >= self.count - KEPT:
                    yield decided
