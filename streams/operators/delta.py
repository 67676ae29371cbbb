"""Delta joins: arrange the inputs, and look the changes of each input up in the others.

A combination of rows exists from the latest of their times on, with the product of their diffs
as its multiplicity. Each change of an input is looked up in the other inputs, one after the
other (`plan.analyses.delta_paths`), and sees of a partner

    the state before the interval  +  the partner's changes in it, before or up to its own time

So each combination of changes is produced once, at the time of the change that is looked up,
for any number of times in the interval; no intermediate result is stored. An Arrange stores its
input's rows by key, for all lookups by this key in all rounds: they read its state as of before
the interval, and receive the changes of the interval as updates.

As in a join, a NULL in a key matches nothing unless the position is `null_equal`, and such rows
are not stored. Conditions other than key equality are evaluated by a Linear after the lookup.

Cost: an Arrange O(its changes); a Lookup O(changes of the stream + rows they match), a search
in the state for each key, and the changes of the partner in the interval that match, of any
time. Of n inputs each change is looked up n - 1 times.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from streams.operators import join
from streams.operators.context import EngineCall, NodeOutput, Ports
from streams.plan.physical import Arrange, Lookup
from streams.trace.arrange import multiset
from streams.trace.arrange.runs import RunName
from streams.trace.columns import Ints, int64
from streams.trace.kernel.kernel import Kernel, arrow_schema
from streams.trace.updates import flatten

ROWS = "rows"


def step(
    node: Arrange | Lookup,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    output_types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    """The updates of an arrangement's input, and its new runs; or what a stream finds.

    Args:
        node: the arrangement or the lookup.
        ports: the input's updates, `in`; or those of the `stream`, and as `arranged` the
            changes of the arrangement in the interval.
        runs: the arrangement's before the interval, `rows`.
        output_types: the DuckDB types of the output's columns.
        scope: the worker's means.
    """
    if isinstance(node, Arrange):
        return _arrange(node, ports, runs, output_types, scope)
    return _lookup(node, ports, runs, output_types, scope)


def _arrange(
    node: Arrange,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    rows = flatten(ports["in"], arrow_schema(types))
    changes = join.changed_side(rows, node.keys, node, scope.kernel)
    run_names = multiset.insert(
        scope.context.files,
        runs.get(ROWS, []),
        join.stored_rows(changes, types),
        scope.kernel,
    )
    return NodeOutput(changes.rows, runs={ROWS: run_names})


def _lookup(
    node: Lookup,
    ports: Ports,
    runs: Mapping[str, list[RunName]],
    output_types: Sequence[str],
    scope: EngineCall,
) -> NodeOutput:
    if "stream" not in ports:
        return NodeOutput(None)
    dataflow, kernel = scope.dataflow, scope.kernel
    keeper = dataflow.nodes[node.arranged]
    assert isinstance(keeper, Arrange), keeper
    types = dataflow.types[node.stream], dataflow.types[node.arranged]
    rows, news = (
        flatten(ports.get(port, []), arrow_schema(kinds))
        for port, kinds in zip(("stream", "arranged"), types, strict=True)
    )
    side = join.changed_side(rows, node.keys, keeper, kernel)
    past = join.stored_side(runs.get(ROWS, []), side.hashes, types[1], keeper.keys, scope)
    schema = arrow_schema(output_types)
    met = join.matches(side, past, kernel)
    batches = [join.pairs(side, past, *match, schema) for match in met]
    assert side.times is not None, "updates have times"
    latest = side.times - 1 if node.strict else side.times
    if len(latest) and news.num_rows and int64(news.column("time")).min() <= latest.max():
        present = join.changed_side(news, keeper.keys, keeper, kernel)
        batches += _seen(side, latest, present, schema, kernel)
    return NodeOutput(flatten(batches, schema))


def _seen(
    lookups: join.JoinSide,
    latest: Ints,
    present: join.JoinSide,
    schema: pa.Schema,
    kernel: Kernel,
) -> Iterator[pa.RecordBatch]:
    """Join the lookups with this interval's changes up to the latest time that each sees."""
    assert present.times is not None, "updates have times"
    for lookup_places, present_places in join.matches(lookups, present, kernel):
        seen = present.times[present_places] <= latest[lookup_places]
        yield join.pairs(lookups, present, lookup_places[seen], present_places[seen], schema)
