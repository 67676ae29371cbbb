"""Reports of tasks to the driver: for each dataflow, its result or its failure.

A report has names, never data: run files and chunks were written before it. The driver uses all
reports of a dataflow or, if one of its tasks failed, none.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streams.compute.event_time import Seen
from streams.ids import CollectionId, Offset
from streams.kafka.log import ChunkRef, Limit, Range
from streams.operators.node_meter import MeteredNode
from streams.plan.physical import Dataflow, NodeId
from streams.replica.ingest.event_times import NOTHING, together
from streams.replica.tasks.descriptor import Runs
from streams.replica.tasks.exchange_blobs import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The work of one task for a dataflow in one round.

    `runs` is the whole state of the bucket afterwards, None if it did not change.
    """

    level: int
    bucket: int
    runs: Runs | None
    chunks: tuple[ChunkRef, ...]
    rows_in: int
    milliseconds: float
    letters: tuple[ChunkRef, ...] = ()
    """The chunks of a source's dead letters."""
    seen: Seen = NOTHING
    """What was seen of a source's messages."""
    nodes: Mapping[NodeId, MeteredNode] = field(default_factory=dict)
    """The work of its operators."""
    runs_read: int = 0
    runs_brought: int = 0
    """How many of the runs that were read had to be copied from the store."""


@dataclass(slots=True)
class Result:
    """The result of a micro-batch for one dataflow."""

    runs: dict[tuple[int, int], Runs] = field(default_factory=dict)
    """By (bucket, level): the whole state of that level's operators there."""
    chunks: list[ChunkRef] = field(default_factory=list)
    letters: list[ChunkRef] = field(default_factory=list)
    seen: Seen = NOTHING
    rows_in: int = 0
    milliseconds: float = 0.0
    failure: str | None = None
    nodes: dict[NodeId, MeteredNode] = field(default_factory=dict)
    runs_read: int = 0
    runs_brought: int = 0


def dumps(report: Report) -> str:
    """Encode a report."""
    return json.dumps(
        {
            "level": report.level,
            "runs": report.runs,
            "chunks": _fields(report.chunks),
            "letters": _fields(report.letters),
            "rows": report.rows_in,
            "ms": report.milliseconds,
            "nodes": [[node, *work] for node, work in report.nodes.items()],
            "reads": [report.runs_read, report.runs_brought],
            "seen": [
                list(report.seen.greatest.items()),
                report.seen.refused,
                list(report.seen.late.items()),
                list(report.seen.skipped.items()),
                list(report.seen.bad.items()),
                list(report.seen.messages.items()),
            ],
        }
    )


def loads(bucket: int, text: str) -> Report:
    """Decode a report."""
    facts = json.loads(text)
    greatest, refused, *counts = facts["seen"]
    return Report(
        level=facts["level"],
        bucket=bucket,
        runs=facts["runs"],
        chunks=_refs(facts["chunks"]),
        rows_in=facts["rows"],
        milliseconds=facts["ms"],
        letters=_refs(facts["letters"]),
        seen=Seen(dict(greatest), tuple(refused), *map(dict, counts)),
        nodes={node: tuple(work) for node, *work in facts["nodes"]},
        runs_read=facts["reads"][0],
        runs_brought=facts["reads"][1],
    )


_Fields = list[tuple[int, int, str, int, int, int, list[list[Limit] | None]]]


def _fields(refs: Iterable[ChunkRef]) -> list[tuple[object, ...]]:
    return [
        (ref.partition, ref.offset, ref.key, ref.checksum, ref.rows, ref.size,
         [bounds and [bounds.low, bounds.high] for bounds in ref.ranges])
        for ref in refs
    ]  # fmt: skip


def _refs(fields: _Fields) -> tuple[ChunkRef, ...]:
    return tuple(
        ChunkRef(partition, Offset(offset), key, checksum, rows, size, _ranges(ranges))
        for partition, offset, key, checksum, rows, size, ranges in fields
    )


def _ranges(bounds: list[list[Limit] | None]) -> tuple[Range | None, ...]:
    return tuple(None if bound is None else Range(*bound) for bound in bounds)


def gather(heads: Iterable[Head]) -> Mapping[CollectionId, Result]:
    """Return the results by dataflow; if any task failed, only `failure` is meaningful."""
    results: dict[CollectionId, Result] = {}
    for head in heads:
        result = results.setdefault(head.dataflow, Result())
        if head.kind == "failure":
            result.failure = head.body
        elif head.kind == "report":
            _add(result, loads(head.bucket, head.body))
    return results


def merge(plan: Dataflow, before: Mapping[int, Runs], result: Result) -> Mapping[int, Runs]:
    """Return the state after a micro-batch: buckets without a report stay unchanged."""
    after = dict(before)
    for (bucket, level), runs in result.runs.items():
        others = {level_ for level_ in plan.levels if level_ != level}
        after[bucket] = {**of_levels(plan, after.get(bucket, {}), others), **runs}
    return after


def of_levels(plan: Dataflow, runs: Runs, wanted: Collection[int]) -> Runs:
    """Return the runs of the operators at the given levels; their names begin with the node."""
    return {
        name: run
        for name, run in runs.items()
        if plan.levels[int(name.split(".")[0])] in wanted
    }


def _add(result: Result, report: Report) -> None:
    if report.runs is not None:
        result.runs[report.bucket, report.level] = report.runs
    result.chunks.extend(report.chunks)
    result.letters.extend(report.letters)
    result.seen = together((result.seen, report.seen))
    result.rows_in += report.rows_in
    result.milliseconds += report.milliseconds
    result.runs_read += report.runs_read
    result.runs_brought += report.runs_brought
    for node, (micros, rows_in, rows_out) in report.nodes.items():
        before = result.nodes.get(node, (0, 0, 0))
        after = (before[0] + micros, before[1] + rows_in, before[2] + rows_out)
        result.nodes[node] = after
