"""Tests every call of DuckDB's catalogue: does DuckDB bind it, does the planner take it?

Calls of one function are columns of one view; what is refused is found by halves.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streams.bench.sql.columns import COLUMNS
from streams.bench.sql.constructs import construct
from streams.bench.sql.signatures import CATALOGUE, Row, Signature, calls, signatures
from streams.errors import InvalidStatement
from streams.ids import CollectionId
from streams.plan.bind.binder import binder
from streams.plan.compile import Relation, compile_view
from streams.plan.physical import Column
from streams.trace.kernel.kernel import Kernel

TOGETHER = 40
"""Calls that one view has, if none of them is refused."""

_READ = re.compile(r"\b[xy]_\w+\b")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why calls are refused: the construct, and what to do instead."""

    construct: str
    hint: str


@dataclass(slots=True)
class FunctionResults:
    """The results of a function's calls.

    `examples` has one call of each reason; `failed` the calls at which the planner failed
    otherwise than by a refusal, which is a defect.
    """

    bound: int = 0
    refused: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """The number of calls that a view accepts."""
        return self.bound - self.refused.total() - len(self.failed)


Tallies = Mapping[tuple[str, str], FunctionResults]
"""Results by family and function."""


def catalogue(kernel: Kernel) -> list[Signature]:
    """The overloads of DuckDB's catalogue."""
    table = kernel.query(CATALOGUE)
    rows: Iterator[Row] = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return signatures(list(rows))


def survey(signatures: Sequence[Signature], most: int, tick: Callable[[], None]) -> Tallies:
    """Test at most this many calls of each overload; `tick` is called after each."""
    every: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    aggregates = {signature.name for signature in signatures if signature.kind == "aggregate"}
    for signature in signatures:
        every[signature.family, signature.name] += list(calls(signature))[:most]
    tallies = {}
    for (family, name), written in every.items():
        texts = list(dict.fromkeys(written))
        tally = tallies[family, name] = FunctionResults()
        for start in range(0, len(texts), TOGETHER):
            bound = list(_bound(texts[start : start + TOGETHER]))
            _add(tally, judged(bound, is_aggregate=name in aggregates))
        tick()
    return tallies


def _bound(texts: Sequence[str]) -> Iterator[str]:
    """The calls that DuckDB takes."""
    with binder({"every": _columns(texts)}) as bound:
        for text in texts:
            try:
                bound.check(f"SELECT {text} FROM every")
            except InvalidStatement:
                continue
            yield text


def judged(texts: Sequence[str], *, is_aggregate: bool) -> FunctionResults:
    """Test calls that DuckDB accepts."""
    tally = FunctionResults(len(texts))
    todo = [texts] if texts else []
    while todo:
        some = todo.pop()
        error = _error(some, is_aggregate=is_aggregate)
        if error is not None and len(some) > 1:
            middle = len(some) // 2
            todo += [some[middle:], some[:middle]]
        elif isinstance(error, InvalidStatement):
            reason = Reason(construct(error.message), error.hint)
            tally.refused[reason] += 1
            tally.examples.setdefault(reason, some[0])
        elif error is not None:
            tally.failed.append(f"{some[0]}: {type(error).__name__}: {error}")
    return tally


def _error(texts: Sequence[str], *, is_aggregate: bool) -> Exception | None:
    """The error that the planner raises for a view of these calls."""
    listed = ", ".join(f"{text} AS c{place}" for place, text in enumerate(texts))
    grouped = " GROUP BY g" if is_aggregate else ""
    catalog = {"every": Relation(CollectionId("every"), _columns(texts))}
    try:
        compile_view(f"SELECT {listed} FROM every{grouped}", catalog)
    except Exception as error:  # noqa: BLE001 - what is no refusal is what is looked for
        return error
    return None


def _add(tally: FunctionResults, more: FunctionResults) -> None:
    tally.bound += more.bound
    tally.refused += more.refused
    tally.examples = more.examples | tally.examples
    tally.failed += more.failed


def _columns(texts: Sequence[str]) -> tuple[Column, ...]:
    names = sorted({name for text in texts for name in _READ.findall(text)})
    read = [name for name in names if name[2:] in COLUMNS]
    return (Column("g", "INTEGER"), *(Column(name, COLUMNS[name[2:]]) for name in read))
