"""What a worker answers: plans, and the rows of a SELECT. No input and no output.

It holds nothing from one request to the next but what makes the next one fast.
"""

import json
import pickle
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from streams.adapter.rows import rows
from streams.adapter.selecting import answer, kernel, refusing, too_much
from streams.adapter.workers.frames import LARGEST
from streams.adapter.workers.requests import (
    Check,
    Compute,
    Declare,
    Explain,
    Plan,
    Planned,
    Query,
    Request,
)
from streams.errors import SlackwaterError
from streams.ids import Timestamp
from streams.plan.compile import Selected, compile_select, compile_view, drawn, explain
from streams.plan.functions import function_of
from streams.plan.reading import columns_imported

BLOCK_BYTES = 1 << 20
"""About so many bytes of rows go in one frame."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take: bytes of memory, bytes of rows at a time, seconds."""

    memory: int = 2 << 30
    rows: int = 512 << 20
    seconds: float = 60.0

    def encoded(self) -> str:
        """For the command line."""
        return json.dumps([self.memory, self.rows, self.seconds])


class Answering:
    """Answers requests, one after the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kernel = kernel(limits.rows)
        plan, _ = self._planned(Query("SELECT 1 AS one", {}, ()))
        list(self._computed(plan, [], Timestamp(0)))

    def answer(
        self, request: Request, tables: Sequence[pa.Table], facts: dict[str, object]
    ) -> Iterator[bytes]:
        """The data of an answer; its facts are put into `facts`.

        Errors: InvalidStatement, InvalidUsage, RecursionError; MemoryError.
        """
        match request:
            case Plan(query):
                plan, planned = self._planned(query)
                facts |= planned
                yield pickle.dumps(plan)
            case Check(query):
                compile_view(query.text, query.relations, query.functions)
            case Explain(query, picture):
                told = (drawn if picture else explain)(
                    query.text, query.relations, query.functions
                )
                yield told.encode()
            case Declare(statement):
                function_of(statement)
            case Compute(plan, time):
                selected: Selected = pickle.loads(plan)  # noqa: S301  one of us made it
                facts["rows"] = yield from self._computed(selected, tables, time)
            case _:
                assert_never(request)

    def _planned(self, query: Query) -> tuple[Selected, Mapping[str, object]]:
        selected = compile_select(query.text, query.relations, query.functions)
        imports = tuple(
            (str(each.collection), columns_imported(selected.dataflow, index))
            for index, each in enumerate(selected.dataflow.imports)
        )
        shown = tuple((column.name, column.type) for column in selected.shown)
        return selected, Planned(imports, shown).facts()

    def _computed(
        self, selected: Selected, tables: Sequence[pa.Table], time: Timestamp
    ) -> Generator[bytes, None, int]:
        """The rows in blocks; returns their number."""
        try:
            table = answer(selected, tables, time, self._kernel)
            types = [column.type for column in selected.shown]
            with refusing():
                for piece in rows(table, types, self._kernel):
                    yield from blocks(piece.rows)
        except SlackwaterError:
            self._kernel = kernel(self._limits.rows)  # a fault of DuckDB's ends its database
            raise
        return int(table.num_rows)


def blocks(texts: Sequence[str]) -> Iterator[bytes]:
    """Rows as lines, in blocks of about BLOCK_BYTES.

    Errors: InvalidStatement for a row that is too large.
    """
    block: list[bytes] = []
    size = 0
    for text in texts:
        line = text.encode()
        if len(line) > LARGEST - BLOCK_BYTES:
            mib = (LARGEST - BLOCK_BYTES) >> 20
            raise too_much(f"expected rows of at most {mib} MiB as JSON, got one with more")
        block.append(line)
        size += len(line)
        if size > BLOCK_BYTES:
            yield b"\n".join(block)
            block, size = [], 0
    if block:
        yield b"\n".join(block)
