"""Scheduling rules that all drivers of rounds share: the tasks of a round, and their inputs.

A step of a dataflow is `depth + 1` rounds: round 0 reads the imports (`engine.start`), round n
advances level n of each bucket (`engine.advance`). The replica's tasks carry packets through
Spark's shuffle, `streams.operators.local` in memory, the benchmark's workers in files. Drivers
implement the transport; the rules are in this module.
"""

from collections.abc import Collection, Iterable

import pyarrow as pa

from streams.operators import engine
from streams.operators.context import Packet, RunsByOperator
from streams.plan.physical import Dataflow, NodeId
from streams.progress import Interval

Inbox = dict[tuple[NodeId, str], list[pa.Table]]
"""The tables sent to a level of a bucket, by node and port."""


def scheduled_levels(
    dataflow: Dataflow, runs: RunsByOperator, interval: Interval
) -> Collection[int]:
    """Return the levels at which a bucket works even if no packet comes.

    At a birth these are all levels, else those with updates pending below the interval's upper.
    """
    if interval.as_of:
        return range(1, dataflow.depth + 1)
    return engine.due(dataflow, runs, interval.upper)


def inbox(packets: Iterable[Packet]) -> Inbox:
    """Return the tables of packets by node and port, in order of arrival."""
    tables: Inbox = {}
    for packet in packets:
        tables.setdefault((packet.node, packet.port), []).append(packet.table)
    return tables
