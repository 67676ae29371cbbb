"""The time that a read wants, and why one waits for it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streams.adapter.catalog import Item
from streams.adapter.sessions import Session
from streams.adapter.timelines import Timeline
from streams.adapter.timestamp_selection import LAST
from streams.ids import Timestamp


@dataclass(frozen=True, slots=True)
class When:
    """The time to read at, of a timeline: AS OF a time, or any not before the session's."""

    as_of: Timestamp | None
    session: Session
    timeline: Timeline = "wall"

    @property
    def after(self) -> Timestamp | None:
        """The time of the session's last read."""
        return self.session.last(self.timeline)

    def note(self, time: Timestamp, items: Sequence[Item]) -> None:
        """Record the time of a read. For sealed items alone it is beyond all others."""
        if self.as_of is None and items and time < LAST:
            self.session.note(time, self.timeline)


def why_patient(behind: str, time: Timestamp, when: When) -> Iterator[str]:
    """Yield why a read waits for collections, if that follows from its time."""
    if time == when.after:
        yield (
            f"waits for {behind} to come to {time}, the time of this"
            " session's last read; AS OF reads earlier"
        )
    elif when.timeline == "event":
        yield (
            f"waits for {behind} to come to {time}: event time moves with messages, and not"
            " with the clock"
        )
