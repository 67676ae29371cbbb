"""One session of a task: from the endpoint's checkpoint on, transaction after transaction.

A transaction is read and cut while the previous one is being committed. The history of its
changes is held until the endpoint has confirmed them, so a session may crash at any moment: the
next one resumes from the endpoint's checkpoint. A task of several shards has as many streams,
which write the same transaction, each the rows of its keys.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from connectors.driver import Stream
from connectors.protocol import messages, patch
from connectors.runtime import checkpoints
from connectors.runtime.dead_letter_keys import LeftOut, RefusedKeys
from connectors.runtime.documents import Encoder, operations
from connectors.runtime.follower import CollectionFollower
from connectors.runtime.key_hasher import KeyHasher
from connectors.runtime.lane import Lane
from connectors.runtime.ranges import (
    EVERY_KEY,
    KeyRange,
    Reach,
    joined,
    places_of,
    standing_at,
)
from connectors.runtime.reader import Diffs, SessionReader, counted, narrowed
from connectors.runtime.recovery import RecoveryLog, StoredCheckpoints
from connectors.runtime.task import Materialization
from connectors.runtime.task_setup import AppliedTask
from connectors.runtime.transactions import (
    BoundCollection,
    Part,
    Position,
    Transaction,
    TransactionCutter,
)
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
DEAD_LETTERS = (
    "shards: expected 1 of a task with dead letters, or with keys that were left out: run it as"
    " one shard until they are written"
)
WRITTEN_AGAIN = (
    "raise the binding's backfill, or drop the table and the task's checkpoint, to have it"
    " written again"
)
MOST_COMPARED = 1 << 18
"""Rows of a binding in a transaction after which no further piece of it is compared: what is
compared is in memory, and one that waits on disk may be of any size."""


@dataclass(frozen=True, slots=True)
class Step:
    """A unit of commit: a transaction, or a step of one."""

    transaction: Transaction
    whole: Transaction | None = None
    """The transaction that it is a part of, if it is not the last one."""
    written: int | None = None
    """The number of optional rows decided after this step; None: it is complete."""
    left_out: tuple[LeftOut, ...] = ()


class Forgotten(InvalidUsage):
    """Changes that the endpoint does not have are not there any more."""


class EndpointAhead(InvalidUsage):
    """The endpoint says that it has changes which are not there yet."""


class TaskSession:
    """Open streams, and where they are together. One thread."""

    def __init__(  # noqa: PLR0913  dependencies
        self,
        *,
        task: Materialization,
        prepared: AppliedTask,
        following: CollectionFollower,
        streams: Sequence[Stream],
        log: RecoveryLog,
        checkpoints: StoredCheckpoints,
        kernel: Kernel,
        directory: Path,
    ) -> None:
        self.task, self.prepared, self.following = task, prepared, following
        self.log, self.kept, self.kernel = log, checkpoints, kernel
        marks = not prepared.extensions.delete
        encoders = [
            Encoder(bound, binding.field_selection, kernel, marks=marks)
            for bound, binding in zip(prepared.bounds, prepared.spec.bindings, strict=True)
        ]
        self.lanes = [Lane(stream, prepared.bounds, encoders) for stream in streams]
        self.hashers = [KeyHasher(bound.key_columns, kernel) for bound in prepared.bounds]
        self.is_authoritative = all(lane.is_authoritative for lane in self.lanes)
        self.is_logged = not self.is_authoritative or bool(checkpoints.driver)
        self.encoders = encoders
        if self.is_logged and len(self.lanes) > 1:
            raise InvalidUsage(ONE_SHARD)
        intent = self._begun()
        self.cutter = self._resumed(following.hold(), intent)
        self.dead = self._kept_dead()
        self.reading = SessionReader(
            following=following,
            prepared=prepared,
            cutter=self.cutter,
            limits=task.limits,
            intent=intent,
            directory=directory,
            kernel=kernel,
        )
        self.is_first = any(position.is_begun for position in self.cutter.positions)
        self.committed = self.cutter.positions
        self.driver = checkpoints.driver

    @property
    def places(self) -> list[str]:
        """For each binding."""
        return [bound.name for bound in self.prepared.bounds]

    @property
    def left_out(self) -> dict[str, int]:
        """The number of keys left out of each place."""
        sizes = {place: len(self.dead.keys.get(place, {})) for place in self.places}
        return {place: size for place, size in sizes.items() if size}

    def _begun(self) -> checkpoints.Intent | None:
        """Restore the transaction in progress, None for none, and the dead-letter keys."""
        ranges = [part for lane in self.lanes for part in lane.subranges(self.kept.flow)]
        intents = [checkpoints.intent_of(part.checkpoint) for part in ranges]
        dead: dict[str, Mapping[int, bool]] = {}
        for part in ranges:
            dead.update(checkpoints.dead_of(part.checkpoint))
        is_optional = any(binding.dead_letters for binding in self.task.bindings)
        if len(self.lanes) > 1 and (any(intents) or dead or is_optional):
            raise InvalidUsage(DEAD_LETTERS)
        self.dead = RefusedKeys(self.prepared.bounds, dead, self.kernel)
        intent = self._continued(intents[0])
        self.written = None if intent is None else intent.written
        """The decided rows of a transaction that is written in steps."""
        self.optional: Sequence[str] = () if intent is None else intent.optional
        """The places of the bindings whose rows they are."""
        return intent

    def _continued(self, intent: checkpoints.Intent | None) -> checkpoints.Intent | None:
        """The transaction in progress, unless the places of all its rows have changed.

        Errors: InvalidUsage if only some have: rows are counted over all places.
        """
        if intent is None or not intent.optional:
            return intent
        aims = checkpoints.places_of(intent.checkpoint)
        numbered = dict(zip(self.places, self.prepared.places, strict=True))
        unchanged = [place for place in intent.optional if numbered.get(place) in aims]
        changed = [place for place in intent.optional if place not in unchanged]
        if unchanged and changed:
            raise InvalidUsage(
                f"{', '.join(changed)}: dropped, or its backfill raised, while a transaction"
                f" with dead letters is on its way, which {', '.join(unchanged)} has a part of:"
                " do the same to that, or undo the change until the transaction is written"
            )
        return intent if unchanged else None

    def _kept_dead(self) -> RefusedKeys:
        """The refused keys of tables that are not being rewritten."""
        positions = zip(self.places, self.cutter.positions, strict=True)
        begun = {place for place, at in positions if at.is_begun}
        keys = {
            place: keys
            for place, keys in self.dead.keys.items()
            if place in begun or place in self.optional
        }
        return RefusedKeys(self.prepared.bounds, keys, self.kernel)

    def _resumed(
        self, holds: Mapping[CollectionId, Timestamp], intent: checkpoints.Intent | None
    ) -> TransactionCutter:
        """The cutter at the endpoint's position; a new binding starts with the others."""
        names = self.prepared.names
        written = self._written()
        begun = [reach.frontier for reaches in written for reach in reaches if reach.frontier]
        start = Timestamp(max([*holds.values(), *(frontier - 1 for frontier in begun)]))
        self.birth = start if intent is None else intent.birth
        positions = []
        for name, bound, reaches in zip(names, self.prepared.bounds, written, strict=True):
            frontiers = [reach.frontier for reach in reaches if reach.frontier is not None]
            if not frontiers:
                positions.append(Position(self.birth, is_begun=False))
                continue
            upper = self.following.upper(name[0])
            check_held(bound.name, name[0], frontiers, (holds[name[0]], upper))
            live = self._live(name[0], bound, reaches)
            apart = tuple(reaches) if len(reaches) > 1 else ()
            time = min(frontiers)
            positions.append(Position(time, is_begun=True, live=live, reaches=apart))
        return TransactionCutter(
            self.prepared.bounds, positions, self.kernel, self.task.limits.rows
        )

    def _written(self) -> Sequence[Sequence[Reach]]:
        """For each binding, the reaches of its keys, from the endpoint or the log."""
        names = self.prepared.names
        decoded = [
            checkpoints.decode(
                subrange.checkpoint, names, (subrange.key_begin, subrange.key_end)
            )
            for lane in self.lanes
            for subrange in lane.subranges(self.kept.flow)
        ]
        return [joined(reach for part in decoded for reach in part[name]) for name in names]

    def _live(
        self, collection: CollectionId, bound: BoundCollection, reaches: Sequence[Reach]
    ) -> Hashes:
        """The hashes of the keys that have a row before the frontier of their part."""
        if bound.delta:
            return NO_KEYS
        frontiers = {reach.frontier for reach in reaches if reach.frontier is not None}
        live = [
            self._live_before(collection, bound, reaches, frontier) for frontier in frontiers
        ]
        return live[0] if len(live) == 1 else np.sort(np.concatenate(live))

    def _live_before(
        self,
        collection: CollectionId,
        bound: BoundCollection,
        reaches: Sequence[Reach],
        frontier: Timestamp,
    ) -> Hashes:
        """The live rows of parts that are written up to one frontier; reads only keys."""
        before = Timestamp(frontier - 1)
        chosen = selection(Options(columns=bound.keys), bound.description)
        types = [type_ for _, type_ in bound.key_columns]
        hashes, diffs = list[Hashes](), list[Diffs]()
        past = (MINIMUM_TIME, frontier)
        hasher = KeyHasher(bound.key_columns, self.kernel)
        for updates, _ in self.following.parts(collection, past, before, chosen):
            rows = flatten([updates], arrow_schema(types))
            if len(reaches) > 1:
                own = hasher.hashes(rows.columns[: len(types)])
                rows = rows.filter(pa.array(standing_at(reaches, frontier, own)))
            hashes.append(hash_columns(rows, range(len(types)), self.kernel))
            diffs.append(narrowed(int64(rows.column("diff"))))
        return counted(hashes, diffs)

    def begin(self, step: Step, sent: Callable[[int, int], None]) -> None:
        """Send all of a step up to its commit. Errors: Drifted; as the streams.

        `sent` is called with a binding's number and how many more of its rows were sent.
        Where the log alone records commits, it first records the transaction
        in progress: if this session ends, the next one sends the same.
        """
        transaction = step.transaction
        after = self.dead.after(transaction, step.left_out)
        self._after = after, self._intent(step)
        self._load(transaction)
        if not self.is_authoritative and transaction.rows and not self.optional:
            leads_to = self._checkpoint(transaction.positions, after)
            intent = checkpoints.Intent(leads_to, self.birth, transaction.large)
            before = self._checkpoint(self.committed, self.dead, intent)
            self.log.write(StoredCheckpoints(before, self.kept.driver))
        for index, number, piece in pieces(transaction):
            for lane, own in self._divided(index, self.dead.patched(index, piece)):
                lane.store((index, number), own)
            sent(index, piece.count)
        for lane in self.lanes:
            lane.stream.send(messages.StartCommit())

    def _load(self, transaction: Transaction) -> None:
        """Load rows, to compare them or to know which exist.

        Of one binding at most about `MOST_COMPARED` rows are compared.

        Errors: Drifted; as the streams.
        """
        compared = Counter[int]()
        for index, number, piece in pieces(transaction, self._is_loaded):
            is_compared = self._is_compared(index) and compared[index] < MOST_COMPARED
            compared[index] += piece.before.num_rows
            if not is_compared and self.prepared.extensions.delete:
                continue
            for lane, own in self._divided(index, self.dead.patched(index, piece)):
                load = lane.load if is_compared else lane.load_unknown
                load((index, number), own)
        for lane in self.lanes:
            checkpoint = self._checkpoint(transaction.positions, *self._after, lane.key_range)
            lane.flush(checkpoint)
        dead = {self.places.index(place) for place, keys in self.dead.keys.items() if keys}
        for lane in self.lanes:
            flushed = lane.flushed(dead)
            if flushed.checkpoint and len(self.lanes) > 1:
                raise InvalidUsage(ONE_SHARD)
            self.driver = patch.kept(self.driver, flushed)

    def end(self, step: Step) -> None:
        """Wait for the commit, and store the checkpoint that the driver has to keep."""
        for lane in self.lanes:
            lane.stream.receive()
        positions = step.transaction.positions
        self.kept = StoredCheckpoints(self._checkpoint(positions, *self._after), self.driver)
        if self.is_logged or self.kept.driver:
            self.log.write(self.kept)
        for lane in self.lanes:
            if lane.stream.session.extensions.acknowledge:
                lane.stream.acknowledge()
        self.committed, self.is_first = positions, False
        self.dead, _ = self._after
        self.written = step.written
        self.optional = () if step.written is None else self.optional

    def letter(self, index: int, piece: Part, error: str) -> tuple[bytes, bytes]:
        """Key and value of the dead letter of a refused row."""
        (operation,) = operations(piece.exists, piece.deletes)
        key, document = self.encoders[index].texts(piece.rows, operation)
        place = {"task": self.task.task, "place": self.prepared.bounds[index].name}
        identity = {name: encoded(value) for name, value in place.items()} | {"key": key}
        value = {
            **identity,
            "collection": encoded(self.prepared.collections[index]),
            "op": encoded(operation),
            "document": document,
            "time": encoded(int(int64(piece.rows.column("time"))[0])),
            "diff": encoded(int(int64(piece.rows.column("diff"))[0])),
            "error": encoded(error),
        }
        return json_object(identity), json_object(value)

    def release(self) -> None:
        """Give up the changes that the endpoint has."""
        frontiers: dict[CollectionId, Timestamp] = {}
        for collection, position in zip(self.prepared.collections, self.committed, strict=True):
            before = frontiers.get(collection, position.frontier)
            frontiers[collection] = min(before, position.frontier)
        self.following.release(frontiers)

    def _intent(self, step: Step) -> checkpoints.Intent | None:
        """The positions after a step that is not the last one."""
        if step.whole is None:
            return None
        leads_to = self._checkpoint(step.whole.positions, self.dead)
        large, optional = step.whole.large, tuple(self.optional)
        return checkpoints.Intent(leads_to, self.birth, large, step.written, optional)

    def _checkpoint(
        self,
        positions: Sequence[Position],
        dead: RefusedKeys,
        intent: checkpoints.Intent | None = None,
        key_range: KeyRange = EVERY_KEY,
    ) -> bytes:
        """The state that the endpoint stores beside the rows of a range."""
        written = {
            name: at.reaches or (Reach(*EVERY_KEY, at.frontier),)
            for name, at in zip(self.prepared.names, positions, strict=True)
            if at.is_begun
        }
        checkpoint = checkpoints.encode(written, key_range, dead.keys)
        return checkpoint if intent is None else checkpoints.with_intent(checkpoint, intent)

    def _divided(self, index: int, piece: Part) -> Iterator[tuple[Lane, Part]]:
        """The share of each lane in the rows of a binding."""
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

    def _is_loaded(self, index: int) -> bool:
        """Whether any documents of a binding are loaded."""
        if self.prepared.bounds[index].delta:
            return False
        return not self.prepared.extensions.delete or self._is_compared(index)

    def _is_compared(self, index: int) -> bool:
        """Whether the keys with a row are loaded and compared.

        Never if the checkpoint is in the task's log: it may be older than the endpoint.
        """
        if not self.is_authoritative:
            return False
        verify = self.task.bindings[index].verify or self.task.default_verify
        return verify == "always" or (verify == "first" and self.is_first)


