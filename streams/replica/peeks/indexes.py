"""The indexes of a replica: which there are, what they hold, what is reported of them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streams.compute.description import DataflowDescription
from streams.compute.peek_session import TargetBounds
from streams.compute.peeks import Peek
from streams.compute.protocol import Frontiers, Response, Status
from streams.compute.replica_responses import HYDRATING
from streams.errors import InvalidUsage
from streams.ids import CollectionId
from streams.progress import END
from streams.replica.driver.arrangement_sizes import ArrangementSize
from streams.replica.driver.wakeup import Wakeup
from streams.replica.peeks.evaluation import keys_of, matching
from streams.replica.peeks.index_tail import IndexTail, key_of
from streams.storage.client.shards import Shards
from streams.storage.read.reader import Loaded
from streams.trace.kernel.kernel import Kernel


@dataclass(slots=True)
class Indexes:
    """All indexes; `most_bytes` of memory are for them together.

    `create` and `drop` belong to the thread that carries commands out, `tend` to the one that
    follows shards; any thread reads.
    """

    most_bytes: int
    wakeup: Wakeup
    _tails: Mapping[CollectionId, IndexTail] = field(default_factory=dict)
    _told: dict[CollectionId, tuple[Response, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, description: DataflowDescription) -> None:
        """Begin to load an index. Errors: InvalidUsage for a plan that is no index's."""
        key_of(description)
        with self._lock:
            self._tails = {**self._tails, description.export: IndexTail(description)}
        self.wakeup.ring()

    def drop(self, index: CollectionId) -> bool:
        """Forget an index, if there is one."""
        with self._lock:
            tails = dict(self._tails)
            tail = tails.pop(index, None)
            self._tails = tails
            self._told.pop(index, None)
        return tail is not None

    def bounds(self, index: CollectionId) -> TargetBounds:
        """Return since and upper of an index; none if it is not there, or is being loaded."""
        tail = self._tails.get(index)
        return TargetBounds() if tail is None else tail.bounds

    def find(self, peek: Peek, kernel: Kernel) -> Loaded:
        """Return the updates that an index has for a peek, and its errors.

        Errors: InvalidUsage if the index has gone, or its key is another one; PeekRefused.
        """
        index = peek.target.index
        tail = None if index is None else self._tails.get(index)
        contents = None if tail is None else tail.contents
        if contents is None or peek.time < contents.since:
            raise InvalidUsage(f"index {index} can no longer be read at {peek.time}")
        if peek.lookup is None:
            return contents.everything()
        if peek.lookup.columns != contents.keys:
            raise InvalidUsage(
                f"index {index}: expected a look-up by columns {list(contents.keys)},"
                f" actual {list(peek.lookup.columns)}"
            )
        types = list(contents.types)
        keys = keys_of(peek.lookup, types)
        updates, errors = contents.find(keys, kernel)
        matches = matching(updates, contents.keys, keys, types, kernel)
        return pa.Table.from_batches([matches]), errors

    def tend(self, shards: Shards, read_at: Mapping[CollectionId, int]) -> None:
        """Take what is new in the shards. An index stays readable at the time of `read_at`."""
        tails = self._tails
        for tail in tails.values():
            others = sum(other.nbytes for other in tails.values() if other is not tail)
            tail.tend(shards, self.most_bytes, others, read_at.get(tail.id, END))

    def every_bounds(self) -> Mapping[CollectionId, TargetBounds]:
        """Return the bounds of all indexes."""
        return {index: tail.bounds for index, tail in self._tails.items()}

    def sizes(self) -> Mapping[CollectionId, ArrangementSize]:
        """Return the rows and bytes of each index that is loaded."""
        return {
            index: ArrangementSize(contents.num_rows, contents.nbytes)
            for index, tail in self._tails.items()
            if (contents := tail.contents) is not None
        }

    def repeat(self) -> None:
        """Report everything again: a new iteration has begun."""
        with self._lock:
            self._told = {}

    def responses(self) -> list[Response]:
        """Return what is new to report."""
        with self._lock:
            news: list[Response] = []
            for index, tail in self._tails.items():
                said = _said(tail)
                before = self._told.get(index, ())
                news += [response for response in said if response not in before]
                self._told[index] = said
        return news


def _said(tail: IndexTail) -> tuple[Response, ...]:
    contents, problem = tail.contents, tail.problem
    if problem:
        state = "failed" if tail.is_over else "stalled"
    else:
        state = HYDRATING if contents is None else "running"
    status = Status(tail.id, state, problem)
    if contents is None:
        return (status,)
    upper = contents.upper
    return status, Frontiers(tail.id, write=upper, output=upper, input=upper)
