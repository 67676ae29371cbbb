"""Executes the requests of a worker: plans, and the rows of a SELECT. No I/O.

Between requests it keeps only caches.
"""

import pickle
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import assert_never

import pyarrow as pa

from streams.adapter.row_encoding import rows
from streams.adapter.select import answer, compare, kernel, refusing
from streams.adapter.workers.framing import LARGEST
from streams.adapter.workers.limits import Limits, too_much
from streams.adapter.workers.requests import (
    Compare,
    Comparison,
    Compute,
    Declare,
    EncodeFiles,
    Explain,
    Import,
    PeekPlan,
    Plan,
    Planned,
    Query,
    Request,
    Types,
    View,
    Viewed,
    column_facts,
)
from streams.copies.encoding import encode, parquet_kernel
from streams.errors import SlackwaterError
from streams.ids import Timestamp
from streams.operators.linear import pick
from streams.plan import json as plans
from streams.plan.analyses.column_bounds import (
    column_comparisons,
    column_memberships,
    only_compares,
)
from streams.plan.analyses.column_usage import columns_imported
from streams.plan.bind.binder import canonical_columns
from streams.plan.bind.functions import function_of
from streams.plan.compile import (
    CompiledSelect,
    compile_select,
    compile_view,
    draw_plan,
    explain,
)
from streams.plan.physical import Linear, Node, Source
from streams.plan.source_types import refuse_source_types

BLOCK_BYTES = 1 << 20
"""About so many bytes of rows go in one frame."""


class RequestExecutor:
    """Executes requests, one after the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kernel = kernel(limits)
        plan, _ = self._planned(Query("SELECT 1 AS one", {}, ()))
        list(self._computed(plan, [], Timestamp(0)))

    def answer(  # noqa: C901, PLR0912  one case a request
        self, request: Request, tables: Sequence[pa.Table], facts: dict[str, object]
    ) -> Iterator[bytes]:
        """Yield the data of an answer; its facts are put into `facts`.

        Errors: InvalidStatement, InvalidUsage, RecursionError; MemoryError.
        """
        match request:
            case Plan(query):
                plan, planned = self._planned(query)
                facts |= planned
                yield pickle.dumps(plan)
            case View(query, born):
                text, viewed = _viewed(query, born)
                facts |= viewed.facts()
                yield text.encode()
            case Explain(query, picture):
                explained = (draw_plan if picture else explain)(
                    query.text, query.relations, query.functions
                )
                yield explained.encode()
            case Types(columns):
                canonical = canonical_columns(columns)
                refuse_source_types(canonical)
                facts["columns"] = column_facts(canonical)
            case Declare(statement):
                function = function_of(statement)
                pairs = zip(function.parameters, function.types, strict=True)
                facts["columns"] = [list(pair) for pair in pairs]
                facts["returns"] = function.returns
            case Compute(plan, time):
                selected: CompiledSelect = pickle.loads(plan)  # noqa: S301  one of us made it
                facts["rows"] = yield from self._computed(selected, tables, time)
            case EncodeFiles(plan, time, file_bytes):
                selected = pickle.loads(plan)  # noqa: S301  as above
                facts["files"] = yield from self._encoded(selected, tables, time, file_bytes)
            case Compare(plan, time):
                selected = pickle.loads(plan)  # noqa: S301  as above
                facts |= asdict(self._compared(selected, tables, time))
            case _:
                assert_never(request)

    def _planned(self, query: Query) -> tuple[CompiledSelect, Mapping[str, object]]:
        selected = compile_select(query.text, query.relations, query.functions)
        imports = tuple(
            Import(
                str(imported.collection),
                columns_imported(selected.dataflow, index),
                column_comparisons(selected.dataflow, index),
                column_memberships(selected.dataflow, index),
            )
            for index, imported in enumerate(selected.dataflow.imports)
        )
        shown = tuple((column.name, column.type) for column in selected.shown)
        return selected, Planned(imports, shown, _peek_plan(selected)).facts()

    def _computed(
        self, selected: CompiledSelect, tables: Sequence[pa.Table], time: Timestamp
    ) -> Generator[bytes, None, int]:
        """Yield the rows in blocks; return their number."""
        with self._renewing():
            table = answer(selected, tables, time, self._kernel, self._limits)
            types = [column.type for column in selected.shown]
            with refusing(self._limits):
                for piece in rows(table, types, self._kernel):
                    yield from blocks(piece.rows)
        return int(table.num_rows)

    def _encoded(
        self,
        selected: CompiledSelect,
        tables: Sequence[pa.Table],
        time: Timestamp,
        file_bytes: int,
    ) -> Generator[bytes, None, list[tuple[int, int]]]:
        """Yield the rows as Parquet, in blocks; return the rows and bytes of each file."""
        sizes: list[tuple[int, int]] = []
        with self._renewing():
            table = answer(selected, tables, time, self._kernel, self._limits)
            parquet = parquet_kernel(self._limits.memory // 4)
            with refusing(self._limits):
                for piece in encode(table, selected.shown, file_bytes, parquet, sizes):
                    for start in range(0, len(piece), BLOCK_BYTES):
                        yield piece[start : start + BLOCK_BYTES]
        return sizes

    def _compared(
        self, selected: CompiledSelect, tables: Sequence[pa.Table], time: Timestamp
    ) -> Comparison:
        *snapshots, actual = tables
        with self._renewing():
            return compare(selected, snapshots, actual, time, self._kernel, self._limits)

    @contextmanager
    def _renewing(self) -> Iterator[None]:
        """Replace the kernel after an error: a fault of DuckDB's ends its database."""
        self._kernel.raised.clear()
        try:
            yield
        except SlackwaterError:
            self._kernel = kernel(self._limits)
            raise


