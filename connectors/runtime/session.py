"""One session of a task: from what the endpoint says it has, transaction after transaction.

A transaction is read and cut while the one before is being committed. Its changes are held
until the endpoint has confirmed them, so a session that dies at any moment loses nothing: the
next one asks the endpoint how far it is. A task of several shards has as many streams, which
write the same transaction, each the rows of its keys.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from connectors.driving import Stream
from connectors.protocol import messages, patch
from connectors.runtime import checkpoints
from connectors.runtime.cutting import Bound, Cutter, Part, Position, Transaction
from connectors.runtime.documents import Encoder
from connectors.runtime.following import Following
from connectors.runtime.hashing import KeyHasher
from connectors.runtime.lane import Lane
from connectors.runtime.preparing import Prepared
from connectors.runtime.ranges import (
    EVERY_KEY,
    KeyRange,
    Reach,
    joined,
    places_of,
    standing_at,
)
from connectors.runtime.reading import NO_DIFFS, Reading, counted
from connectors.runtime.recovery import Kept, RecoveryLog
from connectors.runtime.task import Materialization
from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.storage.read.options import Options, selection
from streams.storage.sinks.sink import NO_KEYS, Flags, Hashes
from streams.trace.columns import int64
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten, hash_columns

ONE_SHARD = (
    "shards: expected a connector that keeps all checkpoints itself, actual one that leaves"
    " some to the driver: run it as one shard"
)


class Forgotten(InvalidUsage):
    """Changes that the endpoint does not have are not there any more."""


class Session:
    """Open streams, and where they are together. One thread."""

    def __init__(  # noqa: PLR0913  dependencies
        self,
        *,
        task: Materialization,
        prepared: Prepared,
        following: Following,
        streams: Sequence[Stream],
        log: RecoveryLog,
        kept: Kept,
        kernel: Kernel,
        directory: Path,
    ) -> None:
        self.task, self.prepared, self.following = task, prepared, following
        self.log, self.kept, self.kernel = log, kept, kernel
        marks = not prepared.extensions.delete
        encoders = [
            Encoder(bound, binding.field_selection, kernel, marks=marks)
            for bound, binding in zip(prepared.bounds, prepared.spec.bindings, strict=True)
        ]
        self.lanes = [Lane(stream, prepared.bounds, encoders) for stream in streams]
        self.hashers = [KeyHasher(bound.key_columns, kernel) for bound in prepared.bounds]
        self.is_authoritative = all(lane.is_authoritative for lane in self.lanes)
        self.is_logged = not self.is_authoritative or bool(kept.driver)
        if self.is_logged and len(self.lanes) > 1:
            raise InvalidUsage(ONE_SHARD)
        intent = None if self.is_authoritative else checkpoints.intent_of(kept.flow)
        self.cutter = self._resumed(following.hold(), intent)
        self.reading = Reading(
            following=following,
            prepared=prepared,
            cutter=self.cutter,
            limits=task.limits,
            intent=intent,
            directory=directory,
            kernel=kernel,
        )
        self.is_first = any(each.is_begun for each in self.cutter.positions)
        self.committed = self.cutter.positions
        self.driver = kept.driver

    def _resumed(
        self, held: Mapping[CollectionId, Timestamp], intent: checkpoints.Intent | None
    ) -> Cutter:
        """Where the endpoint is; a binding that it does not have yet begins with the others."""
        names = self.prepared.names
        written = self._written()
        begun = [each.frontier for reaches in written for each in reaches if each.frontier]
        start = Timestamp(max([*held.values(), *(each - 1 for each in begun)]))
        self.birth = start if intent is None else intent.birth
        positions = []
        for name, bound, reaches in zip(names, self.prepared.bounds, written, strict=True):
            frontiers = [each.frontier for each in reaches if each.frontier is not None]
            if not frontiers:
                positions.append(Position(self.birth, is_begun=False))
                continue
            time = min(frontiers)
            if time <= held[name[0]]:
                raise Forgotten(
                    f"{bound.name} holds {name[0]} before {time}, and changes before"
                    f" {held[name[0]]} are compacted away: another session of the task has"
                    " gone on since, or the hold was dropped: then drop the table and the"
                    " task's checkpoint to have it written again"
                )
            live = self._live(name[0], bound, reaches)
            apart = tuple(reaches) if len(reaches) > 1 else ()
            positions.append(Position(time, is_begun=True, live=live, reaches=apart))
        return Cutter(self.prepared.bounds, positions, self.kernel, self.task.limits.rows)

    def _written(self) -> Sequence[Sequence[Reach]]:
        """Of each binding how far its keys are written, as the endpoint says, or the log."""
        names = self.prepared.names
        decoded = [
            checkpoints.decode(each.checkpoint, names, (each.key_begin, each.key_end))
            for lane in self.lanes
            for each in lane.subranges(self.kept.flow)
        ]
        return [joined(each for part in decoded for each in part[name]) for name in names]

    def _live(self, collection: CollectionId, bound: Bound, reaches: Sequence[Reach]) -> Hashes:
        """The keys that have a row before what their part is written up to."""
        if bound.delta:
            return NO_KEYS
        frontiers = {each.frontier for each in reaches if each.frontier is not None}
        live = [
            self._live_before(collection, bound, reaches, frontier) for frontier in frontiers
        ]
        return np.sort(np.concatenate(live))

    def _live_before(
        self,
        collection: CollectionId,
        bound: Bound,
        reaches: Sequence[Reach],
        frontier: Timestamp,
    ) -> Hashes:
        """Of the parts that are written up to one frontier; keys alone are read."""
        before = Timestamp(frontier - 1)
        chosen = selection(Options(columns=bound.keys), bound.description)
        types = [type_ for _, type_ in bound.key_columns]
        hashes, diffs = [NO_KEYS], [NO_DIFFS]
        past = (MINIMUM_TIME, frontier)
        hasher = KeyHasher(bound.key_columns, self.kernel)
        for updates, _ in self.following.parts(collection, past, before, chosen):
            rows = flatten([updates], arrow_schema(types))
            if len(reaches) > 1:
                own = hasher.hashes(rows.columns[: len(types)])
                rows = rows.filter(pa.array(standing_at(reaches, frontier, own)))
            hashes.append(hash_columns(rows, range(len(types)), self.kernel))
            diffs.append(int64(rows.column("diff")))
        return counted(np.concatenate(hashes), np.concatenate(diffs))

    def begin(self, transaction: Transaction) -> None:
        """Send all of a transaction up to its commit. Errors: Drifted; as the streams.

        Where the log alone says what was committed, it says first what is on its way: if this
        session ends, the next one sends the same.
        """
        self._verify(transaction)
        if not self.is_authoritative and transaction.rows:
            leads_to = self._checkpoint(transaction.positions)
            intent = checkpoints.Intent(leads_to, self.birth, transaction.large)
            before = checkpoints.with_intent(self._checkpoint(self.committed), intent)
            self.log.write(Kept(before, self.kept.driver))
        for index, number, piece in pieces(transaction):
            for lane, own in self._divided(index, piece):
                lane.store((index, number), own)
        for lane in self.lanes:
            lane.stream.send(messages.StartCommit())

    def _verify(self, transaction: Transaction) -> None:
        """Load what is to be compared, and compare it. Errors: Drifted; as the streams."""
        for index, number, piece in pieces(transaction, self._is_verified):
            for lane, own in self._divided(index, piece):
                lane.load((index, number), own)
        for lane in self.lanes:
            lane.flush(self._checkpoint(transaction.positions, lane.key_range))
        for lane in self.lanes:
            flushed = lane.flushed()
            if flushed.checkpoint and len(self.lanes) > 1:
                raise InvalidUsage(ONE_SHARD)
            self.driver = patch.kept(self.driver, flushed)

    def end(self, transaction: Transaction) -> None:
        """Wait for the commit, and keep what the connector leaves to the driver."""
        for lane in self.lanes:
            lane.stream.receive()
        self.kept = Kept(self._checkpoint(transaction.positions), self.driver)
        if self.is_logged or self.kept.driver:
            self.log.write(self.kept)
        for lane in self.lanes:
            if lane.stream.session.extensions.acknowledge:
                lane.stream.acknowledge()
        self.committed, self.is_first = transaction.positions, False
        self.reading.discard(transaction)

    def release(self) -> None:
        """Give up the changes that the endpoint has."""
        frontiers: dict[CollectionId, Timestamp] = {}
        for collection, position in zip(self.prepared.collections, self.committed, strict=True):
            before = frontiers.get(collection, position.frontier)
            frontiers[collection] = min(before, position.frontier)
        self.following.release(frontiers)

    def _checkpoint(
        self, positions: Sequence[Position], key_range: KeyRange = EVERY_KEY
    ) -> bytes:
        """What the endpoint keeps beside the rows of a range."""
        written = {
            name: at.reaches or (Reach(*EVERY_KEY, at.frontier),)
            for name, at in zip(self.prepared.names, positions, strict=True)
            if at.is_begun
        }
        return checkpoints.encode(written, key_range)

    def _divided(self, index: int, piece: Part) -> Iterator[tuple[Lane, Part]]:
        """What each lane writes of rows of a binding."""
        if len(self.lanes) == 1:
            yield self.lanes[0], piece
            return
        places = self.prepared.bounds[index].places
        keys = [piece.rows.column(place) for place in places]
        begins = [lane.key_range[0] for lane in self.lanes]
        chosen = places_of(begins, self.hashers[index].hashes(keys))
        for number, lane in enumerate(self.lanes):
            inside = chosen == number
            if inside.any():
                yield lane, only(piece, inside)

    def _is_verified(self, index: int) -> bool:
        if self.prepared.bounds[index].delta:
            return False
        if not self.prepared.extensions.delete:
            return True  # whether a document is there is known by loading it alone
        verify = self.task.bindings[index].verify or "first"
        return verify == "always" or (verify == "first" and self.is_first)


def pieces(
    transaction: Transaction, chosen: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[int, int, Part]]:
    """What a transaction writes, in pieces that memory holds: binding, number, rows.

    `chosen`: of which bindings.
    """
    for index, part in enumerate(transaction.parts):
        if part is not None and chosen(index):
            for number, piece in enumerate(part.pieces()):
                yield index, number, piece


def only(part: Part, inside: Flags) -> Part:
    """Some of the rows."""
    return Part(
        part.rows.filter(pa.array(inside)),
        part.exists[inside],
        part.deletes[inside],
        part.before.filter(pa.array(inside[part.exists])),
    )
