"""Runs the materializations of an environment, from storage alone.

It follows the table of specifications, has a `TaskSupervisor` for each, and writes the table of
states, which it owns: of two services the newer one goes on, and fences the older one's tasks
in their endpoints too, by its newer sessions.
"""

import logging
from collections.abc import Callable, Mapping

from connectors.runtime.runner import Stopping
from connectors.service.status import is_due
from connectors.service.supervisor import Opened, TaskSupervisor
from schemas.materializations import (
    KIND,
    SPEC_COLUMNS,
    SPECS,
    STATE_COLUMNS,
    STATES,
    Spec,
    State,
    read_all,
)
from streams.errors import Determinate, SlackwaterError
from streams.ids import MINIMUM_TIME, Timestamp
from streams.storage.client.shards import Shards
from streams.storage.description import Description
from streams.storage.small_table import SmallTable, TakenOver

log = logging.getLogger(__name__)

WAIT_MS = 200
RETRY_S = 1.0
END_S = 10.0
"""How long tasks may take to stop: each finishes its current endpoint call."""


class Service:
    """A service. One thread."""

    def __init__(
        self,
        shards: Shards,
        opened: Opened,
        *,
        owner: str,
        now_ms: Callable[[], int],
        crash: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`owner` names this process for users."""
        self._shards, self._opened, self._owner = shards, opened, owner
        self._now_ms, self._crash = now_ms, crash
        self._specs = SmallTable(shards, SPECS, Description(SPEC_COLUMNS, kind=KIND))
        self._states = SmallTable(shards, STATES, Description(STATE_COLUMNS, kind=KIND))
        self._keepers: dict[str, TaskSupervisor] = {}
        self._unreadable: Mapping[str, str] = {}
        """What is wrong with specifications, by the materialization's id."""
        self._read: Timestamp | None = None
        self._written: list[State] = []
        self._written_ms: int | None = None

    def run(self, stopping: Stopping) -> None:
        """Run until told to stop.

        Errors: TakenOver by another service; Determinate if only a new process helps.
        """
        try:
            while not stopping.is_set():
                if not self.is_alive:
                    raise Determinate(f"collections cannot be followed: {self._shards.defect}")
                self._beat(stopping)
        finally:
            self._end()

    @property
    def is_alive(self) -> bool:
        """Whether collections can be followed; if not, only a new process helps."""
        return self._shards.defect is None

    @property
    def is_ready(self) -> bool:
        """Whether this process runs the materializations of its namespace."""
        return self._states.is_owned

    def _beat(self, stopping: Stopping) -> None:
        try:
            if not self._states.is_owned:
                self._states.own()
            self._follow()
            self._say()
            self._specs.wait(self._read or MINIMUM_TIME, WAIT_MS)
        except TakenOver:
            raise
        except SlackwaterError as error:
            log.warning("materializations: retrying", extra={"cause": str(error)})
            stopping.wait(RETRY_S)

    def _follow(self) -> None:
        """Have all materializations kept as their specifications want it."""
        if not self._specs.find() or self._specs.upper == self._read:
            return
        upper = self._specs.upper
        specs, self._unreadable = read_all(self._specs.rows(), Spec.of)
        for problem in self._unreadable.values():
            log.warning("skipping an unreadable specification", extra={"cause": problem})
        for id_ in self._keepers.keys() - specs.keys():
            self._keepers.pop(id_).want(None)
        for id_, spec in specs.items():
            if id_ in self._keepers:
                self._keepers[id_].want(spec)
            else:
                self._keepers[id_] = self._keeper(spec)
        self._read = upper

    def _keeper(self, spec: Spec) -> TaskSupervisor:
        return TaskSupervisor(
            spec,
            self._shards,
            self._opened,
            owner=self._owner,
            now_ms=self._now_ms,
            crash=self._crash,
        )

    def _say(self) -> None:
        """Write how all are, if that is due."""
        now_ms = self._now_ms()
        states = [keeper.state(now_ms) for _, keeper in sorted(self._keepers.items())]
        states += [
            State(id=id_, state="failed", message=problem, owner=self._owner)
            for id_, problem in sorted(self._unreadable.items())
            if id_
        ]
        since_ms = now_ms - (self._written_ms or 0)
        is_new = self._written_ms is None
        if is_due(self._written, states, since_ms=since_ms, is_new=is_new):
            self._states.write([state.row() for state in states])
            self._written, self._written_ms = states, now_ms

    def _end(self) -> None:
        for keeper in self._keepers.values():
            keeper.want(None)
        deadline_ms = self._now_ms() + int(END_S * 1000)
        for keeper in self._keepers.values():
            keeper.join(max(0, deadline_ms - self._now_ms()) / 1000)
