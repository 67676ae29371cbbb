"""What tasks tell the driver: for each dataflow, what it did, or that it failed.

A report holds names, never data: run files and chunks were written before it. The driver takes
the reports of a micro-batch all together or, if one of a dataflow's tasks failed, not at all.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streams.ids import CollectionId, Offset
from streams.kafka.log import ChunkRef, Limit, Range
from streams.plan.physical import Dataflow
from streams.replica.descriptor import Runs
from streams.replica.packed import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One task's work for a dataflow in one round.

    `runs` is the whole state of the bucket afterwards, None where no state was touched.
    """

    level: int
    bucket: int
    runs: Runs | None
    chunks: tuple[ChunkRef, ...]
    rows_in: int
    milliseconds: float


@dataclass(slots=True)
class Result:
    """What a micro-batch came to for one dataflow."""

    runs: dict[tuple[int, int], Runs] = field(default_factory=dict)
    """By (bucket, level): each is the whole state of that level's operators there."""
    chunks: list[ChunkRef] = field(default_factory=list)
    rows_in: int = 0
    milliseconds: float = 0.0
    failure: str | None = None


def dumps(report: Report) -> str:
    """The text of a report."""
    chunks = [
        [ref.partition, ref.offset, ref.key, ref.checksum, ref.rows, ref.size,
         [bounds and [bounds.low, bounds.high] for bounds in ref.ranges]]
        for ref in report.chunks
    ]  # fmt: skip
    return json.dumps(
        {
            "level": report.level,
            "runs": report.runs,
            "chunks": chunks,
            "rows": report.rows_in,
            "ms": report.milliseconds,
        }
    )


def loads(bucket: int, text: str) -> Report:
    """The report of a text."""
    facts = json.loads(text)
    chunks = tuple(
        ChunkRef(partition, Offset(offset), key, checksum, rows, size, _ranges(ranges))
        for partition, offset, key, checksum, rows, size, ranges in facts["chunks"]
    )
    return Report(
        level=facts["level"],
        bucket=bucket,
        runs=facts["runs"],
        chunks=chunks,
        rows_in=facts["rows"],
        milliseconds=facts["ms"],
    )


def _ranges(bounds: list[list[Limit] | None]) -> tuple[Range | None, ...]:
    return tuple(None if each is None else Range(*each) for each in bounds)


def gather(heads: Iterable[Head]) -> Mapping[CollectionId, Result]:
    """The results by dataflow; of one that failed anywhere, only `failure` is of use."""
    results: dict[CollectionId, Result] = {}
    for head in heads:
        result = results.setdefault(head.dataflow, Result())
        if head.kind == "failure":
            result.failure = head.body
        elif head.kind == "report":
            _add(result, loads(head.bucket, head.body))
    return results


def merge(plan: Dataflow, before: Mapping[int, Runs], result: Result) -> Mapping[int, Runs]:
    """The state after a micro-batch: what no task reported stays as it was."""
    after = dict(before)
    for (bucket, level), runs in result.runs.items():
        others = {each for each in plan.levels if each != level}
        after[bucket] = {**of_levels(plan, after.get(bucket, {}), others), **runs}
    return after


def of_levels(plan: Dataflow, runs: Runs, wanted: Collection[int]) -> Runs:
    """The runs of the operators at the wanted levels; their names begin with the node."""
    return {
        name: each
        for name, each in runs.items()
        if plan.levels[int(name.split(".")[0])] in wanted
    }


def _add(result: Result, report: Report) -> None:
    if report.runs is not None:
        result.runs[report.bucket, report.level] = report.runs
    result.chunks.extend(report.chunks)
    result.rows_in += report.rows_in
    result.milliseconds += report.milliseconds
