"""Keeps an index up with its collection: loads it, then follows the changes of the shard.

It holds nothing in the shard. If compaction passes what it has not read yet, or the shard
cannot be followed, it is loaded again. It is readable from some seconds before its upper on, so
that a peek whose time was chosen a moment ago finds its contents.
"""

import logging
from dataclasses import dataclass, field

from streams.compute.description import DataflowDescription
from streams.compute.peek_session import TargetBounds
from streams.errors import InvalidUsage, SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.plan import json as plans
from streams.plan.physical import Arrange
from streams.progress import END, frontier
from streams.replica.peeks.index import IndexContents
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import SinceViolation, changes, end, load_parts
from streams.trace.kernel.kernel import Kernel

log = logging.getLogger(__name__)

KEPT_MS = 5_000
"""History of an index before its upper."""


class IndexTooLarge(InvalidUsage):
    """The indexes of a replica would take more memory than they may have."""

    def __init__(self, index: CollectionId, most_bytes: int) -> None:
        super().__init__(index, most_bytes)
        self.index, self.most_bytes = index, most_bytes

    def __str__(self) -> str:
        mib = self.most_bytes >> 20
        return (
            f"index {self.index} does not fit: the indexes of a replica have {mib} MiB of"
            " memory together; raise --index-memory, drop it or another one, or index a view"
            " with fewer rows or columns"
        )


def key_of(description: DataflowDescription) -> tuple[int, ...]:
    """Return the positions of an index's key columns. Errors: InvalidUsage."""
    dataflow = plans.loads(description.plan)
    last = dataflow.nodes[-1] if dataflow.nodes else None
    if not isinstance(last, Arrange) or len(description.imports) != 1:
        raise InvalidUsage(f"index {description.export}: expected a plan that ends in Arrange")
    return last.keys


@dataclass(slots=True)
class IndexTail:
    """One index. One thread tends it; any thread reads `contents` and `problem`."""

    description: DataflowDescription
    contents: IndexContents | None = None
    problem: str = ""
    is_over: bool = False
    kernel: Kernel = field(default_factory=Kernel)

    @property
    def id(self) -> CollectionId:
        """Return the id of the index."""
        return self.description.export

    @property
    def bounds(self) -> TargetBounds:
        """Return since and upper of the index; none while it is being loaded."""
        contents = self.contents
        if self.problem:
            return TargetBounds(problem=self.problem)
        if contents is None:
            return TargetBounds()
        return TargetBounds(frontier(contents.since), contents.upper)

    @property
    def nbytes(self) -> int:
        """Return the bytes of its contents."""
        return 0 if self.contents is None else self.contents.nbytes

    def tend(self, shards: Shards, most_bytes: int, others: int, read_at: int) -> None:
        """Take what is new in the shard; `most_bytes` are for it and `others` together.

        It stays readable at `read_at`, if it is. A failure is kept as `problem` until it is
        over. An index that is too large stays so.
        """
        if self.is_over:
            return
        limit = _Limit(self.id, most_bytes, others)
        try:
            self._tend(shards, limit, read_at)
        except SinceViolation:
            self.contents = None  # compaction has passed it
        except IndexTooLarge as large:
            self.contents, self.problem, self.is_over = None, str(large), True
        except SlackwaterError as failure:
            self.problem = str(failure)
        else:
            self.problem = ""

    def _tend(self, shards: Shards, limit: "_Limit", read_at: int) -> None:
        (imported,) = self.description.imports
        if imported.group not in shards.groups():
            shards.open(imported.group)
        state = shards.state(imported.collection)
        if self.contents is None:
            self._load(shards, state, limit)
            return
        upper = self.contents.upper
        if upper.is_empty or not upper.strictly_precedes(state.upper):
            return
        news = changes(shards, state, upper.time)
        since = max(self.contents.since, min(_kept(news.upper), read_at))
        contents = self.contents.add(
            news.updates, news.errors, since, news.reached, self.kernel
        )
        self.contents = limit.kept(contents, self.kernel)

    def _load(self, shards: Shards, state: CollectionState, limit: "_Limit") -> None:
        if state.since.is_empty:
            raise InvalidUsage(f"{state.id} was dropped")
        as_of = max(self.description.as_of, state.since.time)
        if state.upper.less_equal(as_of):
            return
        since = max(as_of, _kept(end(state)))
        types = tuple(column.type for column in self.description.columns)
        contents = IndexContents(key_of(self.description), types, since, state.upper)
        parts = load_parts(shards, state.id, (MINIMUM_TIME, end(state)), Timestamp(as_of))
        for updates, errors in parts:
            contents = contents.add(updates, errors, since, state.upper, self.kernel)
            contents = limit.kept(contents, self.kernel)
        self.contents = contents
        log.info("index is loaded", extra={"index": self.id, "bytes": contents.nbytes})


@dataclass(frozen=True, slots=True)
class _Limit:
    """The memory of an index beside that of the others."""

    index: CollectionId
    most_bytes: int
    others: int

    def kept(self, contents: IndexContents, kernel: Kernel) -> IndexContents:
        """Return contents that fit, as one run if need be. Errors: IndexTooLarge."""
        if self.others + contents.nbytes > self.most_bytes:
            contents = contents.whole(kernel)
            if self.others + contents.nbytes > self.most_bytes:
                raise IndexTooLarge(self.index, self.most_bytes)
        return contents


def _kept(upper: int) -> int:
    """Return the time from which an index of this upper is readable."""
    return MINIMUM_TIME if upper == END else max(MINIMUM_TIME, upper - 1 - KEPT_MS)
