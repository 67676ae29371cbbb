"""One session of a task: from what the endpoint says it has, transaction after transaction.

A transaction is read and cut while the one before is being committed. Its changes are held
until the endpoint has confirmed them, so a session that dies at any moment loses nothing: the
next one asks the endpoint how far it is.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from connectors.driving import Stream
from connectors.protocol import messages, patch
from connectors.protocol.checks import document_keys
from connectors.protocol.messages import Tuples
from connectors.runtime import checkpoints
from connectors.runtime.cutting import Bound, Cutter, Part, Position, Transaction
from connectors.runtime.documents import CHANGED, GONE, Encoder
from connectors.runtime.fields import META
from connectors.runtime.following import Following
from connectors.runtime.preparing import Prepared
from connectors.runtime.recovery import Kept, RecoveryLog
from connectors.runtime.task import Materialization
from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.storage.read.options import Options, selection
from streams.storage.sinks.sink import NO_KEYS, Hashes
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import at, flatten, hash_columns

WAIT_MS = 200


class Drifted(InvalidUsage):
    """The endpoint does not hold what the collection says: somebody else has changed it."""


class Session:
    """An open stream, and where it is. One thread."""

    def __init__(  # noqa: PLR0913  dependencies
        self,
        *,
        task: Materialization,
        prepared: Prepared,
        following: Following,
        stream: Stream,
        log: RecoveryLog,
        kept: Kept,
        kernel: Kernel,
    ) -> None:
        self.task, self.prepared, self.following = task, prepared, following
        self.stream, self.kernel = stream, kernel
        self.log, self.kept = log, kept
        self.is_logged = not stream.checkpoint or bool(kept.driver)
        self.intent = None if stream.checkpoint else checkpoints.intent_of(kept.flow)
        self.cutter = self._resumed(following.hold())
        marks = not prepared.extensions.delete
        self.encoders = [
            Encoder(bound, binding.field_selection, kernel, marks=marks)
            for bound, binding in zip(prepared.bounds, prepared.spec.bindings, strict=True)
        ]
        self.is_first = any(each.is_begun for each in self.cutter.positions)
        self.committed = self.cutter.positions
        self.driver = kept.driver

    def _resumed(self, held: Mapping[CollectionId, Timestamp]) -> Cutter:
        """Where the endpoint is; a binding that it does not have yet begins with the others."""
        names = self.prepared.names
        frontiers = checkpoints.decode(self.stream.checkpoint or self.kept.flow, names)
        starts = [*held.values(), *(Timestamp(each - 1) for each in frontiers.values())]
        self.birth = Timestamp(max(starts)) if self.intent is None else self.intent.birth
        positions = []
        for name, bound in zip(names, self.prepared.bounds, strict=True):
            if name not in frontiers:
                positions.append(Position(self.birth, is_begun=False))
                continue
            time = frontiers[name]
            if time <= held[name[0]]:
                raise InvalidUsage(
                    f"{bound.name} holds {name[0]} before {time}, and changes before"
                    f" {held[name[0]]} are compacted away: drop the table and the task's"
                    " checkpoint to have it written again"
                )
            live = self._live(name[0], bound, time)
            positions.append(Position(time, is_begun=True, live=live))
        return Cutter(self.prepared.bounds, positions, self.kernel, self.task.limits.rows)

    def _live(self, collection: CollectionId, bound: Bound, time: Timestamp) -> Hashes:
        """The keys that have a row before `time`: of the past, the key's columns alone."""
        if bound.delta:
            return NO_KEYS
        before = Timestamp(time - 1)
        chosen = selection(Options(columns=bound.keys), bound.description)
        updates, _ = self.following.past(collection, before, chosen)
        types = [bound.description.types[place] for place in bound.places]
        rows = at(flatten([updates], arrow_schema(types)), before, self.kernel)
        return np.unique(hash_columns(rows, range(len(types)), self.kernel))

    @property
    def uppers(self) -> list[Timestamp]:
        """How far the collection of each binding is."""
        return [self.following.upper(each) for each in self.prepared.collections]

    def wait(self) -> bool:
        """Wait for changes; return whether all collections have some that were not read."""

        def ready() -> bool:
            return min(self.uppers) > self._read

        return self.following.wait(ready, WAIT_MS)

    @property
    def _read(self) -> Timestamp:
        """Up to where all bindings were read."""
        return Timestamp(min(map(self.cutter.upper, range(len(self.cutter.bindings)))))

    def gather(self) -> Transaction | None:
        """Read what has come, and cut the next transaction; None if there is none.

        One that was on its way when the session before ended is cut as it was.
        """
        if self.intent is not None:
            return self._intended(self.intent)
        transaction = self.cutter.cut()
        while transaction is None and min(self.uppers) > self._read:
            self._take()
            transaction = self.cutter.cut()
        return transaction

    def _intended(self, intent: checkpoints.Intent) -> Transaction | None:
        self.intent = None
        names = self.prepared.names
        aims = checkpoints.decode(intent.checkpoint, names)
        moved = [
            aims[name]
            for name, at in zip(names, self.cutter.positions, strict=True)
            if name in aims and (aims[name] > at.frontier or not at.is_begun)
        ]
        if not moved:
            return self.gather()
        while self._read < max(moved) and min(self.uppers) > self._read:
            self._take()
        return self.cutter.cut(max(moved))

    def _take(self) -> None:
        """Read more of the bindings that are behind, and of others that have little waiting."""
        limits, behind = self.task.limits, self._read
        for index, collection in enumerate(self.prepared.collections):
            start = self.cutter.positions[index].frontier
            lower = self.cutter.upper(index)
            is_new = not self.cutter.positions[index].is_begun and lower == start
            is_wanted = lower == behind or self.cutter.rows(index) < limits.rows
            if self.following.upper(collection) <= lower or not is_wanted:
                continue
            first = MINIMUM_TIME if is_new else lower
            (updates, errors), upper = self.following.read(
                collection, first, start, limits.bytes
            )
            self.cutter.take(index, updates, errors, upper)

    def begin(self, transaction: Transaction) -> None:
        """Send all of a transaction up to its commit. Errors: Drifted; as the stream.

        Where the log alone says what was committed, it says first what is on its way: if this
        session ends, the next one sends the same.
        """
        exists = self._verified(transaction)
        if not self.stream.checkpoint and transaction.rows:
            intent = checkpoints.Intent(self.checkpoint(transaction), self.birth)
            before = checkpoints.with_intent(self._checkpoint(self.committed), intent)
            self.log.write(Kept(before, self.kept.driver))
        for index, part in enumerate(transaction.parts):
            if part is None:
                continue
            there = exists.get(index)
            stored = part if there is None else with_exists(part, there)
            for message in self.encoders[index].stores(index, stored):
                self.stream.send(message)
        self.stream.send(messages.StartCommit())

    def end(self, transaction: Transaction) -> None:
        """Wait for the commit, and keep what the connector leaves to the driver."""
        self.stream.receive()
        self.kept = Kept(self.checkpoint(transaction), self.driver)
        if self.is_logged or self.kept.driver:
            self.log.write(self.kept)
        if self.stream.session.extensions.acknowledge:
            self.stream.acknowledge()
        self.committed, self.is_first = transaction.positions, False

    def release(self) -> None:
        """Give up the changes that the endpoint has."""
        frontiers: dict[CollectionId, Timestamp] = {}
        for collection, position in zip(self.prepared.collections, self.committed, strict=True):
            before = frontiers.get(collection, position.frontier)
            frontiers[collection] = min(before, position.frontier)
        self.following.release(frontiers)

    def checkpoint(self, transaction: Transaction) -> bytes:
        """What the endpoint keeps beside the transaction."""
        return self._checkpoint(transaction.positions)

    def _checkpoint(self, positions: Sequence[Position]) -> bytes:
        pairs = zip(self.prepared.names, positions, strict=True)
        return checkpoints.encode({name: at.frontier for name, at in pairs if at.is_begun})

    def _verified(self, transaction: Transaction) -> dict[int, list[bool]]:
        """End the loads; return of bindings that cannot delete which documents are there."""
        expected: dict[int, dict[bytes, bytes]] = {}
        loads: dict[int, Tuples] = {}
        for index, part in enumerate(transaction.parts):
            if part is not None and self._is_verified(index) and part.rows.num_rows:
                self._load(index, part, expected, loads)
        loaded, flushed = self.stream.flush(self.checkpoint(transaction))
        self.driver = patch.kept(self.driver, flushed)
        there: dict[int, dict[bytes, bytes]] = {index: {} for index in loads}
        for message in loaded:
            pointers = self.stream.session.bindings[message.binding].key_pointers
            keys = document_keys(message.documents, pointers)
            there[message.binding].update(zip(keys, message.documents, strict=True))
        for index, documents in there.items() if self.stream.checkpoint else ():
            # what the log says may be older than what is there
            compare(self.prepared.bounds[index].name, expected[index], documents)
        return {
            index: [key in there[index] for key in keys.packed]
            for index, keys in loads.items()
            if self._marks
        }

    def _load(
        self,
        index: int,
        part: Part,
        expected: dict[int, dict[bytes, bytes]],
        loads: dict[int, Tuples],
    ) -> None:
        encoder = self.encoders[index]
        before = encoder.encode(part.before, [CHANGED] * part.before.num_rows)
        expected[index] = dict(zip(before.keys.packed, before.documents, strict=True))
        keys = before.keys
        if self._marks:
            keys = encoder.encode(part.rows, [CHANGED] * part.rows.num_rows).keys
        if len(keys):
            loads[index] = keys
            self.stream.send(messages.Load(index, keys))

    @property
    def _marks(self) -> bool:
        return not self.prepared.extensions.delete

    def _is_verified(self, index: int) -> bool:
        if self.prepared.bounds[index].delta:
            return False
        if self._marks:
            return True  # whether a document is there is known by loading it alone
        verify = self.task.bindings[index].verify or "first"
        return verify == "always" or (verify == "first" and self.is_first)


def with_exists(part: Part, exists: Sequence[bool]) -> Part:
    """The same rows, of which others are there."""
    return Part(part.rows, np.array(exists, np.bool_), part.deletes, part.before)


def compare(place: str, expected: dict[bytes, bytes], actual: dict[bytes, bytes]) -> None:
    """Documents that are there are those that the collection says. Errors: Drifted.

    One that was deleted, where nothing can be deleted, is marked so.
    """
    for key in expected.keys() | actual.keys():
        wanted, found = plain(expected.get(key)), plain(actual.get(key))
        if wanted != found:
            raise Drifted(
                f"{place}: expected {shown(wanted)}, actual {shown(found)}: somebody else has"
                " changed it; put it back, or drop the table and the task's checkpoint to"
                " have it written again"
            )


def plain(document: bytes | None) -> object:
    """A document without its mark; None if there is none, or it is marked as deleted."""
    if document is None:
        return None
    value: dict[str, object] = json.loads(document)
    return None if value.pop(META, None) == {"op": GONE} else value


def shown(value: object) -> str:
    """A document, or none."""
    return "no row" if value is None else json.dumps(value, ensure_ascii=False)
