"""The controller's open subscribes as a pure state machine: what to send, what is delivered.

    ask -> sent to all replicas, or to the one that it names
    an interval that goes beyond `reached` -> what lies beyond is delivered; `reached` follows
    a replica joins, an iteration begins -> sent what is open, from `reached` on
    an error of a replica that is behind -> it is asked again, from `reached` on
    a replica is interrupted -> it is asked again; too often without progress: an error
    the client takes all before a time -> an acknowledgement to replicas, which deliver more

So each interval is delivered once, whichever replica is the first, and one that dies leaves
neither a gap nor a copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from streams.compute.protocol import Command, replica_of
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.ids import Timestamp
from streams.progress import end_of
from streams.storage.log.persistent_map import Map

OF_INTERVAL = 256
"""Bytes that an interval takes beside its updates."""

MOST_INTERRUPTIONS = 8
"""Number of times that replicas are interrupted, while none delivers, before it is an error."""


@dataclass(frozen=True, slots=True)
class OpenSubscribe:
    """A subscribe of which all before `reached` was delivered; `interruptions` since then.

    `untaken` has the upper and the bytes of what the client has not acknowledged.
    """

    subscribe: Subscribe
    reached: Timestamp
    interruptions: int = 0
    untaken: tuple[tuple[Timestamp, int], ...] = ()

    def delivered(self, batch: SubscribeBatch) -> "OpenSubscribe":
        """Return the state after an interval, which is not the last."""
        upper = batch.upper.time
        untaken = (*self.untaken, (upper, len(batch.updates) + OF_INTERVAL))
        return OpenSubscribe(self.subscribe, upper, untaken=untaken)

    def acknowledged(self, upper: Timestamp) -> "OpenSubscribe":
        """Return the state when the client has taken all before upper."""
        untaken = tuple((end, size) for end, size in self.untaken if end > upper)
        return replace(self, untaken=untaken)

    def rest(self) -> Subscribe:
        """Return a subscribe of what was not delivered yet."""
        if self.reached == self.subscribe.first:
            return self.subscribe
        as_of = Timestamp(self.reached - 1)
        return replace(self.subscribe, as_of=as_of, snapshot=False)

    def rest_of(self, replica: str) -> Subscribe:
        """Return the same for one replica."""
        return replace(self.rest(), replica=replica)


@dataclass(frozen=True, slots=True)
class OpenSubscribes:
    """The subscribes that have not ended, by uuid, and the processes of this iteration."""

    subscribes: Map[str, OpenSubscribe] = field(default_factory=Map)
    processes: frozenset[str] = frozenset()

    def ask(self, subscribe: Subscribe) -> "OpenSubscribes":
        """Return the state with one more subscribe, which is to be sent."""
        asked = OpenSubscribe(subscribe, subscribe.first)
        return replace(self, subscribes=self.subscribes.set(subscribe.uuid, asked))

    def acknowledge(
        self, uuid: str, upper: Timestamp
    ) -> tuple["OpenSubscribes", Sequence[Command]]:
        """Return the state when the client has taken all before upper, and what to send."""
        asked = self.subscribes.get(uuid)
        if asked is None:
            return self, ()
        return self._with(asked.acknowledged(upper)), (AcknowledgeSubscribe(uuid, upper),)

    def cancel(self, uuid: str) -> tuple["OpenSubscribes", Sequence[Command]]:
        """Return the state without a subscribe that nobody waits for, and what to send."""
        if uuid not in self.subscribes:
            return self, ()
        return self._without(uuid), (CancelSubscribe(uuid),)

    def begin(self) -> tuple["OpenSubscribes", Sequence[Command]]:
        """Return the state at the start of an iteration, and what to send in it."""
        rest = tuple(asked.rest() for asked in self.subscribes.values())
        return replace(self, processes=frozenset()), rest

    def heard(self, process: str) -> tuple["OpenSubscribes", Sequence[Command]]:
        """Return the state after any response of a process; it may be its first one."""
        if process in self.processes:
            return self, ()
        name = replica_of(process)
        others = (other for other in self.processes if replica_of(other) != name)
        again = tuple(
            asked.rest_of(name)
            for asked in self.subscribes.values()
            if asked.subscribe.replica in {"", name}
        )
        return replace(self, processes=frozenset((*others, process))), again

    def delivered(
        self, process: str, response: SubscribeResponse, most_untaken: int
    ) -> tuple["OpenSubscribes", SubscribeOutcome | None, Sequence[Command]]:
        """Return the state after a response, what is new in it, and what to send.

        One that is open was not canceled by us: a `DroppedAt` says nothing. It is an error if
        more than `most_untaken` bytes are there that the client has not taken.
        """
        uuid, outcome = response.uuid, response.outcome
        asked = self.subscribes.get(uuid)
        if asked is None or isinstance(outcome, DroppedAt):
            return self, None, ()
        reached = asked.reached
        match outcome:
            case SubscribeBatch(lower, upper) if lower > reached or end_of(upper) <= reached:
                return self, None, ()
            case SubscribeBatch(_, upper) if not upper.is_empty:
                return self._moved(asked, replace(outcome, lower=reached), most_untaken)
            case SubscribeError(lower) | SubscribeInterrupted(lower) if lower < reached:
                return self, None, (asked.rest_of(replica_of(process)),)
            case SubscribeInterrupted(_, message):
                return self._interrupted(asked, process, message)
            case _:
                return self._ended(asked, replace(outcome, lower=reached))

    def _moved(
        self, asked: OpenSubscribe, batch: SubscribeBatch, most_untaken: int
    ) -> tuple["OpenSubscribes", SubscribeOutcome, Sequence[Command]]:
        moved = asked.delivered(batch)
        ahead = sum(size for _, size in moved.untaken)
        if ahead > most_untaken:
            why = f"expected at most {most_untaken} bytes that are not taken, actual {ahead}"
            return self._ended(asked, SubscribeError(batch.lower, why))
        return self._with(moved), batch, ()

    def _interrupted(
        self, asked: OpenSubscribe, process: str, message: str
    ) -> tuple["OpenSubscribes", SubscribeOutcome | None, Sequence[Command]]:
        """Ask the replica again, unless none has got on for so long."""
        waiting = replace(asked, interruptions=asked.interruptions + 1)
        if waiting.interruptions == MOST_INTERRUPTIONS:
            return self._ended(asked, SubscribeError(asked.reached, message))
        return self._with(waiting), None, (asked.rest_of(replica_of(process)),)

    def _ended(
        self, asked: OpenSubscribe, outcome: SubscribeOutcome
    ) -> tuple["OpenSubscribes", SubscribeOutcome, Sequence[Command]]:
        uuid = asked.subscribe.uuid
        others = len(self.processes) > 1 and not asked.subscribe.replica
        commands = (CancelSubscribe(uuid),) if others else ()
        return self._without(uuid), outcome, commands

    def _with(self, asked: OpenSubscribe) -> "OpenSubscribes":
        return replace(self, subscribes=self.subscribes.set(asked.subscribe.uuid, asked))

    def _without(self, uuid: str) -> "OpenSubscribes":
        return replace(self, subscribes=self.subscribes.remove(uuid))
