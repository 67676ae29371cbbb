"""Actors that read: snapshots at any held time, and listens resumed anywhere.

A reader clones the shared read capability under a lease that outlasts it, so from then on every
read at or beyond the clone's frontier must succeed, whatever compaction does: a refusal is as
wrong as an extra row.
"""

from dataclasses import dataclass

from streams.errors import Corrupt, Indeterminate, InvalidUsage
from streams.ids import Timestamp
from streams.progress import frontier
from streams.storage.client.handles import ReadCapability
from streams.storage.read.options import Comparison, Operator, Options
from streams.storage.read.subscription import Delivery, Subscription
from streams.torture.actor_context import ActorPlace, Target
from streams.torture.journal import Followed, ReadResult, Wrong
from streams.torture.writers import refuse

LEASE_MS = 24 * 3_600_000
"""Longer than any reader lives."""


@dataclass(slots=True)
class OpenSubscription:
    """An open subscription: its parameters and its last delivery."""

    target: Target
    held: ReadCapability
    below: int | None
    snapshot: bool
    subscription: Subscription


@dataclass(slots=True)
class Reader:
    """Reads one collection for a while, then another."""

    seat: ActorPlace
    now: OpenSubscription | None = None

    def step(self) -> None:
        """Subscribe, take a delivery, resume elsewhere, or leave.

        Errors: Determinate, Indeterminate.
        """
        try:
            self._step()
        except Indeterminate:
            self.now = None  # whether what it holds is still there is not known
            raise
        except (InvalidUsage, Corrupt) as error:
            self.now = None
            self.seat.journal.note(Wrong(self.seat.name, f"{type(error).__name__}: {error}"))

    def _step(self) -> None:
        now = self.now
        if now is None:
            self.now = self._come()
            return
        match self.seat.rng.randrange(8):
            case 0:
                self._leave(now)
            case 1:
                now.held = self._pass_on(now.held)
                self._resume(now)
            case 2:
                self._resume(now)
            case 3:
                self._let_go(now)
            case _:
                self._take(now)

    def _come(self) -> OpenSubscription:
        target, storage = self.seat.some_target(), self.seat.storage
        shared = ReadCapability(target.id, frontier(0), target.read)
        capability = storage.clone(shared, lease_ms=LEASE_MS)
        lower, upper = int(capability.frontier.time), self._upper(target)
        if upper > lower:
            capability = storage.downgrade(capability, self.seat.rng.randrange(lower, upper))
        snapshot = self.seat.rng.random() < 0.7  # noqa: PLR2004  mostly
        return self._subscribed(target, capability, capability, snapshot=snapshot)

    def _subscribed(
        self, target: Target, capability: ReadCapability, at: ReadCapability, *, snapshot: bool
    ) -> OpenSubscription:
        """Subscribe at `at`, which is `capability` or stands beyond it."""
        below = self.seat.rng.choice([None, None, 20])
        where = () if below is None else (Comparison("number", Operator.LESS, below),)
        options = Options(snapshot=snapshot, where=where)
        subscription = self.seat.storage.subscribe_at(at, options)
        return OpenSubscription(target, capability, below, snapshot, subscription)

    def _upper(self, target: Target) -> int:
        return int(self.seat.storage.shards.state(target.id).upper.time)

    def _take(self, now: OpenSubscription) -> None:
        """Take one delivery, if there is one, and record it in the journal."""
        lower = int(now.subscription.upper.time)
        delivery = now.subscription.poll()
        if delivery is None:
            return
        self._note(now, lower, delivery)
        now.snapshot = False

    def _note(self, now: OpenSubscription, lower: int, delivery: Delivery) -> None:
        updates = tuple(
            ((row["c0"], row["c1"]), row["time"], row["diff"])
            for row in delivery.updates.to_pylist()
        )
        who, id_ = self.seat.name, now.target.id
        if delivery.errors.num_rows:
            self.seat.journal.note(Wrong(who, f"errors in {id_}: {delivery.errors}"))
        if now.snapshot:
            odd = {time for _, time, _ in updates} - {lower}
            if odd:
                self.seat.journal.note(Wrong(who, f"snapshot at {lower} has times {odd}"))
            contents = tuple((row, diff) for row, _, diff in updates)
            self.seat.journal.note(ReadResult(who, id_, lower, now.below, contents))
        else:
            upper = int(delivery.upper.time)
            self.seat.journal.note(Followed(who, id_, lower, upper, now.below, updates))

    def _resume(self, now: OpenSubscription) -> None:
        """Subscribe again, between the capability's frontier and the last delivery."""
        now.subscription.cancel()
        lower = int(now.held.frontier.time)
        reached = int(now.subscription.upper.time) - 1
        at = Timestamp(self.seat.rng.randint(lower, max(lower, reached)))
        clone = self.seat.storage.downgrade(self.seat.storage.clone(now.held), at)
        self.seat.storage.drop(now.held)
        self.now = self._subscribed(
            now.target,
            clone,
            clone,
            snapshot=self.seat.rng.random() < 0.5,  # noqa: PLR2004
        )

    def _pass_on(self, capability: ReadCapability) -> ReadCapability:
        passed = self.seat.storage.transfer(capability)
        refuse(self.seat, capability)
        return passed

    def _let_go(self, now: OpenSubscription) -> None:
        """Advance since past the delivered changes, like a reader that has stored them."""
        reached = int(now.subscription.upper.time) - 1
        if not now.snapshot and reached > int(now.held.frontier.time):
            now.held = self.seat.storage.downgrade(now.held, reached)

    def _leave(self, now: OpenSubscription) -> None:
        now.subscription.cancel()
        self.seat.storage.drop(now.held)
        refuse(self.seat, now.held)
        self.now = None
