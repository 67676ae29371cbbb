"""One stream of a task, which writes one range of the keys, or all of them.

The present documents are loaded and compared if the binding says so. If the connector cannot
delete, only a load tells whether a key without a row has a document.
"""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa

from connectors.driver import Stream
from connectors.protocol import messages
from connectors.protocol.json_pointers import read
from connectors.protocol.message_validation import document_keys
from connectors.protocol.messages import Flushed, Subrange, Tuples
from connectors.runtime.documents import CHANGED, GONE, Encoder
from connectors.runtime.fields import META
from connectors.runtime.ranges import KeyRange
from connectors.runtime.transactions import BoundCollection, Part
from streams.errors import InvalidUsage
from streams.storage.sinks.sink import Flags

Place = tuple[int, int]
"""A binding's index, and the number of a piece of its part of a transaction."""


class EndpointDrifted(InvalidUsage):
    """The endpoint's rows differ from the collection: another client has changed them."""


class Lane:
    """An open stream, and the keys that it writes. One thread."""

    def __init__(
        self, stream: Stream, bounds: Sequence[BoundCollection], encoders: Sequence[Encoder]
    ) -> None:
        self.stream, self._bounds, self._encoders = stream, bounds, encoders
        self.is_authoritative = bool(stream.checkpoint or stream.subranges)
        """Whether the checkpoint is the endpoint's, and not that of the task's log."""
        self._marks = not stream.session.extensions.delete
        self._asked: dict[Place, tuple[Tuples, Flags]] = {}
        """The keys that were loaded and their rows, where loads say what exists."""
        self._expected: dict[int, dict[bytes, bytes]] = {}
        """The documents that a transaction expects to exist, by binding and packed key."""
        self._there: dict[int, dict[bytes, bytes]] = {}
        """The documents that exist."""

    @property
    def key_range(self) -> KeyRange:
        """The range of key hashes."""
        return self.stream.session.range

    def subranges(self, logged: bytes) -> Sequence[Subrange]:
        """The checkpoints of its keys; `logged` is the log's, where the log decides."""
        return self.stream.subranges or [
            Subrange(*self.key_range, self.stream.checkpoint or logged)
        ]

    def load(self, place: Place, piece: Part) -> None:
        """Load the present documents of rows that are about to change."""
        index, _ = place
        encoder = self._encoders[index]
        before = encoder.encode(piece.before, [CHANGED] * piece.before.num_rows)
        expected = self._expected.setdefault(index, {})
        expected.update(zip(before.keys.packed, before.documents, strict=True))
        if self._marks:
            self._ask(place, piece, np.ones(piece.count, np.bool_))
        elif len(before.keys):
            self.stream.send(messages.Load(index, before.keys))

    def load_unknown(self, place: Place, piece: Part) -> None:
        """Load the documents of keys without a row in the collection.

        A connector that keeps deleted rows has them still, marked as deleted. Keys with a row
        have a document already and are not loaded: nothing is compared.
        """
        self._expected.setdefault(place[0], {})
        self._ask(place, piece, ~piece.exists)

    def _ask(self, place: Place, piece: Part, which: Flags) -> None:
        """Load the documents of the rows in `which`, and record that they were requested."""
        index, _ = place
        rows = piece.rows.filter(pa.array(which))
        keys = self._encoders[index].encode(rows, [CHANGED] * rows.num_rows).keys
        if len(keys):
            self._asked[place] = keys, which
            self.stream.send(messages.Load(index, keys))

    def flush(self, checkpoint: bytes) -> None:
        """End the loads."""
        self.stream.send(messages.Flush(checkpoint))

    def flushed(self, dead: AbstractSet[int]) -> Flushed:
        """Compare the present documents; return the connector's driver checkpoint.

        For the bindings in `dead` keys were left out as dead letters: their documents differ.

        Errors: Drifted; as the stream.
        """
        loaded, flushed = self.stream.flushed()
        self._there = {index: {} for index in self._expected}
        for message in loaded:
            bound = self.stream.session.bindings[message.binding]
            keys = document_keys(message.documents, bound)
            self._there[message.binding].update(zip(keys, message.documents, strict=True))
        for index, documents in self._there.items() if self.is_authoritative else ():
            # what the log says may be older than what is there
            wanted, actual = self._expected[index], documents
            if index in dead:
                actual = {key: documents[key] for key in wanted if key in documents}
            compare(self._bounds[index].name, wanted, actual)
        self._expected = {}
        return flushed

    def store(self, place: Place, piece: Part) -> None:
        """Send rows."""
        index, _ = place
        asked = self._asked.pop(place, None)
        if asked is not None:
            keys, which = asked
            exists, there = piece.exists.copy(), self._there[index]
            exists[which] = [key in there for key in keys.packed]
            piece = Part(piece.rows, exists, piece.deletes, piece.before)
        for message in self._encoders[index].stores(index, piece):
            self.stream.send(message)


def compare(place: str, expected: dict[bytes, bytes], actual: dict[bytes, bytes]) -> None:
    """Check that the actual documents are the expected ones. Errors: Drifted.

    A connector that cannot delete has a deleted document marked as deleted.
    """
    for key in expected.keys() | actual.keys():
        wanted, stored = plain(expected.get(key)), plain(actual.get(key))
        if wanted != stored:
            raise EndpointDrifted(
                f"{place}: expected {shown(wanted)}, actual {shown(stored)}: another client has"
                " changed it; put it back, or drop the table and the task's checkpoint to"
                " have it written again"
            )


def plain(document: bytes | None) -> object:
    """A document without its mark; None if there is none, or it is marked as deleted."""
    if document is None:
        return None
    value = read(document)
    assert isinstance(value, dict), "it was checked"
    return None if value.pop(META, None) == {"op": GONE} else value


def shown(value: object) -> str:
    """A document, or none. What no text can hold is written as JSON does."""
    if value is None:
        return "no row"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()
