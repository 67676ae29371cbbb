"""Threads that wait for groups to move, each woken when what it waits for is there.

Who folds looks at the predicates of those that wait for the groups that moved, and wakes the
ones that came true: a record of one group costs nothing to who waits for another, and a
thousand threads that wait for later times of the same group sleep on. Callbacks are kept by
group for the same reason.

The lock that is given is held by all callers; sleeping releases it.
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
    """One thread, and what it waits for."""

    predicate: Callable[[], bool]
    condition: threading.Condition

    def look(self) -> None:
        """Wake the thread if there is something to see; an error is its own to find."""
        try:
            is_there = self.predicate()
        except Exception:  # noqa: BLE001  it is raised again where it belongs, in the thread
            is_there = True
        if is_there:
            self.condition.notify()


class Waiting:
    """The waiters of one client; those that name no group are woken whatever moves."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._anywhere: set[Waiter] = set()
        self._of: defaultdict[str, set[Waiter]] = defaultdict(set)

    def sleep(
        self, predicate: Callable[[], bool], groups: Groups | None, seconds: float
    ) -> None:
        """Sleep until the predicate may have come true, of these groups, or so long."""
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
        """Groups have moved: wake who sees what it waits for."""
        # who waits for many of them looks once
        for waiter in {each for name in groups for each in self._of.get(name, ())}:
            waiter.look()
        for waiter in self._anywhere:
            waiter.condition.notify()

    def everything(self) -> None:
        """Anything may have changed: wake everybody."""
        for waiters in (self._anywhere, *self._of.values()):
            for waiter in waiters:
                waiter.condition.notify()


class Callbacks:
    """Whom to call when groups move."""

    def __init__(self) -> None:
        self._of: defaultdict[str | None, list[Callback]] = defaultdict(list)

    def add(self, callback: Callback, group: str | None) -> None:
        """Call back when this group moves; without one, when any does."""
        self._of[group].append(callback)

    def remove(self, callback: Callback, group: str | None) -> None:
        """Call back no more."""
        self._of[group].remove(callback)
        if not self._of[group]:
            del self._of[group]

    def of(self, moved: Iterable[str]) -> tuple[Callback, ...]:
        """Those to call when these groups have moved."""
        return tuple(each for name in (None, *moved) for each in self._of.get(name, ()))


def guarded(call: Callable[[], None]) -> None:
    """Call back; an error there concerns nobody else, and is logged."""
    try:
        call()
    except Exception:
        log.exception("a callback failed")
