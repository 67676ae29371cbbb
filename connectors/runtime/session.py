"""One session of a task: from what the endpoint says it has, transaction after transaction.

A transaction is read and cut while the one before is being committed. Its changes are held
until the endpoint has confirmed them, so a session that dies at any moment loses nothing: the
next one asks the endpoint how far it is.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

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
from connectors.runtime.reading import NO_DIFFS, Reading, counted
from connectors.runtime.recovery import Kept, RecoveryLog
from connectors.runtime.task import Materialization
from streams.errors import InvalidUsage
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.storage.read.options import Options, selection
from streams.storage.sinks.sink import NO_KEYS, Hashes
from streams.trace.columns import int64
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten, hash_columns


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
        directory: Path,
    ) -> None:
        self.task, self.prepared, self.following = task, prepared, following
        self.stream, self.kernel = stream, kernel
        self.log, self.kept = log, kept
        self.is_logged = not stream.checkpoint or bool(kept.driver)
        intent = None if stream.checkpoint else checkpoints.intent_of(kept.flow)
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
        marks = not prepared.extensions.delete
        self.encoders = [
            Encoder(bound, binding.field_selection, kernel, marks=marks)
            for bound, binding in zip(prepared.bounds, prepared.spec.bindings, strict=True)
        ]
        self.is_first = any(each.is_begun for each in self.cutter.positions)
        self.committed = self.cutter.positions
        self.driver = kept.driver

    def _resumed(
        self, held: Mapping[CollectionId, Timestamp], intent: checkpoints.Intent | None
    ) -> Cutter:
        """Where the endpoint is; a binding that it does not have yet begins with the others."""
        names = self.prepared.names
        frontiers = checkpoints.decode(self.stream.checkpoint or self.kept.flow, names)
        starts = [*held.values(), *(Timestamp(each - 1) for each in frontiers.values())]
        self.birth = Timestamp(max(starts)) if intent is None else intent.birth
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
        types = [bound.description.types[place] for place in bound.places]
        hashes, diffs = [NO_KEYS], [NO_DIFFS]
        past = (MINIMUM_TIME, time)
        for updates, _ in self.following.parts(collection, past, before, chosen):
            rows = flatten([updates], arrow_schema(types))
            hashes.append(hash_columns(rows, range(len(types)), self.kernel))
            diffs.append(int64(rows.column("diff")))
        return counted(np.concatenate(hashes), np.concatenate(diffs))

    def begin(self, transaction: Transaction) -> None:
        """Send all of a transaction up to its commit. Errors: Drifted; as the stream.

        Where the log alone says what was committed, it says first what is on its way: if this
        session ends, the next one sends the same.
        """
        exists = self._verified(transaction)
        if not self.stream.checkpoint and transaction.rows:
            leads_to = self.checkpoint(transaction)
            intent = checkpoints.Intent(leads_to, self.birth, transaction.large)
            before = checkpoints.with_intent(self._checkpoint(self.committed), intent)
            self.log.write(Kept(before, self.kept.driver))
        for index, part in enumerate(transaction.parts):
            for number, piece in enumerate(part.pieces() if part is not None else ()):
                there = exists.get((index, number))
                stored = piece if there is None else with_exists(piece, there)
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
        self.reading.discard(transaction)

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

    def _verified(self, transaction: Transaction) -> dict[tuple[int, int], list[bool]]:
        """End the loads; return of bindings that cannot delete which documents are there.

        They are by binding and by the number of the piece.
        """
        expected: dict[int, dict[bytes, bytes]] = {}
        loads: dict[tuple[int, int], Tuples] = {}
        for index, part in enumerate(transaction.parts):
            if part is None or not self._is_verified(index):
                continue
            for number, piece in enumerate(part.pieces()):
                keys = self._load(index, piece, expected.setdefault(index, {}))
                if len(keys):
                    loads[index, number] = keys
        loaded, flushed = self.stream.flush(self.checkpoint(transaction))
        self.driver = patch.kept(self.driver, flushed)
        there: dict[int, dict[bytes, bytes]] = {index: {} for index in expected}
        for message in loaded:
            pointers = self.stream.session.bindings[message.binding].key_pointers
            keys_there = document_keys(message.documents, pointers)
            there[message.binding].update(zip(keys_there, message.documents, strict=True))
        for index, documents in there.items() if self.stream.checkpoint else ():
            # what the log says may be older than what is there
            compare(self.prepared.bounds[index].name, expected[index], documents)
        return {
            place: [key in there[place[0]] for key in keys.packed]
            for place, keys in loads.items()
            if self._marks
        }

    def _load(self, index: int, piece: Part, expected: dict[bytes, bytes]) -> Tuples:
        """Ask for what is there of some rows; return the keys."""
        encoder = self.encoders[index]
        before = encoder.encode(piece.before, [CHANGED] * piece.before.num_rows)
        expected.update(zip(before.keys.packed, before.documents, strict=True))
        keys = before.keys
        if self._marks:
            keys = encoder.encode(piece.rows, [CHANGED] * piece.rows.num_rows).keys
        if len(keys):
            self.stream.send(messages.Load(index, keys))
        return keys

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
