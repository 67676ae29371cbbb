"""Subscribes: the contents of a collection and then its changes, which replicas deliver.

A replica delivers contiguous intervals [lower, upper) of times, each with the updates at these
times, as soon as the collection is complete before upper. The first interval begins at the
as_of if there is a snapshot, which is the contents at the as_of, and else behind it. The last
one has the empty upper: the collection is complete, or `until` is reached.

The delivery ends with an error at the first time at which the collection, or an expression of
the plan over a row, is in error, behind all updates of earlier times. It ends with `DroppedAt`
once it is canceled. What a retry may heal is no error: a replica that has tried a few times
says that it is interrupted, and goes on when it is asked again.

A replica delivers about `max_unacknowledged_bytes` ahead of what was acknowledged, and may
leave out what was acknowledged before it delivered it itself.
"""

from dataclasses import dataclass

from streams.ids import CollectionId, Timestamp
from streams.progress import Antichain


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Command: deliver a collection of `group` from its shard.

    `plan` is the JSON of a `streams.plan.physical.Dataflow` over the collection as its one
    import, of `Source` and `Linear` nodes alone; `project` are its columns that are delivered.
    `until` is the first time that is not delivered. `replica` names the one that delivers;
    empty: every replica does.
    """

    uuid: str
    collection: CollectionId
    group: str
    as_of: Timestamp
    plan: str
    project: tuple[int, ...]
    snapshot: bool = True
    until: Timestamp | None = None
    replica: str = ""

    @property
    def first(self) -> Timestamp:
        """Return the lower of its first interval."""
        return self.as_of if self.snapshot else Timestamp(self.as_of + 1)


@dataclass(frozen=True, slots=True)
class AcknowledgeSubscribe:
    """Command: all updates before `upper` have been taken. Ignored if it is not open."""

    uuid: str
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class CancelSubscribe:
    """Command: nothing more is wanted. Ignored if it has ended."""

    uuid: str


@dataclass(frozen=True, slots=True)
class SubscribeBatch:
    """The updates at the times [lower, upper), consolidated.

    `updates` is an Arrow IPC stream of `c0 .. cn, time, diff` in the order of times, with
    `count` rows, or nothing if there are none. Rows before `lower` do not count: another
    replica delivered them.
    """

    lower: Timestamp
    upper: Antichain
    count: int
    updates: bytes


@dataclass(frozen=True, slots=True)
class SubscribeError:
    """Why there is nothing at `lower` and behind it."""

    lower: Timestamp
    message: str


@dataclass(frozen=True, slots=True)
class SubscribeInterrupted:
    """Why nothing could be read from `lower` on so far: a retry, here or elsewhere, may."""

    lower: Timestamp
    message: str


@dataclass(frozen=True, slots=True)
class DroppedAt:
    """It was canceled, when all before `lower` had been delivered."""

    lower: Timestamp


SubscribeOutcome = SubscribeBatch | SubscribeError | SubscribeInterrupted | DroppedAt


@dataclass(frozen=True, slots=True)
class SubscribeResponse:
    """Response: a part of what a replica delivers to a subscribe."""

    uuid: str
    outcome: SubscribeOutcome
