"""Advances since by read policy: by the slower of two clocks, never past a read in progress.

History that is dropped is lost, so a policy that counts from now uses the earlier of two
clocks, ours and the broker's (rule 27). Ours says when something may be due; then a record is
written that changes nothing, and the broker says when it was appended. How far ours was ahead
is remembered, so that a wrong clock costs an occasional record, and not one at every tick. The
history of event times is counted from upper, whatever the policy (`streams.adapter.timelines`).

A beat looks only at collections whose group moved since the last one, that are read, that
failed, or that a clock makes due: those of a thousand that stand still cost nothing.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streams.adapter.catalog import Item
from streams.adapter.provisioning import reading_hold
from streams.adapter.read_holds import Guards
from streams.adapter.timelines import retained, timeline
from streams.adapter.timer_queue import Due
from streams.compute.reclocking import MAX_SKEW_MS
from streams.errors import SlackwaterError
from streams.ids import CollectionId
from streams.progress import Antichain
from streams.storage.client.backoff import RetryBackoff
from streams.storage.client.shards import Shards
from streams.storage.log.events import Body, Downgrade
from streams.storage.log.state import CollectionState
from streams.storage.policy import RetainHistory, Retention, catalog_hold, downgrade, due_ms

log = logging.getLogger(__name__)

ASK_EVERY_S = 60.0
"""The interval of asking the broker for the time while only our clock says that work is due."""

Kept = tuple[CollectionState, Retention]
"""A collection and its read policy."""


@dataclass(slots=True)
class History:
    """Moves the catalog's holds, and after them those of our reads; one thread.

    `policy` is that of objects which have none of their own.
    """

    shards: Shards
    guards: Guards
    policy: Retention
    now_ms: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    _ahead_ms: int = 0
    _asked_at: float | None = None
    _items: Mapping[CollectionId, Item] = field(default_factory=dict)
    _by_group: Mapping[str, Sequence[CollectionId]] = field(default_factory=dict)
    _wanted: set[CollectionId] = field(default_factory=set)
    _due_at: Due = field(default_factory=Due)
    _moved: set[str] = field(default_factory=set)
    _pauses: RetryBackoff = field(default_factory=RetryBackoff)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.shards.subscribe(self._note)

    def look_after(self, items: Iterable[Item]) -> None:
        """Apply the read policies of these objects from here on.

        Those that are new or have another policy are looked at by the next beat.
        """
        before, self._items = (
            self._items,
            {item.id: item for item in items if item.has_shard},
        )
        by_group = defaultdict[str, list[CollectionId]](list)
        for item in self._items.values():
            by_group[item.group].append(item.id)
        self._by_group = by_group
        for gone in before.keys() - self._items.keys():
            self._due_at.set(gone, None)
        changed = {id_ for id_, item in self._items.items() if before.get(id_) is not item}
        self._wanted = (self._wanted & self._items.keys()) | changed
        self._pauses.keep(self._items)

    def let_go(self) -> None:
        """Advance the sinces that are due. Errors: as `Shards.submit`; then they stay due.

        An internal error about one collection keeps no other: they are tried one by one then,
        and those at which it comes up, after pauses that grow.
        """
        self._want()
        wanted = sorted(self._wanted)
        together = [collection for collection in wanted if collection not in self._pauses]
        alone = [
            collection
            for collection in wanted
            if collection in self._pauses and self._pauses.is_due(collection)
        ]
        try:
            self._try(together)
        except SlackwaterError:
            raise
        except Exception:  # noqa: BLE001  it comes up again, at the one to blame
            alone += together
        for collection in alone:
            self._try_alone(collection)

    def _try(self, wanted: Sequence[CollectionId]) -> None:
        collections = list(self._kept([self._items[collection] for collection in wanted]))
        self._wanted -= self._move(collections)

    def _try_alone(self, wanted: CollectionId) -> None:
        try:
            self._try([wanted])
        except SlackwaterError:
            raise
        except Exception:
            log.exception("advancing since failed", extra={"id": wanted})
            self._pauses.failed(wanted)
        else:
            self._pauses.over(wanted)

    def _note(self, groups: frozenset[str]) -> None:
        with self._lock:
            self._moved |= groups

    def _want(self) -> None:
        """Find what is to be looked at."""
        with self._lock:
            moved, self._moved = self._moved, set()
        for group in moved:
            self._wanted.update(self._by_group.get(group, ()))
        self._wanted.update(self._due_at.take(self.now_ms()))

    def _move(self, collections: Sequence[Kept]) -> set[CollectionId]:
        """Move the holds; returns the collections without readers, which are done."""
        now_ms = self._now(collections)
        moves: list[tuple[str, Body]] = []
        done: set[CollectionId] = set()
        for state, policy in collections:
            moved = downgrade(state, catalog_hold(state.id), policy, now_ms)
            reading = self.guards.frontier(state.id)
            followed = self._follow(state, moved, reading)
            group = self._items[state.id].group
            moves += [(group, since) for since in (moved, followed) if since is not None]
            self._time(state, policy)
            if reading.is_empty:
                done.add(state.id)
        if moves:
            self.shards.submit(moves)
        return done

    def _kept(self, items: Iterable[Item]) -> Iterable[Kept]:
        for item in items:
            try:
                policy = retained(item.policy or self.policy, timeline(item, self._items))
                yield self.shards.state(item.id), policy
            except SlackwaterError:  # it is in trouble, as SHOW says; the others go on
                continue

    def _time(self, state: CollectionState, policy: Retention) -> None:
        """Remember when the collection is due, if it does not move before."""
        self._due_at.set(state.id, due_ms(state, catalog_hold(state.id), policy))

    def _now(self, collections: Sequence[Kept]) -> int:
        """The earlier of the two clocks; the broker is asked if something depends on it."""
        due = self._due(collections, self.now_ms())
        if due is not None:
            is_time = self._asked_at is None or self.clock() - self._asked_at > ASK_EVERY_S
            if is_time or self._due(collections, self.now_ms() - self._ahead_ms) is not None:
                self._ask(due)
        return self.now_ms() - self._ahead_ms

    def _due(self, collections: Sequence[Kept], now_ms: int) -> CollectionState | None:
        """A collection that would let history go if it were so late."""
        return next(
            (
                state
                for state, policy in collections
                if isinstance(policy, RetainHistory)
                and downgrade(state, catalog_hold(state.id), policy, now_ms) is not None
            ),
            None,
        )

    def _ask(self, state: CollectionState) -> None:
        """Learn how far our clock is ahead of the broker's, by a record that moves nothing."""
        hold = catalog_hold(state.id)
        stays = state.capabilities[hold].frontier
        body = Downgrade(collection=state.id, capability=hold, frontier=stays)
        group = self._items[state.id].group
        self.shards.submit([(group, body)])
        skew_ms = self.shards.skew_ms(group)
        if abs(skew_ms) > MAX_SKEW_MS:
            log.warning(
                "clock differs from the broker's: read policies use the earlier of the two",
                extra={"ahead_ms": skew_ms},
            )
        self._ahead_ms, self._asked_at = max(0, skew_ms), self.clock()

    def _follow(
        self, state: CollectionState, moved: Downgrade | None, reading: Antichain
    ) -> Downgrade | None:
        """Move our reads' hold to the catalog's, but not past a read in progress."""
        catalog = state.capabilities.get(catalog_hold(state.id))
        hold = state.capabilities.get(reading_hold(state.id))
        if catalog is None or hold is None:
            return None
        target = catalog.frontier if moved is None else moved.frontier
        if not reading.is_empty:
            target = target.meet(reading)
        if not hold.frontier.strictly_precedes(target):
            return None
        return Downgrade(
            collection=state.id, capability=reading_hold(state.id), frontier=target
        )
