"""Reads of collections from their shards at one time, once they are readable at it.

Waiting is divided into beats, at which both sides see that the other is alive. An answer is a
generator; closing it ends the wait.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from streams.adapter.catalog import Item
from streams.adapter.delays import Delay, Delays
from streams.adapter.provisioning import bounds_of
from streams.adapter.pruning import Wanted
from streams.adapter.read_errors import halted, refusing, unreadable
from streams.adapter.read_holds import Guard
from streams.adapter.read_times import When, why_patient
from streams.adapter.results import Notice, Progress, Result
from streams.adapter.timestamp_selection import ReadAt, Unreadable, choose
from streams.compute.as_of import ReadableInterval
from streams.errors import InvalidUsage
from streams.ids import CollectionId, Timestamp
from streams.progress import Antichain, frontier
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState
from streams.storage.read import reader
from streams.storage.read.reader import (
    EVERYTHING,
    Changes,
    ChunkSelection,
    Loaded,
    is_complete,
    snapshot_pieces,
)

BEAT_MS = 1000
PATIENT_BEATS = 3
"""Number of beats after which a read reports that it waits for its session's time."""

MADE_MS = 60_000
"""The maximum wait of a read for its objects to be created."""

FAILING_BEATS = 60
"""Number of beats after which a read ends for which a dataflow has failed all the while."""


class CollectionReads:
    """Reads of collections on behalf of users. Thread-safe."""

    def __init__(
        self,
        shards: Shards,
        unmade: Callable[[Item], str],
        delay: Callable[[Item], Delay | None],
    ) -> None:
        self._shards, self._unmade, self._delay = shards, unmade, delay

    def readable(
        self, items: Sequence[Item], when: When, guard: Guard
    ) -> Generator[Result, None, Timestamp]:
        """Wait until the items are readable at one time; return the time."""
        for item in items:
            yield from self._made(item)
            with halted(item.name, item.group):
                self._shards.sync(item.id)
        after = when.after
        match choose(self._bounds(items), when.as_of, after):
            case Unreadable(name, since):
                raise unreadable(name, since.time if not since.is_empty else None, when.as_of)
            case ReadAt(time):
                guard.downgrade(time)
                yield from self.wait(items, time, when=when)
                self.note(items, time, when)
                return time

    def note_progress(self, item: Item, upper: Antichain, when: When) -> None:
        """Record that all updates at times before upper were delivered."""
        if not upper.is_empty:
            self.note([item], Timestamp(upper.time - 1), when)

    def note(self, items: Sequence[Item], time: Timestamp, when: When) -> None:
        """Record the time of a read: of dead letters, no later than its source can be read.

        By event time they are ahead of it, and the session would wait until there are rows.
        """
        for item in items:
            group = self._shards.group_state(item.group).collections
            source = group.get(CollectionId(item.group)) if item.kind == "errors" else None
            if source is not None and not source.upper.is_empty:
                time = min(time, Timestamp(source.upper.time - 1))
        if time >= 0:
            when.note(time, items)

    def _made(self, item: Item) -> Iterator[Result]:
        """Beats until an item that is defined is made, and why it is not.

        Errors: TimeoutError with the cause; InvalidStatement when it was dropped.
        """
        reported, waited_ms = "", 0
        while why := self._why_unmade(item):
            if waited_ms >= MADE_MS:
                raise TimeoutError(
                    f"{item.name} is defined, but not created within {MADE_MS // 1000} s: {why}"
                )
            if why != reported:
                yield Notice(f"waits for {item.name}, which is not created yet: {why}")
                reported = why
            self._shards.wait(lambda: not self._why_unmade(item), BEAT_MS)
            waited_ms += BEAT_MS
            yield Progress(frontier(0))

    def _why_unmade(self, item: Item) -> str:
        with halted(item.name, item.group):
            return self._unmade(item)

    def snapshot(
        self, item: Item, time: Timestamp, selection: ChunkSelection = EVERYTHING
    ) -> Loaded:
        """The contents at a time. Errors: InvalidStatement when since has passed it."""
        with refusing(item.name), halted(item.name, item.group):
            return reader.snapshot(self._shards, item.id, time, selection=selection)

    def changes(self, item: Item, lower: Timestamp, until: Timestamp) -> Changes:
        """Return the changes from `lower` on that are final, before `until`.

        The caller has waited for upper to pass `lower`, and holds since below it.
        Errors: InvalidStatement.
        """
        state = self.state(item)
        with refusing(item.name), halted(item.name, item.group):
            return reader.changes(self._shards, state, lower, until=until)

    def stored_bytes(self, item: Item, time: Timestamp, wanted: Wanted) -> int:
        """The bytes, as stored, of the chunks that are read of the contents at a time."""
        with refusing(item.name), halted(item.name, item.group):
            pieces = snapshot_pieces(self._shards.state(item.id), time)
        return sum(piece.ref.size for piece in pieces if wanted.may_match(piece.ref))

    def _bounds(self, items: Sequence[Item]) -> tuple[ReadableInterval, ...]:
        return tuple(bounds_of(item, self.state(item)) for item in items)

    def state(self, item: Item) -> CollectionState:
        """The state of what is being read. Errors: InvalidStatement when it was dropped.

        A dropped collection's upper is empty, just as that of one which is complete.
        """
        try:
            with halted(item.name, item.group):
                state = self._shards.state(item.id)
        except InvalidUsage as cause:  # the topics are gone as well
            raise unreadable(item.name, None, None) from cause
        if state.is_dropped:
            raise unreadable(item.name, None, None)
        return state

    def wait(
        self,
        items: Sequence[Item],
        time: Timestamp,
        *,
        when: When | None = None,
        is_endless: bool = False,
    ) -> Iterator[Result]:
        """Beats until the items are final at `time`; says what is waited for.

        Failed dataflows are tried again: a read ends with the cause when one has failed for
        `FAILING_BEATS` in a row, unless it is endless.

        Errors: InvalidStatement, TimeoutError.
        """

        def final() -> bool:
            return all(is_complete(self.state(item), time) for item in items)

        if final():
            return
        groups = {self._shards.group_of(item.id) for item in items}
        delays = Delays(time, self._delay, FAILING_BEATS if not is_endless else None)
        beats = 0
        while not self._shards.wait(final, BEAT_MS, groups):
            beats += 1
            if when is not None and beats == PATIENT_BEATS:
                names = [item.name for item in self._behind(items, time)]
                yield from map(Notice, why_patient(", ".join(names), time, when))
            yield from map(Notice, delays.beat(self._behind(items, time)))
            uppers = [self.state(item).upper for item in items]
            least = min((upper.time for upper in uppers if not upper.is_empty), default=0)
            yield Progress(frontier(time if is_endless else min(least, time)))

    def _behind(self, items: Sequence[Item], time: Timestamp) -> list[Item]:
        return [item for item in items if not is_complete(self.state(item), time)]