def _peek_plan(selected: CompiledSelect) -> PeekPlan | None:
    """Return the plan for a peek: it only compares and shows columns of one import."""
    dataflow = selected.dataflow
    is_plain = all(_is_plain(node, dataflow.types) for node in dataflow.nodes)
    if len(dataflow.imports) != 1 or not is_plain or any(dataflow.levels):
        return None
    order = ((key.position, key.descending, key.nulls_first) for key in selected.order)
    return PeekPlan(plans.dumps(dataflow), tuple(order))


def _is_plain(node: Node, types: Sequence[tuple[str, ...]]) -> bool:
    if not isinstance(node, Linear):
        return isinstance(node, Source)
    read = types[node.input]
    shown = (pick(output, read, output.type) for output in node.outputs)
    return only_compares(node, read) and all(place is not None for place in shown)


def _viewed(query: Query, born: Timestamp | None) -> tuple[str, Viewed]:
    """Return a view's plan and its facts.

    The plan is the one that its inputs and functions alone give: whatever else there is in a
    catalog, it is the same at each start of a coordinator.
    """
    compiled = compile_view(query.text, query.relations, query.functions, born)
    inputs = tuple(dict.fromkeys(imported.collection for imported in compiled.dataflow.imports))
    functions = tuple(function.name for function in compiled.dataflow.functions)
    needed = {n: r for n, r in query.relations.items() if r.id in inputs}
    if len(needed) < len(query.relations) or len(functions) < len(query.functions):
        compiled = compile_view(query.text, needed, compiled.dataflow.functions, born)
    keys = tuple(compiled.columns[place].name for place in compiled.key or ())
    viewed = Viewed(compiled.columns, inputs, functions, keys, compiled.kept)
    return plans.dumps(compiled.dataflow), viewed


def blocks(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield rows as lines, in blocks of about BLOCK_BYTES.

    Errors: InvalidStatement for a row that is too large.
    """
    block: list[bytes] = []
    size = 0
    for text in texts:
        line = text.encode()
        if len(line) > LARGEST - BLOCK_BYTES:
            mib = (LARGEST - BLOCK_BYTES) >> 20
            raise too_much(f"expected rows of at most {mib} MiB as JSON, actual one with more")
        block.append(line)
        size += len(line)
        if size > BLOCK_BYTES:
            yield b"\n".join(block)
            block, size = [], 0
    if block:
        yield b"\n".join(block)
