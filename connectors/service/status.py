"""The status of a materialization, derived from the reports of its runs. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from connectors.runtime.runner import Status
from schemas.materializations import HEARTBEAT_S, State

WINDOW_MS = 10_000
"""Rates are of so long."""

NUMBERS_MS = 1_000
"""The interval of writing when only numbers change."""

BACKFILLING = "backfilling"
"""Running, and the endpoint has nothing yet."""

UNSETTLED = {"starting", "stopped"}
"""States of a run before it starts and after it stops, which are not shown to users."""


def reported(before: State, status: Status, begun: State) -> State:
    """The state after a report of a run. `begun` is the state at its begin: it counts on.

    Why the run before has failed is said until this one runs.
    """
    name, message = status.state, status.message
    if name in UNSETTLED:
        name, message = before.state, before.message
    elif name == "running" and status.time is None:
        name = BACKFILLING
    behind_ms = None
    if status.time is not None and status.upper is not None:
        behind_ms = max(0, status.upper - 1 - status.time)
    return replace(
        before,
        state=name,
        message=message,
        time=before.time if status.time is None else status.time,
        behind_ms=behind_ms,
        behind_rows=status.waiting,
        rows=begun.rows + status.rows,
        commits=begun.commits + status.commits,
        errors=begun.errors + status.errors,
        committed_ms=status.committed_ms or before.committed_ms,
        backfill=None if status.backfill is None else asdict(status.backfill),
        stalls=dict(status.stalls),
        dead_letters={
            place: begun.dead_letters.get(place, 0) + status.dead_letters.get(place, 0)
            for place in begun.dead_letters.keys() | status.dead_letters.keys()
        },
        left_out=before.left_out if status.time is None else dict(status.left_out),
    )


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows committed in the last seconds: (time in ms, total rows), in order."""

    points: tuple[tuple[int, int], ...] = ()

    def at(self, now_ms: int, rows: int) -> "Rate":
        """With one more point; of those out of the window the last one stays."""
        points = (*self.points, (now_ms, rows))
        old = sum(at_ms <= now_ms - WINDOW_MS for at_ms, _ in points)
        return Rate(points[max(0, old - 1) :])

    @property
    def per_s(self) -> int:
        """Rows a second."""
        if len(self.points) < 2:  # noqa: PLR2004  two ends of an interval
            return 0
        (began_ms, before), *_, (ended_ms, after) = self.points
        return max(0, round((after - before) * 1000 / max(1, ended_ms - began_ms)))


def is_due(
    written: Sequence[State], states: Sequence[State], *, since_ms: float, is_new: bool
) -> bool:
    """Whether to write the states now, `since_ms` milliseconds after the last write.

    True if a state, message or stall differs; after `NUMBERS_MS` if only numbers differ; after
    `HEARTBEAT_S` in any case, as a heartbeat. `is_new`: this process has not written yet.
    """
    if is_new or since_ms >= HEARTBEAT_S * 1000:
        return True
    if [said(state) for state in written] != [said(state) for state in states]:
        return True
    return written != states and since_ms >= NUMBERS_MS


def said(state: State) -> tuple[object, ...]:
    """The parts of a state that are written at once: its id, state, message and stalls."""
    return state.id, state.state, state.message, tuple(state.stalls.items())