def check_held(
    place: str,
    collection: CollectionId,
    frontiers: Sequence[Timestamp],
    between: tuple[Timestamp, Timestamp],
) -> None:
    """Check that the frontiers of a place are beyond the hold and not beyond upper.

    `between` is the time from which on history is held, and the collection's upper.

    Errors: Forgotten, EndpointAhead.
    """
    held, upper = between
    if min(frontiers) <= held:
        raise Forgotten(
            f"{place}: expected {collection} at a frontier beyond {held}, up to which changes"
            f" are compacted, actual {min(frontiers)}: another session of the task committed"
            f" later, or wrote another endpoint, or the hold was dropped: {WRITTEN_AGAIN}"
        )
    if max(frontiers) > upper:
        raise EndpointAhead(
            f"{place}: expected {collection} at frontier {upper} or earlier, where the"
            f" collection ends, actual {max(frontiers)}: the endpoint was written from another"
            f" collection, or this one was restored to an earlier state: {WRITTEN_AGAIN}"
        )


def pieces(
    transaction: Transaction, chosen: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[int, int, Part]]:
    """The pieces of a transaction that fit in memory: binding, number, rows.

    `chosen`: of which bindings.
    """
    for index, part in enumerate(transaction.parts):
        if part is not None and chosen(index):
            for number, piece in enumerate(part.pieces()):
                yield index, number, piece


def encoded(value: object) -> bytes:
    """JSON as UTF-8; surrogates, which UTF-8 cannot hold, are escaped."""
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")


def json_object(members: Mapping[str, bytes]) -> bytes:
    """An object of members that are JSON: a number has all its digits."""
    return b"{%b}" % b", ".join(
        b"%b: %b" % (encoded(name), value) for name, value in members.items()
    )


def only(part: Part, inside: Flags) -> Part:
    """Some of the rows."""
    return Part(
        part.rows.filter(pa.array(inside)),
        part.exists[inside],
        part.deletes[inside],
        part.before.filter(pa.array(inside[part.exists])),
    )
