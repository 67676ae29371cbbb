"""Threads that wait for groups to move, each woken when its condition is true.

The folding thread evaluates the predicates of threads that wait for the groups that moved, and
wakes those that came true: a record of one group costs nothing to a thread that waits for
another, and a thousand threads that wait for later times of the same group stay asleep.
Callbacks are kept by group for the same reason.

All callers hold the given lock; sleeping releases it.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

log = logging.getLogger(__name__)

Groups = Collection[str]
Callback = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A waiting thread and its predicate."""

    predicate: Callable[[], bool]
    condition: threading.Condition

    def look(self) -> None:
        """Wake the thread if its predicate is true; an exception is left to that thread."""
        try:
            is_there = self.predicate()
        except Exception:  # noqa: BLE001  the waiting thread raises it again
            is_there = True
        if is_there:
            self.condition.notify()


class Waiters:
    """The waiters of one client; those without groups are woken by every move."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._anywhere: set[Waiter] = set()
        self._of: defaultdict[str, set[Waiter]] = defaultdict(set)

    def sleep(
        self, predicate: Callable[[], bool], groups: Groups | None, seconds: float
    ) -> None:
        """Sleep until the predicate may be true for these groups, or until the timeout."""
        waiter = Waiter(predicate, threading.Condition(self._lock))
        places = list(self._places(groups))
        for place in places:
            place.add(waiter)
        try:
            waiter.condition.wait(seconds)
        finally:
            for place in places:
                place.discard(waiter)
            for name in groups or ():
                if not self._of[name]:
                    del self._of[name]

    def _places(self, groups: Groups | None) -> Iterator[set[Waiter]]:
        if groups is None:
            yield self._anywhere
        else:
            yield from (self._of[name] for name in groups)

    def moved(self, groups: Iterable[str]) -> None:
        """Groups have moved: wake the waiters whose predicates are true."""
        # a waiter for several of them looks once
        for waiter in {waiter for name in groups for waiter in self._of.get(name, ())}:
            waiter.look()
        for waiter in self._anywhere:
            waiter.condition.notify()

    def everything(self) -> None:
        """Anything may have changed: wake all waiters."""
        for waiters in (self._anywhere, *self._of.values()):
            for waiter in waiters:
                waiter.condition.notify()


class Callbacks:
    """Callbacks for moves of groups."""

    def __init__(self) -> None:
        self._of: defaultdict[str | None, list[Callback]] = defaultdict(list)

    def add(self, callback: Callback, group: str | None) -> None:
        """Call back when this group moves; without one, when any group does."""
        self._of[group].append(callback)

    def remove(self, callback: Callback, group: str | None) -> None:
        """Remove a callback."""
        self._of[group].remove(callback)
        if not self._of[group]:
            del self._of[group]

    def of(self, moved: Iterable[str]) -> tuple[Callback, ...]:
        """Return the callbacks for moves of these groups."""
        return tuple(waiter for name in (None, *moved) for waiter in self._of.get(name, ()))


def call_guarded(call: Callable[[], None]) -> None:
    """Call back; an exception is logged and affects no other callback."""
    try:
        call()
    except Exception:
        log.exception("a callback failed")
