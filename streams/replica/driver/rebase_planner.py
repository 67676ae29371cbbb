"""Plans a rebase: the updates of the next interval of event times, all at one time.

`streams.compute.rebasing` decides; this module adds what is read for it. Like a source a rebase
is stepped in the ingestion lane, so that it and the sources move together, and views over both
are near (`streams.replica.driver.fusion`).
"""

import uuid
from collections.abc import Sequence

from streams.compute import rebasing
from streams.compute.description import DataflowDescription
from streams.compute.rebasing import Rebasing
from streams.compute.reclocking import Clock, Ingest, Position
from streams.ids import MINIMUM_TIME, CollectionId, Timestamp
from streams.plan import physical
from streams.plan.physical import Import, Source
from streams.progress import Interval, frontier
from streams.replica.driver import work_units
from streams.replica.driver.dataflow import Dataflow
from streams.replica.driver.dataflow_state import Build
from streams.replica.driver.import_state import Imports
from streams.replica.driver.steady_planner import output_of
from streams.replica.driver.work_units import SourceUnit
from streams.replica.tasks.descriptor import ChunkLoad


def plan_of(description: DataflowDescription) -> physical.Dataflow:
    """Return the plan of a rebase: its import is its output."""
    (imported,) = description.imports
    types = tuple(column.type for column in description.columns)
    imports = (Import(imported.collection, description.columns),)
    return physical.Dataflow(imports, (Source(0),), (types,), (0,), description.columns)


def decide(
    flow: Dataflow, view: Imports, shard: Position, clock: Clock, budget: int
) -> Rebasing:
    """Decide about a running rebase that is not busy. Units: `budget` is in bytes."""
    assert flow.own is not None
    reached = rebasing.bound_frontier(shard.offsets)
    read = view.input(_import(flow), frontier(MINIMUM_TIME) if reached is None else reached)
    return rebasing.next_interval(flow.own.position, shard, read, clock, budget)


def why_overtaken(flow: Dataflow, view: Imports) -> str:
    """Return why a rebase cannot go on whose import was compacted."""
    read, bound = view.state(_import(flow)), view.state(flow.id).source or {}
    since = "the end" if read.since.is_empty else read.since.time
    return (
        f"expected the history of {read.id} from {bound[rebasing.FRONTIER]} on, its since is"
        f" {since}: drop the rebase and create it again"
    )


def loads(flow: Dataflow, view: Imports, decision: Ingest) -> tuple[ChunkLoad, ...]:
    """Return what is stamped, a load for each chunk, in the order of event times."""
    first = decision.from_offsets.get(rebasing.FRONTIER, MINIMUM_TIME)
    collection, end = _import(flow), decision.to_offsets[rebasing.FRONTIER]
    topic = view.shards.data_topic(collection)
    pieces = view.pieces(collection, Timestamp(first), Timestamp(end))
    return tuple(
        ChunkLoad(flow.id, 0, topic, (piece,), decision.time, cancels=True) for piece in pieces
    )


def planned(
    flow: Dataflow, view: Imports, decision: Ingest, slice_bytes: int
) -> SourceUnit | Build:
    """Return the work of an interval: of a large snapshot a build, in slices."""
    wanted = loads(flow, view, decision)
    sizes = [sum(piece.ref.size for piece in load.pieces) for load in wanted]
    if rebasing.FRONTIER not in decision.from_offsets and sum(sizes) > slice_bytes:
        return _build(decision, work_units.slices_of(wanted, sizes, slice_bytes))
    assert flow.own is not None
    interval = Interval(decision.lower.time, decision.upper.time)
    share = work_units.share(flow, interval, flow.own.runs, output_of(flow, view))
    return SourceUnit(flow=flow, share=share, loads=work_units.joined(wanted), ingest=decision)


def _build(decision: Ingest, parts: Sequence[Sequence[ChunkLoad]]) -> Build:
    return Build(
        incarnation=uuid.uuid4().hex,
        lower=decision.lower.time,
        upper=decision.upper.time,
        as_of=False,
        writes=True,
        slices=tuple(work_units.joined(part) for part in parts),
        sizes=tuple(
            sum(piece.ref.size for load in part for piece in load.pieces) for part in parts
        ),
        ingest=decision,
        offsets=decision.to_offsets,
    )


def _import(flow: Dataflow) -> CollectionId:
    (imported,) = flow.description.imports
    return imported.collection
