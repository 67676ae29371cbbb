"""The fold of the replicas' responses: frontiers, statuses, live replicas. Pure.

Several replicas may serve one instance: a dataflow's frontier is the furthest that any of them
reported, and an earlier one changes nothing. Statuses are for display; the last one counts.

A replica is live while its last response is less than `SILENCE_S` old. Its successor, another
process of the same name, replaces it at once.

Times are seconds of the controller's monotonic clock.
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
from streams.storage.log.persistent_map import Map

HYDRATING = "hydrating"
"""The state of a `Status` to which a `Hydration` belongs."""

SILENCE_S = 10.0
"""A replica without a response for this long counts as gone; it writes more often."""

REPLACED = -math.inf
"""The last response time of a process whose successor has responded."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one dataflow; fields are None if no replica has reported them.

    There is a `hydration` only while the dataflow is hydrating.
    """

    write: Antichain | None = None
    output: Antichain | None = None
    status: Status | None = None
    hydration: Hydration | None = None


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """All dataflows. `dropped` are the exports whose end a replica has confirmed.

    `heard` maps each replica process to the time of its last response in the current iteration,
    which began at `since`; all responses until `now` are folded. A response copies the square
    root of the conditions at most, so what thousands of dataflows report stays cheap.
    """

    conditions: Map[CollectionId, Condition] = field(default_factory=Map)
    dropped: frozenset[CollectionId] = frozenset()
    heard: Mapping[str, float] = field(default_factory=dict)
    since: float = 0.0
    now: float = 0.0

    @property
    def replicas(self) -> frozenset[str]:
        """Return the live replica processes."""
        return frozenset(
            replica for replica, at in self.heard.items() if self.now - at < SILENCE_S
        )

    @property
    def is_deserted(self) -> bool:
        """Whether no replica is live; False before they had the time to answer."""
        return not self.replicas and self.now - self.since >= SILENCE_S

    def step(self, message: ResponseMessage, now: float) -> "InstanceStatus":
        """Return the state after a response that is read now."""
        heard = _heard(self.heard, message.replica, now)
        return replace(self._said(message.response), heard=heard, now=now)

    def _said(self, response: Response) -> "InstanceStatus":
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

    def at(self, now: float) -> "InstanceStatus":
        """Return the state when all responses until now are read."""
        return replace(self, now=now)

    def begin(self, now: float) -> "InstanceStatus":
        """Return the state at the start of an iteration: replicas have to respond again."""
        return replace(self, heard={}, since=now, now=now)

    def forget(self, key: CollectionId) -> "InstanceStatus":
        """Return the state without an export that no caller asks for."""
        dropped = self.dropped - {key} if key in self.dropped else self.dropped
        return replace(self, conditions=self.conditions.remove(key), dropped=dropped)

    def _moved(
        self, key: CollectionId, write: Antichain | None, output: Antichain | None
    ) -> "InstanceStatus":
        before = self.conditions.get(key, Condition())
        after = replace(
            before,
            write=_furthest(before.write, write),
            output=_furthest(before.output, output),
        )
        gone = write is not None and write.is_empty and output is not None and output.is_empty
        dropped = self.dropped | {key} if gone else self.dropped
        return replace(self._with(key, after), dropped=dropped)

    def _with(self, key: CollectionId, condition: Condition) -> "InstanceStatus":
        return replace(self, conditions=self.conditions.set(key, condition))


def _heard(before: Mapping[str, float], process: str, now: float) -> Mapping[str, float]:
    """Record a response of a process: its first one replaces processes of the same name.

    If two of one name live, against the rules, both are listed from their next responses on.
    """
    if process in before:
        return {**before, process: now}
    name = replica_of(process)
    replaced = {former: REPLACED for former in before if replica_of(former) == name}
    return {**before, **replaced, process: now}


def _furthest(before: Antichain | None, now: Antichain | None) -> Antichain | None:
    if before is None or now is None:
        return now if before is None else before
    return before.join(now)
