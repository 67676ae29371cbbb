"""A session of a task over a web hook: documents wait on disk and are sent at the commit.

The endpoint keeps no checkpoint, so the driver's log does. Before the first request of a
transaction the log says which one it is; a session that begins after a crash sends the same
one. What is sent depends on it alone: the id of a request is of task, key range, place,
checkpoint and number, its documents are cut by limits that the log keeps too.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from connectors.protocol.messages import Flush, Flushed, Load, Loaded, Open, Store, Subrange
from connectors.protocol.violations import Rule, Side, broken
from connectors.webhook.http_client import Sender
from schemas.blobs import Blobs
from schemas.consumer_pb2 import Checkpoint
from schemas.members import Members
from streams.errors import Corrupt

IN_MEMORY = 8 << 20
"""Bytes of a transaction beyond which its documents wait on disk."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The most documents of a request, and the most bytes of them."""

    documents: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The documents of a request: where they lie in the file."""

    binding: int
    number: int
    begin: int
    end: int


class Cutting:
    """The documents of a binding that do not fill a request yet."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.count = self.size = self.number = 0

    def add(self, documents: Blobs, limits: RequestLimits) -> Iterator[bytes]:
        """Take documents; yield those of each request that is full, as members of a list."""
        ends = documents.offsets[1:] - documents.offsets[0]
        start = 0
        while start < len(documents):
            before = int(ends[start - 1]) if start else 0
            fits = int(np.searchsorted(ends, before + limits.bytes - self.size, side="right"))
            stop = min(fits, start + limits.documents - self.count)
            if stop <= start and self.count:
                yield self.full()
                continue
            stop = max(stop, start + 1)  # one that is larger than a request may be is alone
            self.texts.append(b",".join(documents[start:stop]))
            self.count += stop - start
            self.size += int(ends[stop - 1]) - before
            start = stop

    def full(self) -> bytes:
        """End a request."""
        text = b",".join(self.texts)
        self.texts, self.count, self.size = [], 0, 0
        self.number += 1
        return text


class WebhookTransactor:
    """One session of a task."""

    checkpoint = b""
    subranges: Sequence[Subrange] = ()

    def __init__(
        self, sender: Sender, file: IO[bytes], limits: RequestLimits, message: Open
    ) -> None:
        spec = message.materialization
        self.sender, self.file, self.limits = sender, file, limits
        self.task = spec.materialization
        self.range = (f"{message.key_begin:08x}", f"{message.key_end:08x}")
        self.paths = ["/".join(binding.resource_path) for binding in spec.bindings]
        self.collections = [binding.collection.collection for binding in spec.bindings]
        self.kept = limits_of(message.driver_checkpoint) or limits
        """The letters of this transaction; others count once the log has them."""
        self.through = b""
        self.batches: list[Batch] = []
        self.cutting: list[Cutting] = []

    def acknowledge(self) -> None:
        """Never: it is not offered."""

    def load(self, message: Load) -> None:
        """Never: bindings are of delta updates."""
        raise AssertionError(f"the session refuses loads, as of binding {message.binding}")

    def flush(self, message: Flush) -> Iterator[Loaded | Flushed]:
        """Begin a transaction; nothing was asked for."""
        self.through = message.checkpoint
        self.cutting = [Cutting() for _ in self.paths]
        limits = {"documents": self.limits.documents, "bytes": self.limits.bytes}
        yield Flushed(json.dumps(limits).encode())

    def store(self, message: Store) -> None:
        """Put documents into the file, by requests."""
        cutting = self.cutting[message.binding]
        for text in cutting.add(Blobs.of(message.documents), self.kept):
            self._put(message.binding, text)

    def commit(self) -> None:
        """Send all requests, in order. Errors: as `Sender.send`; those before were sent."""
        for binding, cutting in enumerate(self.cutting):
            if cutting.count:
                self._put(binding, cutting.full())
        for batch in self.batches:
            self.file.seek(batch.begin)
            id_, body = self._request(batch, self.file.read(batch.end - batch.begin))
            self.sender.send(self.paths[batch.binding], id_, body)
        self.batches = []
        self.file.seek(0)
        self.file.truncate()
        self.kept = self.limits

    def _put(self, binding: int, text: bytes) -> None:
        begin = self.batches[-1].end if self.batches else 0
        self.file.seek(begin)
        self.file.write(text)
        number = self.cutting[binding].number - 1
        self.batches.append(Batch(binding, number, begin, begin + len(text)))

    def _request(self, batch: Batch, documents: bytes) -> tuple[str, bytes]:
        """The id of a request, and its body."""
        path = self.paths[batch.binding]
        named = [self.task, *self.range, path, self.through.hex(), batch.number]
        id_ = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]
        head = {
            "id": id_,
            "task": self.task,
            "key_begin": self.range[0],
            "key_end": self.range[1],
            "collection": self.collections[batch.binding],
            "path": path,
            "read_through": read_through(self.through),
            "batch": batch.number,
        }
        text = json.dumps(head, ensure_ascii=False).encode()
        return id_, b'%b, "documents": [%b]}' % (text[:-1], documents)


def limits_of(checkpoint: bytes) -> RequestLimits | None:
    """The limits that the driver's log has, if any. Errors: Violation by the driver."""
    try:
        members = Members.of("Open: driver checkpoint", checkpoint.decode() or "{}")
        if not members.values:
            return None
        return RequestLimits(members.count("documents"), members.count("bytes"))
    except (UnicodeDecodeError, Corrupt) as error:
        broken(Side.DRIVER, Rule.CHECKPOINT, str(error))


def read_through(checkpoint: bytes) -> object:
    """The position of each source, for people and programs."""
    try:
        value = MessageToDict(Checkpoint.FromString(checkpoint))
    except DecodeError:
        return {}
    sources: dict[str, dict[str, str]] = value.get("sources", {})
    return {name: int(source.get("readThrough", 0)) for name, source in sources.items()}
