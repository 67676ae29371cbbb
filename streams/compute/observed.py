"""What replicas have said of their dataflows, folded. Pure.

Several replicas may serve one instance: a dataflow's frontier is the furthest that any of them
reported, and a report of less changes nothing. Statuses are for people; the last one counts.

A replica is there while its last response is less than `SILENCE_S` old. Its successor, another
process of the same name, replaces it at once.

Times are seconds of the clock of whoever listens, which never goes back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from streams.compute.protocol import (
    Alive,
    Frontiers,
    Hydration,
    Reconciled,
    Response,
    ResponseMessage,
    Status,
    replica_of,
)
from streams.ids import CollectionId
from streams.progress import Antichain

HYDRATING = "hydrating"
"""The state of a `Status` to which a `Hydration` belongs."""

SILENCE_S = 10.0
"""A replica that was not heard for so long is taken to be gone; it writes more often."""

REPLACED = -math.inf
"""When a process was last heard whose successor has spoken."""


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
    """All dataflows. `dropped` are the exports of which a replica has confirmed the end.

    `heard` says when each replica process spoke last in the current iteration, which began at
    `since`; all that was said until `now` is known.
    """

    conditions: Mapping[CollectionId, Condition] = field(default_factory=dict)
    dropped: frozenset[CollectionId] = frozenset()
    heard: Mapping[str, float] = field(default_factory=dict)
    since: float = 0.0
    now: float = 0.0

    @property
    def replicas(self) -> frozenset[str]:
        """The replica processes that live."""
        return frozenset(each for each, at in self.heard.items() if self.now - at < SILENCE_S)

    @property
    def is_deserted(self) -> bool:
        """Whether no replica lives; not before they had the time to answer."""
        return not self.replicas and self.now - self.since >= SILENCE_S

    def step(self, message: ResponseMessage, now: float) -> "Observed":
        """What is known after a response that is heard now."""
        heard = _heard(self.heard, message.replica, now)
        return replace(self._said(message.response), heard=heard, now=now)

    def _said(self, response: Response) -> "Observed":
        match response:
            case Reconciled() | Alive():
                return self
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
                assert_never(response)

    def at(self, now: float) -> "Observed":
        """What is known when all responses until now were heard."""
        return replace(self, now=now)

    def begin(self, now: float) -> "Observed":
        """What is known when a new iteration begins: replicas have to answer again."""
        return replace(self, heard={}, since=now, now=now)

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


def _heard(before: Mapping[str, float], process: str, now: float) -> Mapping[str, float]:
    """A process has spoken: at its first word it replaces those of the same name.

    Should two of one name live, against the rules, both are listed from their next words on.
    """
    if process in before:
        return {**before, process: now}
    name = replica_of(process)
    replaced = {each: REPLACED for each in before if replica_of(each) == name}
    return {**before, **replaced, process: now}


def _furthest(before: Antichain | None, now: Antichain | None) -> Antichain | None:
    if before is None or now is None:
        return now if before is None else before
    return before.join(now)
