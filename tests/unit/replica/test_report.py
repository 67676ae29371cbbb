"""What tasks report becomes the state after the micro-batch."""

from dataclasses import replace

from streams.ids import CollectionId, Offset
from streams.kafka.log import ChunkRef, Range
from streams.plan.physical import Column, Dataflow, Distinct, Import, Source
from streams.replica.tasks import report
from streams.replica.tasks.descriptor import Runs
from streams.replica.tasks.exchange_blobs import Head
from streams.replica.tasks.report import Report, gather, merge

REF = ChunkRef(partition=1, offset=Offset(7), key="k", checksum=9, rows=2, size=30)
PLAN = Dataflow(
    imports=(Import(CollectionId("s"), (Column("a", "INTEGER"),)),),
    nodes=(Source(0), Distinct(0), Distinct(1)),
    types=(("INTEGER",),) * 3,
    levels=(0, 1, 2),
    output=(Column("a", "INTEGER"),),
)


def told(level: int, bucket: int, runs: Runs | None, dataflow: str = "u") -> Head:
    original = Report(
        level=level, bucket=bucket, runs=runs, chunks=(REF,), rows_in=3, milliseconds=1.5
    )
    return Head(
        kind="report", step="s", dataflow=CollectionId(dataflow), bucket=bucket,
        body=report.dumps(original),
    )  # fmt: skip


def test_reports_of_one_dataflow_add_up() -> None:
    result = gather([told(1, 0, {"1.rows": [["x", 1]]}), told(1, 1, None)])[CollectionId("u")]
    assert result.chunks == [REF, REF]
    assert result.rows_in == 6
    assert result.runs == {(0, 1): {"1.rows": [["x", 1]]}}


def test_the_work_of_operators_adds_up_over_tasks() -> None:
    parts = [(2, {1: (10, 3, 1)}), (1, {1: (5, 2, 0), 0: (1, 2, 2)})]
    heads = [
        Head(
            kind="report", step="s", dataflow=CollectionId("u"), bucket=bucket,
            body=report.dumps(
                Report(
                    level=1, bucket=bucket, runs=None, chunks=(), rows_in=0, milliseconds=0.0,
                    nodes=nodes,
                )
            ),
        )
        for bucket, nodes in parts
    ]  # fmt: skip
    assert gather(heads)[CollectionId("u")].nodes == {1: (15, 5, 1), 0: (1, 2, 2)}


def test_ranges_of_chunks_survive_the_report() -> None:
    ranges = (Range(-1, 2**62), None, Range("a", "\u00e9"), Range(-float("inf"), 0.1))
    sent = Report(
        level=1, bucket=0, runs=None, chunks=(replace(REF, ranges=ranges), REF), rows_in=0,
        milliseconds=0.0,
    )  # fmt: skip
    received = report.loads(0, report.dumps(sent))
    assert received == sent
    assert [ref.ranges for ref in received.chunks] == [ranges, ()], "no part of their equality"


def test_a_failure_is_kept_beside_the_reports_of_others() -> None:
    failed = Head(kind="failure", step="s", dataflow=CollectionId("v"), bucket=0, body="boom")
    results = gather([failed, told(1, 0, None)])
    assert results[CollectionId("v")].failure == "boom"
    assert results[CollectionId("u")].failure is None


def test_each_level_replaces_its_own_operators_and_no_others() -> None:
    before: dict[int, Runs] = {
        0: {"1.rows": [["old1", 5]], "2.rows": [["old2", 5]]},
        1: {"1.rows": [["b", 1]]},
    }
    result = gather([told(2, 0, {"2.rows": [["new2", 6]]})])[CollectionId("u")]
    after = merge(PLAN, before, result)
    assert after == {
        0: {"1.rows": [["old1", 5]], "2.rows": [["new2", 6]]},
        1: {"1.rows": [["b", 1]]},
    }


def test_an_arrangement_that_became_empty_is_gone() -> None:
    before: dict[int, Runs] = {0: {"1.rows": [["old1", 5]]}}
    result = gather([told(1, 0, {})])[CollectionId("u")]
    assert merge(PLAN, before, result) == {0: {}}
