"""What every collection holds at every time, computed from scratch, and the comparison.

    tab   what the writers meant to write, each at the time at which its Append counted
    src   the latest message of each key, among those bound at or before the time
    cnt   rows by key, of `tab` as long as they live and of `src`: recomputed at each time, and
          said as the version says it whose Append covers the time

Nothing here knows of chunks, batches, steps or checkpoints.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from streams.ids import CollectionId
from streams.storage.log.events import Append, Event, Offsets
from streams.storage.log.outcomes import Appended, Outcome
from tests.model.counting import shown
from tests.model.world import CNT, SRC, TAB, Row, Update, World, WrongAnswer, clipped, pieces

Contents = dict[Row, int]


class Truth:
    """Watches the logs, and nothing but what was meant."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: list[Update] = []
        self.counted: set[int] = set()
        self.bindings: list[tuple[int, Offsets]] = []
        self.versions: list[tuple[int, str]] = []
        self.final: dict[tuple[CollectionId, int], Contents] = {}
        world.observers.append(self.observe)

    def observe(self, event: Event, outcome: Outcome) -> None:
        """Take note of an Append that counted."""
        if not isinstance(event.body, Append) or not isinstance(outcome, Appended):
            return
        (part,) = event.body.parts
        if part.collection == CNT and part.fingerprint != self.version_at(part.lower.time):
            self.versions.append((part.lower.time, part.fingerprint))
        if part.collection == SRC and part.to_offsets is not None:
            # what stood in the topic at first is there from the source's first time on
            since = part.upper.time - 1 if self.bindings else part.lower.time
            self.bindings.append((since, part.to_offsets))
        if event.id in self.world.intents:
            intent, updates = self.world.intents[event.id]
            if intent in self.counted:
                raise WrongAnswer(f"write {intent} was counted twice")
            self.counted.add(intent)
            self.written += updates

    def version_at(self, time: int) -> str:
        """The version of the view that says what the view holds at a time."""
        return next((v for since, v in reversed(self.versions) if since <= time), "v1")

    def check_acknowledged(self) -> None:
        """Whoever was told that his write counts must find it."""
        lost = self.world.acknowledged - self.counted
        if lost:
            raise WrongAnswer(f"writes {sorted(lost)} were acknowledged and are not there")

    def at(self, collection: CollectionId, time: int) -> Contents:
        """The contents at a time that is below the collection's upper: they are final."""
        if (collection, time) not in self.final:
            self.final[collection, time] = self._recompute(collection, time)
        return self.final[collection, time]

    def _recompute(self, collection: CollectionId, time: int) -> Contents:
        if collection == TAB:
            return accumulate(self.written, time)
        if collection == SRC:
            return self._messages(time)
        count: Counter[int] = Counter()
        for (key, _, until), diff in self.at(TAB, time).items():
            assert key is not None
            if until is None or time < until:
                count[key] += diff
        for (key, _), diff in self.at(SRC, time).items():
            assert key is not None
            count[key] += diff
        return {(key, rows): 1 for key, rows in count.items() if rows}

    def _messages(self, time: int) -> Contents:
        bound: Offsets = {}
        for since, offsets in self.bindings:
            if since <= time:
                bound = offsets
        latest: dict[int, int] = {}
        for partition, end in bound.items():
            for key, value in self.world.raw[partition][:end]:
                if value is None:
                    latest.pop(key, None)
                else:
                    latest[key] = value
        return dict.fromkeys(latest.items(), 1)

    def check(self, collection: CollectionId) -> None:
        """Compare a collection with the truth at every time in [since, upper)."""
        if collection not in self.world.groups[collection].states[-1].collections:
            return
        state = self.world.groups[collection].newest
        updates: list[Update] = []
        for piece in pieces(state, 0, state.upper.time):
            content = self.world.fetch(collection, piece.ref)
            if content is None:
                raise WrongAnswer(f"{collection}: a linked chunk is missing: {piece}")
            updates += clipped(content, piece)
        self.compare(collection, updates, range(state.since.time, state.upper.time))

    def compare(
        self, collection: CollectionId, updates: Iterable[Update], times: Iterable[int]
    ) -> None:
        """Compare what updates add up to with the truth, at each of some times in order."""
        rest = sorted(updates, key=lambda update: update[1], reverse=True)
        contents: Counter[Row] = Counter()
        for time in times:
            while rest and rest[-1][1] <= time:
                row, _, diff = rest.pop()
                contents[row] += diff
            self.equal(collection, contents, time)

    def equal(self, collection: CollectionId, contents: Mapping[Row, int], time: int) -> None:
        """Compare contents with the truth at one time."""
        actual = {row: diff for row, diff in contents.items() if diff}
        expected = self.at(collection, time)
        if collection == CNT:
            expected = {shown(self.version_at(time), row): 1 for row in expected}
        if actual != expected:
            raise WrongAnswer(f"{collection} at {time}: expected {expected}, actual {actual}")


def accumulate(updates: Iterable[Update], time: int) -> Contents:
    """The sum of the updates up to a time."""
    contents: Counter[Row] = Counter()
    for row, at, diff in updates:
        if at <= time:
            contents[row] += diff
    return {row: diff for row, diff in contents.items() if diff}


def visible(world: World) -> tuple[CollectionId, ...]:
    """The collections there are."""
    return tuple(
        name for name in (TAB, SRC, CNT) if name in world.groups[name].states[-1].collections
    )
