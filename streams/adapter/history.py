"""History is let go as the read policies say: by two clocks, and not under a read in progress.

What went does not come back, so a policy that counts from now goes by the earlier of two
clocks, ours and the broker's (rule 27). Ours says when something may be due; then a record is
written that changes nothing, and the broker says when it was appended. How far ours was ahead
is remembered, so that a wrong clock costs a record now and then, and not one at every beat.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streams.adapter.catalog import Item
from streams.adapter.guards import Guards
from streams.adapter.objects import reading_hold
from streams.compute.reclocking import MAX_SKEW_MS
from streams.errors import SlackwaterError
from streams.storage.events import Body, Downgrade
from streams.storage.policy import RetainHistory, Retention, catalog_hold, downgrade
from streams.storage.shards import Shards
from streams.storage.state import CollectionState

log = logging.getLogger(__name__)

ASK_EVERY_S = 60.0
"""How often the broker is asked for the time while ours alone says that something is due."""

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

    def let_go(self, items: Iterable[Item]) -> None:
        """Let go of what is due. Errors: as `Shards.submit`."""
        kept = list(self._kept(items))
        now_ms = self._now(kept)
        moves: list[tuple[str, Body]] = []
        for state, policy in kept:
            moved = downgrade(state, catalog_hold(state.id), policy, now_ms)
            followed = self._follow(state, moved)
            moves += [(state.id, each) for each in (moved, followed) if each is not None]
        if moves:
            self.shards.submit(moves)

    def _kept(self, items: Iterable[Item]) -> Iterable[Kept]:
        for item in items:
            if item.kind == "sink":
                continue
            try:
                yield self.shards.state(item.id), item.policy or self.policy
            except SlackwaterError:  # it is in trouble, as SHOW says; the others go on
                continue

    def _now(self, kept: Sequence[Kept]) -> int:
        """The earlier of the two clocks; the broker is asked if something depends on it."""
        due = self._due(kept, self.now_ms())
        if due is not None:
            is_time = self._asked_at is None or self.clock() - self._asked_at > ASK_EVERY_S
            if is_time or self._due(kept, self.now_ms() - self._ahead_ms) is not None:
                self._ask(due)
        return self.now_ms() - self._ahead_ms

    def _due(self, kept: Sequence[Kept], now_ms: int) -> CollectionState | None:
        """A collection that would let history go if it were so late."""
        return next(
            (
                state
                for state, policy in kept
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
        self.shards.submit([(state.id, body)])
        skew_ms = self.shards.skew_ms(state.id)
        if abs(skew_ms) > MAX_SKEW_MS:
            log.warning(
                "our clock is not the broker's: history goes by the earlier of the two",
                extra={"ahead_ms": skew_ms},
            )
        self._ahead_ms, self._asked_at = max(0, skew_ms), self.clock()

    def _follow(self, state: CollectionState, moved: Downgrade | None) -> Downgrade | None:
        """Move our reads' hold to the catalog's, but not past a read in progress."""
        catalog = state.capabilities.get(catalog_hold(state.id))
        held = state.capabilities.get(reading_hold(state.id))
        if catalog is None or held is None:
            return None
        target = catalog.frontier if moved is None else moved.frontier
        reading = self.guards.frontier(state.id)
        if not reading.is_empty:
            target = target.meet(reading)
        if not held.frontier.strictly_precedes(target):
            return None
        return Downgrade(
            collection=state.id, capability=reading_hold(state.id), frontier=target
        )
