"""What replicas have said of their dataflows, folded. Pure.

Several replicas may serve one instance: a dataflow's frontier is the furthest that any of them
reported, and a report of less changes nothing. Statuses are for people; the last one counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from streams.compute.protocol import (
    Frontiers,
    Hydration,
    Reconciled,
    ResponseMessage,
    Status,
)
from streams.ids import CollectionId
from streams.progress import Antichain

HYDRATING = "hydrating"
"""The state of a `Status` to which a `Hydration` belongs."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One dataflow as the replicas see it; None where none has spoken.

    There is a `hydration` only while the dataflow is hydrating.
    """

    write: Antichain | None = None
    output: Antichain | None = None
    status: Status | None = None
    hydration: Hydration | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """All dataflows. `replicas` are those that reconciled in the current iteration.

    `dropped` are the exports whose dataflow a replica has confirmed to be gone.
    """

    conditions: Mapping[CollectionId, Condition] = field(default_factory=dict)
    dropped: frozenset[CollectionId] = frozenset()
    replicas: frozenset[str] = frozenset()

    def step(self, message: ResponseMessage) -> "Observed":
        """What is known after a response."""
        match message.response:
            case Reconciled():
                return replace(self, replicas=self.replicas | {message.replica})
            case Frontiers(key, write, output):
                return self._moved(key, write, output)
            case Status(key) as status:
                before = self.conditions.get(key, Condition())
                goes_on = before.hydration if status.state == HYDRATING else None
                return self._with(key, replace(before, status=status, hydration=goes_on))
            case Hydration(key) as hydration:
                before = self.conditions.get(key, Condition())
                return self._with(key, replace(before, hydration=hydration))
            case _:
                assert_never(message.response)

    def begin(self) -> "Observed":
        """What is known when a new iteration begins: replicas have to answer again."""
        return replace(self, replicas=frozenset())

    def forget(self, key: CollectionId) -> "Observed":
        """What is known when nobody asks for an export any more."""
        conditions = {each: value for each, value in self.conditions.items() if each != key}
        return replace(self, conditions=conditions, dropped=self.dropped - {key})

    def _moved(
        self, key: CollectionId, write: Antichain | None, output: Antichain | None
    ) -> "Observed":
        before = self.conditions.get(key, Condition())
        after = replace(
            before,
            write=_furthest(before.write, write),
            output=_furthest(before.output, output),
        )
        gone = write is not None and write.is_empty and output is not None and output.is_empty
        dropped = self.dropped | {key} if gone else self.dropped
        return replace(self._with(key, after), dropped=dropped)

    def _with(self, key: CollectionId, condition: Condition) -> "Observed":
        return replace(self, conditions={**self.conditions, key: condition})


def _furthest(before: Antichain | None, now: Antichain | None) -> Antichain | None:
    if before is None or now is None:
        return now if before is None else before
    return before.join(now)
