"""What the engine says of the work for each node."""

from pathlib import Path

import pyarrow as pa
import pytest

from streams.ids import CollectionId
from streams.operators import engine
from streams.operators.context import Context
from streams.operators.node_meter import NodeMeter
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column, Reduce, Source
from streams.progress import interval_of
from streams.trace.kernel.kernel import Kernel

RELATIONS = {"t": Relation(CollectionId("t"), (Column("k", "BIGINT"), Column("v", "BIGINT")))}
QUERY = "SELECT k, sum(v) AS total FROM t WHERE v > 0 GROUP BY k"


@pytest.mark.parametrize(
    ("rows", "passed"), [(6, 4), (30_000, 2)], ids=["few", "summed in place of passed"]
)
def test_rows_are_counted_where_they_come_and_go(
    tmp_path: Path, rows: int, passed: int
) -> None:
    names = map("run{}".format, range(1_000))
    context = Context(tmp_path, Kernel(), names.__next__)
    dataflow = compile_view(QUERY, RELATIONS).dataflow
    values = {"k": [n % 2 for n in range(rows)], "v": [n % 3 for n in range(rows)]}
    updates = pa.table({**values, "time": [5] * rows, "diff": [1] * rows})
    interval, meter = interval_of(5, 6, as_of=True), NodeMeter()
    started = engine.start(dataflow, {0: updates}, interval, 1, meter.on(context))
    (packet,) = started.packets
    inbox = {(packet.node, packet.port): [packet.table]}
    done, _ = engine.advance(
        dataflow, packet.level, 0, inbox, {}, interval, meter.on(context), buckets=1
    )
    kinds = {type(node): number for number, node in enumerate(dataflow.nodes)}
    source, reduce = meter.nodes[kinds[Source]], meter.nodes[kinds[Reduce]]
    assert source[1:] == (rows, rows)
    assert done.output is not None
    assert reduce[1:] == (packet.table.num_rows, done.output.num_rows) != (0, 0)
    linear = dataflow.nodes[kinds[Reduce]]
    assert isinstance(linear, Reduce)
    assert meter.nodes[linear.input][1:] == (rows, passed)
    assert all(micros > 0 for micros, *_ in meter.nodes.values())
