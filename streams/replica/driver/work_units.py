"""One dataflow's work in a micro-batch, and its description for the tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from streams.compute import binding, checkpoints, dead_letters
from streams.compute.event_time import Advance
from streams.compute.reclocking import Ingest, Position, Tick
from streams.compute.skipped_offsets import Skipped
from streams.compute.skipped_offsets import skipped as find_skipped
from streams.compute.stepping import Idle, Step
from streams.ids import CollectionId, Timestamp
from streams.kafka.log import ChunkRef
from streams.progress import Antichain, Interval, frontier
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.dataflow_state import Build
from streams.replica.tasks.descriptor import ChunkLoad, Load, Output, Runs, Share
from streams.storage.log.events import Offsets, Part, write_capability
from streams.storage.read.reader import Piece

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewUnit:
    """A view's whole step.

    `awaits` names the dataflows of the micro-batch whose Appends must have counted before.
    """

    flow: Dataflow
    share: Share
    loads: tuple[Load, ...]
    awaits: frozenset[CollectionId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUnit:
    """A source's whole interval; `ingest` has the offsets to read."""

    flow: Dataflow
    share: Share
    loads: tuple[Load, ...]
    ingest: Ingest


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceUnit:
    """The next slice of a dataflow's build."""

    flow: Dataflow
    share: Share
    loads: tuple[Load, ...]
    build: Build


@dataclass(frozen=True, slots=True, kw_only=True)
class EventUnit:
    """A micro-batch of a source with a watermark; `elapsed_ms` is when it was planned.

    `letters` is the position of its dead letters then: upper, and how far they are settled.
    `there` is the shard's position where another replica's Append is followed.
    """

    flow: Dataflow
    share: Share
    loads: tuple[Load, ...]
    advance: Advance
    elapsed_ms: int
    letters: Position | None = None
    there: Position | None = None


Unit = ViewUnit | SourceUnit | SliceUnit | EventUnit
"""One dataflow's work in a micro-batch, as the dataflow was when it was planned."""


def bounds(unit: Unit) -> Step:
    """Return the interval of a unit; a slice's is its build's."""
    return Step(frontier(unit.share.interval.lower), frontier(unit.share.interval.upper))


@dataclass(frozen=True, slots=True)
class IdleUnit:
    """An idle interval of a dataflow: only time moves.

    `awaits` is as in a `ViewUnit`.
    """

    flow: Dataflow
    move: Idle | Tick
    awaits: frozenset[CollectionId] = frozenset()


def share(
    flow: Dataflow, interval: Interval, runs: Mapping[int, Runs], output: Output | None
) -> Share:
    """Return the share of a dataflow in a micro-batch."""
    letters = None
    if flow.dead_letters is not None and output is not None:
        names = tuple(column.name for column in dead_letters.COLUMNS)
        headers = {"collection": flow.dead_letters.encode()}
        letters = replace(output, names=names, headers=headers)
    return Share(
        dataflow=flow.id,
        plan=flow.plan_name,
        interval=interval,
        runs=runs,
        output=output,
        letters=letters,
    )


def skipped(flow: Dataflow, bound: Offsets, letters: Offsets) -> tuple[Skipped, ...]:
    """Return what its dead letters still have to say about messages that are never read.

    `bound` is its binding, `letters` that of its dead letters.
    """
    if flow.dead_letters is None:
        return ()
    since = max(binding.generation(bound), binding.generation(letters))
    return find_skipped(flow.description.topic_starts, bound, since)


def part(
    flow: Dataflow,
    bounds: tuple[Antichain, Antichain],
    chunks: tuple[ChunkRef, ...] = (),
    offsets: tuple[Offsets, Offsets] | None = None,
    stages: tuple[str, ...] = (),
) -> Part:
    """Return the part of an Append for a dataflow's export."""
    return Part(
        collection=flow.id,
        capability=flow.description.capability,
        lower=bounds[0],
        upper=bounds[1],
        chunks=chunks,
        stages=stages,
        from_offsets=None if offsets is None else offsets[0],
        to_offsets=None if offsets is None else offsets[1],
        fingerprint=flow.fingerprint,
    )


def part_of_letters(
    flow: Dataflow,
    collection: CollectionId,
    bounds: tuple[Antichain, Antichain],
    chunks: tuple[ChunkRef, ...] = (),
    stages: tuple[str, ...] = (),
    offsets: tuple[Offsets, Offsets] | None = None,
) -> Part:
    """Return the part of an Append for a source's dead letters."""
    return Part(
        collection=collection,
        capability=write_capability(collection),
        lower=bounds[0],
        upper=bounds[1],
        chunks=chunks,
        stages=stages,
        from_offsets=None if offsets is None else offsets[0],
        to_offsets=None if offsets is None else offsets[1],
        fingerprint=flow.fingerprint,
    )


def without_output(share: Share) -> Share:
    """Return the share of a source in a micro-batch that writes dead letters alone."""
    return replace(share, output=None)


def after(time: Timestamp) -> Antichain:
    """Return the frontier of the times after `time`."""
    return Antichain((Timestamp(time + 1),))


def slices_of(
    items: Sequence[T], sizes: Sequence[int], budget: int
) -> tuple[tuple[T, ...], ...]:
    """Cut items in order into slices of at most `budget`; one slice for no items."""
    return tuple(
        tuple(items[index] for index in part) for part in checkpoints.slices(sizes, budget)
    )


def joined(loads: Sequence[ChunkLoad]) -> tuple[ChunkLoad, ...]:
    """Merge the loads so that each import has one."""
    pieces: dict[int, tuple[Piece, ...]] = {}
    first: dict[int, ChunkLoad] = {}
    for load in loads:
        pieces[load.index] = (*pieces.get(load.index, ()), *load.pieces)
        first.setdefault(load.index, load)
    return tuple(replace(load, pieces=pieces[index]) for index, load in first.items())
