"""Plans hydrations and their slices for the hydration lane.

A build processes one interval in slices, one per micro-batch; state is carried from slice to
slice, the output is staged, and only the last slice appends it. It delays no other work: it has
a lane of its own, and slices of a bounded size.

For a snapshot at `as_of` every update happens at `as_of`, in the interval [as_of, as_of + 1).
An operator's output is the difference between its results before and after a slice, so the
slices' outputs add up to that of the whole snapshot, in any order; only the first slice is the
dataflow's birth.
"""

import uuid
from collections.abc import Iterable
from dataclasses import replace

from streams.ids import MINIMUM_TIME, Timestamp
from streams.progress import Interval
from streams.replica.driver import work_units
from streams.replica.driver.dataflow import Dataflow, Phase
from streams.replica.driver.dataflow_state import Build
from streams.replica.driver.import_state import Imports
from streams.replica.driver.steady_planner import output_of
from streams.replica.driver.task_assignment import size_of
from streams.replica.driver.work_units import SliceUnit
from streams.replica.tasks.descriptor import ChunkLoad, Undo


def plan(
    flows: Iterable[Dataflow], view: Imports, now_ms: int, budget: int
) -> tuple[SliceUnit, ...]:
    """Return the next slices of as many builds as fit the budget, at least one.

    Units: `budget` in bytes of chunks. Slices of raw messages have full size, so each has a
    micro-batch of its own.
    """
    units: list[SliceUnit] = []
    filled = 0
    for flow in flows:
        build = flow.build
        if build is None or not flow.is_ready(Phase.BUILDING, now_ms):
            continue
        size = budget if build.ingest is not None else build.sizes[build.done]
        if units and filled + size > budget:
            break
        filled += size
        units.append(_unit(flow, build, view))
    return tuple(units)


def _unit(flow: Dataflow, build: Build, view: Imports) -> SliceUnit:
    interval = Interval(build.lower, build.upper, build.as_of and build.done == 0)
    output = output_of(flow, view) if build.writes else None
    share = work_units.share(flow, interval, build.runs, output)
    loads = build.slices[build.done]
    return SliceUnit(flow=flow, share=share, loads=loads, build=build)


def upgrade(flow: Dataflow, view: Imports, as_of: Timestamp, budget: int) -> Build:
    """Plan a hydration at the shard's upper that also retracts all that the shard holds there.

    So the first Append under a new fingerprint is the difference between what this version
    computes and what an earlier one had appended (rule 24).
    """
    build = snapshot(flow, view, as_of, budget)
    pieces = view.pieces(flow.id, MINIMUM_TIME, as_of)
    if not pieces:
        return build
    topic = view.shards.data_topic(flow.id)
    parts = work_units.slices_of(pieces, [piece.ref.size for piece in pieces], budget)
    undone = [(Undo(flow.id, topic, part, as_of),) for part in parts]
    return replace(
        build,
        slices=(*build.slices, *undone),
        sizes=(*build.sizes, *(size_of(load) for (load,) in undone)),
    )


def snapshot(flow: Dataflow, view: Imports, as_of: Timestamp, budget: int) -> Build:
    """Plan a hydration at `as_of`, divided into slices once (rule 20).

    It writes unless the shard already has the times of its interval.
    """
    upper = Timestamp(as_of + 1)
    loads = [
        ChunkLoad(flow.id, index, view.shards.data_topic(imported.collection), (piece,), as_of)
        for index, imported in enumerate(flow.description.imports)
        for piece in view.pieces(imported.collection, MINIMUM_TIME, upper)
    ]
    parts = work_units.slices_of(loads, [size_of(load) for load in loads], budget)
    slices = tuple(work_units.joined(part) for part in parts)
    return Build(
        incarnation=uuid.uuid4().hex,
        lower=as_of,
        upper=upper,
        as_of=True,
        writes=view.state(flow.id).upper.less_equal(as_of),
        slices=slices,
        sizes=tuple(sum(size_of(load) for load in part) for part in slices),
    )


def resumed(build: Build, standing: int) -> Build | None:
    """Resume a stored build, given that `standing` chunks are in its stage.

    Chunks that it does not know are the next slice's: a driver staged them and died before it
    stored the progress. Repeating the slice would produce the same ones (rule 23), so they are
    used. None if the build has to start over: the last slice's chunks are never staged.
    """
    ahead = max(0, standing - build.staged)
    if ahead and build.done + 1 >= len(build.slices):
        return None
    return replace(build, ahead=ahead)
