"""Sizes of the arrangements of dataflows, by operator: rows and bytes of their runs.

Small runs share files, so a run counts what lies between it and the next one that a dataflow
names, or the end of its file: bytes that nobody needs any more count to the run before them. A
file that is shared has `trace.arrange.runs.SHARED_FILE` bytes or a little more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streams.ids import CollectionId
from streams.plan.physical import NodeId
from streams.replica.driver.dataflow import Dataflow
from streams.replica.tasks.descriptor import Runs

NOTHING: Mapping[int, Runs] = {}


@dataclass(frozen=True, slots=True)
class ArrangementSize:
    """Rows, and bytes in files."""

    rows: int = 0
    bytes: int = 0


def state_of(flow: Dataflow) -> Mapping[int, Runs]:
    """Return the runs of a dataflow by bucket: those of its build while it has one."""
    if flow.build is not None:
        return flow.build.runs
    return NOTHING if flow.own is None else flow.own.runs


def arrangement_sizes(
    flows: Iterable[Dataflow], wanted: Iterable[Dataflow], file_bytes: Mapping[str, int]
) -> Mapping[CollectionId, Mapping[NodeId, ArrangementSize]]:
    """Return the sizes of some dataflows by operator; those without runs are left out.

    `flows` are all of the replica, and `file_bytes` has the sizes of their run files. One that
    is gone has no bytes.
    """
    states = {flow.id: state_of(flow) for flow in wanted}
    needed = {_place(name)[0] for state in states.values() for _, name, _ in _runs(state)}
    starts: dict[str, list[int]] = {file: [] for file in needed}
    for flow in flows:
        for _, name, _ in _runs(state_of(flow)):
            file, start = _place(name)
            if file in starts:
                starts[file].append(start)
    for offsets in starts.values():
        offsets.sort()
    return {id_: _sizes(state, starts, file_bytes) for id_, state in states.items()}


def _sizes(
    state: Mapping[int, Runs], starts: Mapping[str, list[int]], file_bytes: Mapping[str, int]
) -> Mapping[NodeId, ArrangementSize]:
    sizes: dict[NodeId, ArrangementSize] = {}
    for node, name, rows in _runs(state):
        file, start = _place(name)
        following = bisect_right(starts[file], start)
        sharing = following - bisect_left(starts[file], start)  # the parts of a clipped run
        ends = [*starts[file][following : following + 1], file_bytes.get(file, 0)]
        before = sizes.get(node, ArrangementSize())
        sizes[node] = ArrangementSize(
            before.rows + rows, before.bytes + max(0, min(ends) - start) // sharing
        )
    return sizes


def _runs(state: Mapping[int, Runs]) -> Iterator[tuple[NodeId, str, int]]:
    """Yield each run: its operator, its name, its number of rows."""
    for by_operator in state.values():
        for operator, runs in by_operator.items():
            number = int(operator.partition(".")[0])
            for name, rows, *_ in runs:
                yield number, str(name), int(rows)


def _place(name: str) -> tuple[str, int]:
    file, start, *_ = name.split(".")
    return file, int(start)
