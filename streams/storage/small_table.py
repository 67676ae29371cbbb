"""A small table in a collection of its own: one owner writes it whole, any client reads it.

Its contents are the rows at its newest time. The owner is the writer that set the token of the
write capability last: the log refuses every earlier writer, whatever it still has in flight.

What a small table says is carried out, so no client may write one: its name is reserved, and a
collection of the name that the system did not create is an error, not a table.
"""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from streams.errors import Indeterminate, InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.client.reserved_names import SMALL_TABLES
from streams.storage.client.shards import Shards, fresh_uuid, write_capability
from streams.storage.description import Description, dumps
from streams.storage.log.events import Append, Downgrade, Part, Right, system_capability
from streams.storage.log.outcomes import (
    Appended,
    ChunksReclaimed,
    Downgraded,
    Unavailable,
    UpperMismatch,
)
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import load_stable
from streams.trace.kernel.kernel import arrow_schema

Row = tuple[object, ...]

KEPT = 64
"""So many writes stay distinct: advancing since past older ones is a record in the log too."""


class TakenOver(InvalidUsage):
    """Another writer owns the table now."""


class NotOurs(InvalidUsage):
    """The collection of this name was not created by the system."""


class SmallTable:
    """A table. One thread.

    Rows are tuples of the Python values of the description's types, and are a set.
    """

    def __init__(self, shards: Shards, table: CollectionId, description: Description) -> None:
        """Errors: ValueError for a name that clients may use."""
        if not table.startswith(SMALL_TABLES):
            raise ValueError(f"{table}: expected a name with one of {', '.join(SMALL_TABLES)}")
        self._shards, self.id, self._description = shards, table, description
        self._schema = arrow_schema(description.types)
        self._token = fresh_uuid()
        self._contents: tuple[Timestamp, Counter[Row]] = MINIMUM_TIME, Counter()
        self._is_open = False
        self.is_owned = False

    def find(self) -> bool:
        """Follow the table if it is there; return whether it is.

        Errors: NotOurs, Corrupt, Determinate, Indeterminate.
        """
        if not self._is_open:
            if self._shards.identity(self.id) is None:
                return False
            self._shards.open(self.id)
            self._shards.sync_group(self.id)
        state = self._shards.group_state(self.id).collections.get(self.id)
        self._is_open = state is not None and not state.is_dropped and self._is_ours(state)
        return self._is_open

    def _is_ours(self, state: CollectionState) -> bool:
        """Return True. Errors: NotOurs for a collection that the system did not create."""
        expected, held = dumps(self._description), state.capabilities
        writers = [name for name in held if held[name].right is Right.WRITE]
        if state.description == expected and writers == [write_capability(self.id)]:
            return True
        topics = self._shards.names(self.id)
        raise NotOurs(
            f"{self.id}: expected the system's table {expected}, actual a collection"
            f" {state.description} with the write capabilities {writers}: another client has"
            f" created it, and nothing of it is read; delete the topics {topics.log} and"
            f" {topics.data}"
        )

    def own(self) -> None:
        """Create the table unless it is there, and own it. Errors: TakenOver; as `find`."""
        hold = system_capability(self.id, "log")
        self._shards.create(self.id, self.id, self._description, MINIMUM_TIME, read=hold)
        self.find()
        self.take_over()

    def take_over(self) -> None:
        """Become the owner of a table that is there. Errors: TakenOver; as `find`."""
        name = write_capability(self.id)
        capability = self._state.capabilities[name]
        move = Downgrade(
            collection=self.id,
            capability=name,
            frontier=capability.frontier,
            token=capability.token,
            new_token=self._token,
        )
        (outcome,) = self._shards.submit([(self.id, move)])
        if not isinstance(outcome, Downgraded):
            raise self._refused(outcome)
        self.is_owned = True

    @property
    def upper(self) -> Timestamp:
        """It grows with every write."""
        return self._state.upper.time

    def rows(self) -> Sequence[Row]:
        """The rows that were written last, of what has been read of the log.

        Errors: Corrupt, Determinate, Indeterminate.
        """
        lower, counts = self._contents
        upper = self.upper
        if upper > lower:
            if lower <= self._state.since.time:  # what has changed since is not known
                lower, counts = MINIMUM_TIME, Counter()
            as_of = Timestamp(upper - 1 if lower == MINIMUM_TIME else lower - 1)
            updates, _ = load_stable(self._shards, self.id, (lower, upper), as_of)
            self._contents = upper, add_updates(counts, updates)
        return [row for row, count in self._contents[1].items() if count > 0]

    def write(self, rows: Sequence[Row]) -> None:
        """Replace the rows, as the owner.

        Errors: TakenOver; as `rows`, and then it is not known whether they are written.
        """
        new = Counter(rows)
        before = Counter(self.rows())
        upper = self.upper
        changes = [
            *((row, -1) for row in (before - new)),
            *((row, 1) for row in (new - before)),
        ]
        table = pa.Table.from_pylist(
            [{**by_column_name(row), "time": upper, "diff": diff} for row, diff in changes],
            schema=self._schema,
        )
        part = Part(
            collection=self.id,
            capability=write_capability(self.id),
            lower=frontier(upper),
            upper=frontier(upper + 1),
            chunks=self._shards.write(self.id, table) if changes else (),
            token=self._token,
        )
        (outcome,) = self._shards.submit([(self.id, Append((part,)))])
        if not isinstance(outcome, Appended):
            raise self._refused(outcome)
        self._contents = Timestamp(upper + 1), new
        if upper - self._state.since.time >= KEPT:
            self._forget(upper)

    def drop(self) -> None:
        """Remove the table and its topics; its name is free again. Errors: as `find`."""
        if not self.find():
            return
        self._shards.drop(self.id)
        self._shards.delete(self.id)
        self._is_open = self.is_owned = False

    def wait(self, upper: Timestamp, timeout_ms: int) -> bool:
        """Wait until a write has moved upper past `upper`; return whether that is so."""

        def moved() -> bool:
            return self.upper > upper

        return self._shards.wait(moved, timeout_ms, (self.id,))

    def _forget(self, time: Timestamp) -> None:
        hold = system_capability(self.id, "log")
        move = Downgrade(collection=self.id, capability=hold, frontier=frontier(time))
        self._shards.submit([(self.id, move)])

    @property
    def _state(self) -> CollectionState:
        return self._shards.state(self.id)

    def _refused(self, outcome: object) -> SlackwaterError:
        if isinstance(outcome, UpperMismatch | ChunksReclaimed | Unavailable):
            return Indeterminate(
                f"{self.id}: the outcome of a write is unknown, read the table again: {outcome}"
            )
        return TakenOver(f"{self.id} has another writer now: {outcome}")


def by_column_name(row: Row) -> dict[str, object]:
    """A row by the names of columns in memory."""
    return {f"c{place}": value for place, value in enumerate(row)}


def add_updates(counts: Counter[Row], updates: pa.Table) -> Counter[Row]:
    """How often each row is there after the updates; only those that are there at all."""
    total = Counter(counts)
    for update in updates.to_pylist():
        *values, _, diff = update.values()
        total[tuple(values)] += diff
    return +total
