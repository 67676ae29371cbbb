"""Checks a subscription to the honest view at every time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from streams.app.client import Message
from streams.torture.hostile.sessions import Row, Session, wrong

Change = tuple[int, int, Row]
"""A time, a diff, a row."""


@dataclass(slots=True)
class SubscriptionState:
    """The state of a subscription: its contents, and its frontier."""

    held: Counter[Row] = field(default_factory=Counter)
    seen: int = 0
    frontier: int = 0
    states: int = 0
    _coming: list[Change] = field(default_factory=list)

    def hear(self, message: Message) -> str:
        """Check a message; return the problem, or an empty text."""
        match message:
            case {"type": "rows", "rows": list(rows)}:
                self._coming += [(time, diff, tuple(row)) for time, diff, *row in rows]
            case {"type": "progress", "frontier": int(frontier)}:
                return self._complete(frontier)
            case {"type": "error", "error": dict(error)}:
                return str(error["message"])
            case _:
                pass
        return ""

    def _complete(self, frontier: int) -> str:
        """All changes before the frontier have come: how it was at each of their times."""
        if frontier < self.frontier:
            return f"the frontier went back from {self.frontier} to {frontier}"
        before, self.frontier = self.frontier, frontier
        changes, self._coming = sorted(self._coming, key=lambda update: update[0]), []
        for time, some in groupby(changes, key=lambda update: update[0]):
            if not before <= time < frontier:
                return f"a change at {time} between the frontiers {before} and {frontier}"
            for _, diff, row in some:
                self.held[row] += diff
            said = self._look()
            if said:
                return f"at {time}: {said}"
        return ""

    def _look(self) -> str:
        self.held = Counter({row: there for row, there in self.held.items() if there})
        if min(self.held.values(), default=0) < 0:
            return f"less than none of a row: {dict(self.held)}"
        rows = list(self.held.elements())
        said = wrong(rows, self.seen)
        if not said:
            self.seen = int(str(rows[0][0]))
            self.states += 1
        return said


def follows(session: Session, view: str, followed: SubscriptionState) -> Iterator[None]:
    """A subscription that runs as long as the session."""
    for message in session.client.stream(f"SUBSCRIBE {view}"):
        session.problem = followed.hear(message)
        session.figures["subscribed states"] = followed.states
        yield


def reached(session: Session, followed: SubscriptionState, seen: int, time: int) -> str:
    """Wait until so many messages were told of, and all up to a time; what is wrong, or empty.

    Errors: Ended.
    """

    def missing() -> str:
        if session.problem or (followed.seen >= seen and followed.frontier > time):
            return ""
        progress = f"{followed.seen} of {seen} messages"
        return f"received {progress} and the times before {followed.frontier}, not {time}"

    late = session.until(missing)
    return session.problem or (late and f"subscription: {late}")
