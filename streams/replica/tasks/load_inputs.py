"""Loads the inputs of a task of round 0: each chunk once, for all dataflows that read it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import pyarrow as pa

from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.log import Chunks
from streams.replica.ingest import source
from streams.replica.ingest.envelope import IngestResult
from streams.replica.ingest.refusals import LETTERS, letters_of
from streams.replica.ingest.source import Resources
from streams.replica.tasks.descriptor import ChunkLoad, Load, RawLoad, Undo
from streams.storage.read import reader as read
from streams.storage.read.reader import Piece
from streams.trace.columns import int64, one_array
from streams.trace.exact.diffs import negated
from streams.trace.kernel.kernel import Kernel
from streams.trace.updates import consolidate_if_needed, flatten

Loaded = tuple[pa.Table, pa.Table]
"""Updates c0 .. cn, time, diff; and errors error, time, diff."""


@dataclass(slots=True)
class Loader:
    """Loads for one task, with a cache until the task ends."""

    chunks: Chunks
    resources: Resources
    loaded: dict[tuple[Topic, tuple[Piece, ...]], Loaded] = field(default_factory=dict)

    def load(self, load: Load) -> IngestResult:
        """Return the updates of one load.

        Errors: Corrupt; Undecodable; Determinate if Kafka fails.
        """
        if isinstance(load, RawLoad):
            loaded = source.load(
                load.source,
                load.columns,
                load.slices,
                load.time,
                self.resources,
                load.manner,
            )
            return with_skipped(loaded, load)
        return IngestResult(*self._stored(load), LETTERS.empty_table())

    def _stored(self, load: ChunkLoad | Undo) -> Loaded:
        match load:
            case ChunkLoad(topic=topic, pieces=pieces):
                loaded = self._fetch(topic, pieces)
                if load.as_of is not None:
                    loaded = _at(loaded, load.as_of)
                if load.cancels:
                    loaded = _cancelled(loaded, self.resources.kernel)
                if load.replay is None:
                    return loaded
                replay = load.replay
                return source.replay(replay.source, replay.columns, loaded, self.resources)
            case Undo(topic=topic, pieces=pieces, time=time):
                updates, errors = _at(self._fetch(topic, pieces), time)
                return _negated(updates), _negated(errors)
            case _:
                assert_never(load)

    def _fetch(self, topic: Topic, pieces: tuple[Piece, ...]) -> Loaded:
        loaded = self.loaded.get((topic, pieces))
        if loaded is None:
            updates, errors = read.load(self.chunks, topic, pieces)
            loaded = updates.combine_chunks(), errors  # once, not for each dataflow
            self.loaded[topic, pieces] = loaded
        return loaded


def _at(loaded: Loaded, time: Timestamp) -> Loaded:
    return read.advance_times(loaded[0], time), read.advance_times(loaded[1], time)


def _cancelled(loaded: Loaded, kernel: Kernel) -> Loaded:
    """Return updates and errors without those that cancel each other at one time."""
    updates, errors = (
        pa.Table.from_batches([consolidate_if_needed(flatten([table], table.schema), kernel)])
        for table in loaded
    )
    return updates, errors


def _negated(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("diff")
    diffs = pa.array(negated(int64(one_array(table.column("diff")))))
    return table.set_column(index, "diff", diffs)


def with_skipped(loaded: IngestResult, load: RawLoad) -> IngestResult:
    """Return what was loaded, with the dead letters about messages that are never read."""
    if not load.skipped:
        return loaded
    letters_at = load.manner.letters_at
    letters = letters_of(
        load.skipped,
        load.time if letters_at is None else letters_at,
        has_event_times=load.source.watermark is not None,
    )
    return replace(loaded, letters=pa.concat_tables([loaded.letters, letters]))


def by_dataflow(loads: Iterable[Load]) -> Mapping[CollectionId, Sequence[Load]]:
    """Return the loads of a task, by dataflow."""
    result: dict[CollectionId, list[Load]] = {}
    for load in loads:
        result.setdefault(load.dataflow, []).append(load)
    return result


def index_of(load: Load) -> int:
    """Return the index of the import that a load is for; an ingestion has one import."""
    return load.index if isinstance(load, ChunkLoad) else 0
