"""Follows collections: holds unwritten history, reports uppers, reads intervals.

A task has one critical read capability on each collection, named after both, so that the next
session finds it after any crash. Its frontier stays just before the frontier of the endpoint,
and it is released only when the task is dropped.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streams.errors import Indeterminate, InvalidUsage
from streams.ids import MINIMUM_TIME, CapabilityId, CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.client.id_registry import Directory
from streams.storage.client.shards import Shards
from streams.storage.description import Description, loads
from streams.storage.log.events import Acquire, Body, Downgrade, Drop, Right, system_capability
from streams.storage.log.outcomes import Acquired, Dropped
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import (
    EVERYTHING,
    ChunkSelection,
    Loaded,
    check_readable,
    end,
    load_parts,
    load_stable,
    pieces,
)

ROLE = "materialize"


def hold_of(task: str, collection: CollectionId) -> CapabilityId:
    """The name of a task's read capability on a collection."""
    return system_capability(ROLE, task, collection)


@dataclass(frozen=True, slots=True)
class ChunkVolume:
    """Bytes of chunks, and the updates in them."""

    bytes: int
    rows: int

    def of(self, most: "ChunkVolume") -> float:
        """The ratio to another amount: the larger one of bytes and rows."""
        return max(self.bytes / most.bytes, self.rows / most.rows)


class CollectionFollower:
    """The collections of a task. One thread."""

    def __init__(self, shards: Shards, task: str, collections: Sequence[CollectionId]) -> None:
        self._shards, self._task = shards, task
        self.collections = tuple(dict.fromkeys(collections))

    def open(self) -> Mapping[CollectionId, Description]:
        """Open the collections. Errors: InvalidUsage if there is none of an id, or no more."""
        return {
            collection: loads(self._opened(collection).description)
            for collection in self.collections
        }

    def _opened(self, collection: CollectionId) -> CollectionState:
        state = self._found(collection)
        if state.is_dropped:
            raise InvalidUsage(
                f"collection {collection} was dropped: name one that can be read"
            )
        return state

    def _found(self, collection: CollectionId) -> CollectionState:
        """Follow a collection, read to its present end. Errors: InvalidUsage."""
        state = Directory(self._shards).find(collection)
        if state is not None and not state.is_dropped:
            self._shards.sync(collection)
            state = self._shards.state(collection)
        if state is None:
            raise InvalidUsage(
                f"collection {collection} does not exist: name one that can be read"
            )
        return state

    def hold(self) -> Mapping[CollectionId, Timestamp]:
        """Hold the collections; return from where on each is held.

        Errors: InvalidUsage if one cannot be held; Indeterminate.
        """
        wanted: list[tuple[str, Body]] = [
            (
                self._shards.group_of(collection),
                Acquire(
                    collection=collection,
                    capability=hold_of(self._task, collection),
                    right=Right.READ,
                ),
            )
            for collection in self.collections
        ]
        outcomes = self._shards.submit(wanted)
        times: dict[CollectionId, Timestamp] = {}
        for collection, outcome in zip(self.collections, outcomes, strict=True):
            if not isinstance(outcome, Acquired) or outcome.frontier.is_empty:
                raise InvalidUsage(
                    f"collection {collection}: expected a hold of its history, actual {outcome}"
                )
            times[collection] = outcome.frontier.time
        return times

    def release(self, frontiers: Mapping[CollectionId, Timestamp]) -> None:
        """Allow compaction of the changes before these frontiers: the endpoint has them."""
        moves: list[tuple[str, Body]] = [
            (
                self._shards.group_of(collection),
                Downgrade(
                    collection=collection,
                    capability=hold_of(self._task, collection),
                    frontier=frontier(time - 1),
                ),
            )
            for collection, time in frontiers.items()
            if time > MINIMUM_TIME
        ]
        self._shards.submit(moves)

    def drop(self) -> tuple[CollectionId, ...]:
        """Drop all holds; return the collections that were held.

        A dropped collection has no hold. Errors: InvalidUsage if a collection does not exist;
        Indeterminate.
        """
        present = [
            collection
            for collection in self.collections
            if not self._found(collection).is_dropped
        ]
        held_collections = tuple(
            collection
            for collection in present
            if hold_of(self._task, collection) in self._shards.state(collection).capabilities
        )
        drops: list[tuple[str, Body]] = [
            (
                self._shards.group_of(collection),
                Drop(collection, hold_of(self._task, collection)),
            )
            for collection in held_collections
        ]
        for collection, outcome in zip(
            held_collections, self._shards.submit(drops), strict=True
        ):
            if not isinstance(outcome, Dropped):
                raise Indeterminate(
                    f"collection {collection}: expected its hold to be dropped, actual"
                    f" {outcome}"
                )
        return held_collections

    def sync(self) -> None:
        """Read the logs to their present ends."""
        for collection in self.collections:
            self._shards.sync(collection)

    def upper(self, collection: CollectionId) -> Timestamp:
        """The changes before it are all there."""
        return end(self._state(collection))

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until something holds of the collections; return whether it does."""
        groups = [self._shards.group_of(collection) for collection in self.collections]
        return self._shards.wait(ready, timeout_ms, tuple(dict.fromkeys(groups)))

    def parts(
        self,
        collection: CollectionId,
        interval: tuple[Timestamp, Timestamp],
        as_of: Timestamp,
        selection: ChunkSelection = EVERYTHING,
    ) -> Iterator[Loaded]:
        """The updates of an interval, exact from `as_of` on, in parts that memory holds.

        Errors: SinceViolation, Corrupt, Determinate.
        """
        check_readable(self._state(collection), as_of)
        return load_parts(self._shards, collection, interval, as_of, selection)

    def read(
        self, collection: CollectionId, interval: tuple[Timestamp, Timestamp], as_of: Timestamp
    ) -> Loaded:
        """The updates of an interval, exact from `as_of` on. Errors: as `parts`."""
        check_readable(self._state(collection), as_of)
        return load_stable(self._shards, collection, interval, as_of)

    def extent(
        self, collection: CollectionId, lower: Timestamp, start: Timestamp, most: ChunkVolume
    ) -> tuple[Timestamp, float]:
        """Up to where to read next, past `start` at least, and how many times `most` that is.

        It is more than once only if one batch has more, or if it comes up to `start`.
        """
        state = self._state(collection)
        read, bound, reached = ChunkVolume(0, 0), end(state), lower
        for piece in pieces(state, lower, bound):
            more = ChunkVolume(read.bytes + piece.ref.size, read.rows + piece.ref.rows)
            if more.of(most) > 1 and piece.upper > reached > max(lower, start):
                return reached, read.of(most)
            read, reached = more, piece.upper
        return bound, read.of(most)

    def _state(self, collection: CollectionId) -> CollectionState:
        state = self._shards.state(collection)
        if state.is_dropped:
            raise InvalidUsage(
                f"collection {collection} was dropped: name one that can be read"
            )
        return state
