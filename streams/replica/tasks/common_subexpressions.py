"""Common subexpressions of a task's dataflows over the same updates, computed once.

Updates are the same if they have one *origin*: pieces of a shard that are read unchanged, or
the output of another dataflow in this task (`fusion`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from streams.ids import CollectionId, Topic
from streams.operators import common_expressions
from streams.operators.common_expressions import Wanted
from streams.operators.linear import NOTHING, Computed
from streams.plan.physical import Import
from streams.replica.tasks.descriptor import ChunkLoad, Load, Share
from streams.storage.read.reader import Piece
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten

Origin = tuple[Topic, tuple[Piece, ...]] | CollectionId

Reader = tuple[str, int]
"""The plan of a dataflow, and the index of one of its imports."""


@dataclass(slots=True)
class SharedExpressions:
    """The readers of each origin and the shared results. `wanted`: a reader's expressions."""

    kernel: Kernel
    readers: Mapping[Origin, Sequence[Reader]]
    wanted: Callable[[str, int], frozenset[Wanted]]
    computed: dict[Origin, Computed] = field(default_factory=dict)

    def of(self, origin: Origin | None, what: Import, updates: pa.Table) -> Computed:
        """Return the shared results over the updates of an origin."""
        readers = () if origin is None else self.readers.get(origin, ())
        if origin is None or len(readers) < 2:  # noqa: PLR2004 - two can share
            return NOTHING
        if origin not in self.computed:
            types = [column.type for column in what.columns]
            rows = flatten([updates], arrow_schema(types))
            self.computed[origin] = common_expressions.compute(
                self._all(readers), rows, types, self.kernel
            )
        return self.computed[origin]

    def _all(self, readers: Iterable[Reader]) -> set[Wanted]:
        expressions: set[Wanted] = set()
        for plan, index in readers:
            # an unreadable plan is a failure of that dataflow, raised when it is stepped
            with suppress(Exception):
                expressions |= self.wanted(plan, index)
        return expressions


def readers(
    shares: Mapping[CollectionId, Share], loads: Mapping[CollectionId, Sequence[Load]]
) -> Mapping[Origin, Sequence[Reader]]:
    """Return the readers of each origin in a task with these loads."""
    by_origin: dict[Origin, list[Reader]] = {}
    for dataflow, share in shares.items():
        for collection, index in share.in_hand.items():
            by_origin.setdefault(collection, []).append((share.plan, index))
        for load in loads.get(dataflow, ()):
            origin = origin_of(load)
            if origin is not None and isinstance(load, ChunkLoad):
                by_origin.setdefault(origin, []).append((share.plan, load.index))
    return by_origin


def origin_of(load: Load) -> Origin | None:
    """Return the origin of a load's updates; None if they are not read unchanged."""
    if isinstance(load, ChunkLoad) and load.as_of is None and load.replay is None:
        return load.topic, load.pieces
    return None
