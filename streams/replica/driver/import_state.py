"""The imports of dataflows, from the folded logs, in the form that `stepping` needs.

Fifty views over one source are usually at one frontier and read the same interval, so results
are cached. An `Imports` is used for one decision and then discarded; it reads each collection
once, so that a decision sees one state of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streams.compute.stepping import Input, InputBatch
from streams.errors import SlackwaterError
from streams.ids import MINIMUM_TIME, CollectionId, Offset, Timestamp
from streams.progress import Antichain, end_of, frontier, meet_all
from streams.replica.driver.dataflow import Dataflow
from streams.replica.tasks.descriptor import ChunkLoad
from streams.storage.client.shards import Shards
from streams.storage.log.state import CollectionState
from streams.storage.read.reader import Piece, pieces

NOWHERE: Mapping[CollectionId, Timestamp] = {}
"""Default of `until`: every import is read to its upper."""


@dataclass(slots=True)
class Imports:
    """The shards at one moment."""

    shards: Shards
    states: dict[CollectionId, CollectionState] = field(default_factory=dict)
    offsets: dict[CollectionId, Offset] = field(default_factory=dict)
    inputs: dict[tuple[CollectionId, Antichain], Input] = field(default_factory=dict)
    found: dict[tuple[CollectionId, Timestamp, Timestamp], tuple[Piece, ...]] = field(
        default_factory=dict
    )

    def state(self, collection: CollectionId) -> CollectionState:
        """Return the state of a collection."""
        if collection not in self.states:
            group = self.shards.group_of(collection)
            # the offset first: what the state says is not older
            self.offsets[collection] = self.shards.group_state(group).upto
            self.states[collection] = self.shards.state(collection)
        return self.states[collection]

    def read_from(self, flow: Dataflow) -> Mapping[CollectionId, Offset]:
        """Return an offset of the log of each import at or before the state that was read."""
        ids = [imported.collection for imported in flow.description.imports]
        for id_ in ids:
            self.state(id_)
        return {id_: self.offsets[id_] for id_ in ids}

    def of_flow(self, flow: Dataflow, own: Antichain) -> list[Input]:
        """Return the imports of a view whose state is at `own`."""
        return [self.input(imported.collection, own) for imported in flow.description.imports]

    def input(self, collection: CollectionId, own: Antichain) -> Input:
        """Return an import, with its batches from `own` on."""
        input_ = self.inputs.get((collection, own))
        if input_ is None:
            input_ = _input(self.state(collection), own)
            self.inputs[collection, own] = input_
        return input_

    def pieces(
        self, collection: CollectionId, lower: Timestamp, upper: Timestamp
    ) -> tuple[Piece, ...]:
        """Return the pieces with a collection's updates in [lower, upper)."""
        key = (collection, lower, upper)
        if key not in self.found:
            self.found[key] = pieces(self.state(collection), lower, upper)
        return self.found[key]

    def loads(
        self,
        flow: Dataflow,
        lower: Timestamp,
        upper: Timestamp,
        until: Mapping[CollectionId, Timestamp] = NOWHERE,
    ) -> tuple[ChunkLoad, ...]:
        """Return the loads of a step of a view over [lower, upper).

        An import in `until` is read up to that time only.
        """
        return tuple(
            ChunkLoad(flow.id, index, self.shards.data_topic(imported.collection), pieces)
            for index, imported in enumerate(flow.description.imports)
            if (end := until.get(imported.collection, upper)) > lower
            and (pieces := self.pieces(imported.collection, lower, end))
        )

    def sinces(self, flow: Dataflow) -> Mapping[CollectionId, Antichain]:
        """Return the since of each import."""
        ids = (imported.collection for imported in flow.description.imports)
        return {id_: self.state(id_).since for id_ in ids}


def _input(state: CollectionState, own: Antichain) -> Input:
    upper = end_of(state.upper)
    lower = MINIMUM_TIME if own.is_empty else own.time
    batches = tuple(
        InputBatch(
            frontier(batch.lower), batch.upper, sum(chunk.size for chunk in batch.chunks)
        )
        for batch in state.batches.overlapping(lower, upper)
        if batch.chunks
    )
    return Input(state.id, state.since, state.upper, batches)


def input_frontier(flow: Dataflow, shards: Shards) -> Antichain | None:
    """Return how far the logs of a dataflow's imports are folded.

    None if one cannot be followed, or if the dataflow binds: then its times are its own.
    """
    if flow.binds:
        return None
    try:
        uppers = [shards.state(imported).upper for imported in flow.holds]
    except SlackwaterError:
        return None
    return meet_all(uppers)
