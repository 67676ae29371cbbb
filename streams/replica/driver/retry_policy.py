"""Classifies failures of dataflows: when to retry, and whether in isolation. Pure.

A failure has a *place*: the frontier of the dataflow's state, and the slice of its build. It is
over only when the dataflow has passed that place: a rebuild that succeeds up to the place where
a step failed proves nothing about the step.

If a whole micro-batch is lost because a task was killed or never ended, one of its dataflows is
the cause, but it is unknown which. So each of them is a *suspect*: it is stepped in
micro-batches of its own until it has passed the place. A dataflow whose micro-batch is lost
when it is alone is *convicted*: it is retried after growing pauses, and has to make more steps
alone each time before it shares a micro-batch again.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

Place = tuple[int, int]
"""The time of a frontier, and a number of slices."""

NOWHERE: Place = (-1, 0)


class Kind(Enum):
    """The kind of a failure."""

    FAILED = auto()
    """A failure of one dataflow: it raised, or was refused."""
    LOST = auto()
    """A failure of a whole micro-batch, perhaps by a dataflow that killed its worker."""
    HUNG = auto()
    """A failure of a whole micro-batch, which was cancelled at its deadline."""
    UNREACHABLE = auto()
    """Kafka did not answer, or answered with an error."""
    FULL = auto()
    """The disk of the state directory, or of Spark's own files, is full."""


FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 30_000
LONGEST_PAUSE_ALONE_MS = 300_000
ATTEMPTS_BEFORE_REBUILD = 3
MAY_LIE_IN_THE_STATE = frozenset({Kind.FAILED, Kind.LOST})
ENDS_MICRO_BATCHES = frozenset({Kind.LOST, Kind.HUNG, Kind.FULL})

STEPS_ALONE = 3
MOST_DOUBLINGS = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a dataflow, or of a micro-batch of `dataflows`, after so many seconds."""

    message: str
    kind: Kind = Kind.FAILED
    took_ms: int = 0
    dataflows: int = 1

    @property
    def is_shared(self) -> bool:
        """Whether another dataflow may have caused it."""
        return self.dataflows > 1

    def __str__(self) -> str:
        """Text for display: what happened, and what is done about it."""
        if self.kind is Kind.FULL:
            return f"no room for state: {self.message}"
        if self.kind not in {Kind.LOST, Kind.HUNG}:
            return self.message
        who = f"{self.dataflows} dataflows" if self.is_shared else "this dataflow"
        became = "lost" if self.kind is Kind.LOST else "cancelled"
        said = f"a micro-batch of {who} was {became}: {self.message}"
        return f"{said}; each is tried alone" if self.is_shared else said


@dataclass(frozen=True, slots=True)
class FailureState:
    """Why a dataflow does not advance, the failures in a row, and the time of the next attempt.

    `rebuilt` says that its state was dropped once because of this.
    """

    message: str
    attempts: int
    retry_at_ms: int
    place: Place = NOWHERE
    rebuilt: bool = False

    def is_over(self, place: Place) -> bool:
        """Whether a dataflow that is at this place has passed the failure's."""
        return place > self.place


def after(
    before: FailureState | None, failure: Failure, place: Place, now_ms: int
) -> FailureState:
    """Return the trouble of a dataflow after one more failure."""
    attempts = 1 + (before.attempts if before else 0)
    place = max(place, before.place) if before else place
    rebuilt = before is not None and before.rebuilt
    retry_at_ms = now_ms + pause_ms(failure, attempts)
    return FailureState(str(failure), attempts, retry_at_ms, place, rebuilt)


def pause_ms(failure: Failure, attempts: int) -> int:
    """Return the pause after so many failures in a row.

    One suspect of many does not wait: the pause is for a dataflow that is known to fail. A
    cancelled one waits for as long as it ran, so that it takes at most half of a lane's time.
    """
    if failure.is_shared and failure.kind in ENDS_MICRO_BATCHES:
        return 0
    harmful = failure.kind in {Kind.LOST, Kind.HUNG}
    longest = LONGEST_PAUSE_ALONE_MS if harmful else LONGEST_PAUSE_MS
    growing = FIRST_PAUSE_MS << min(attempts - 1, 20)
    return max(min(longest, growing), failure.took_ms)


def wants_rebuild(trouble: FailureState, failure: Failure) -> bool:
    """Whether to drop the state, once: it is a cache, and may be the cause.

    An outage of Kafka, a full disk and a slow step are not caused by the state.
    """
    enough = trouble.attempts >= ATTEMPTS_BEFORE_REBUILD
    return enough and not trouble.rebuilt and failure.kind in MAY_LIE_IN_THE_STATE


@dataclass(frozen=True, slots=True)
class Isolation:
    """Whether a dataflow is stepped alone: for how many more steps, and its convictions."""

    steps: int = 0
    convictions: int = 0

    def after(self, failure: Failure, attempts: int) -> "Isolation":
        """Return the isolation after a micro-batch was lost, at the given number of failures.

        An outage of Kafka usually affects all dataflows: only a second one is suspicious.
        """
        if failure.kind not in ENDS_MICRO_BATCHES:
            repeated = failure.kind is Kind.UNREACHABLE and failure.is_shared and attempts > 1
            return replace(self, steps=max(self.steps, 1)) if repeated else self
        if failure.is_shared:
            return replace(self, steps=max(self.steps, 1))
        doublings = min(self.convictions, MOST_DOUBLINGS)
        return Isolation(STEPS_ALONE << doublings, self.convictions + 1)

    def passed(self) -> "Isolation":
        """Return the isolation after a step beyond the place of the last trouble."""
        return replace(self, steps=self.steps - 1) if self.steps else self
