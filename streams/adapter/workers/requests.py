"""The requests and answers of workers, and their encodings.

Requests are pickled, because the coordinator makes them. An answer comes from a process that
has run users' code, so it is text, JSON or bytes that the coordinator passes on unread.
"""

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from streams.adapter.workers.framing import Garbled
from streams.ids import CollectionId, Timestamp
from streams.plan.analyses.column_bounds import OPERATORS, ColumnComparison, ColumnMembership
from streams.plan.compile import Relation
from streams.plan.physical import Column
from streams.plan.sql.statements import CreateFunction
from streams.trace.kernel.functions import Function


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT's text and what its names mean."""

    text: str
    relations: Mapping[str, Relation]
    functions: tuple[Function, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan a SELECT. The data is the plan, for `Compute`; the facts are those of `Planned`."""

    query: Query


@dataclass(frozen=True, slots=True)
class View:
    """Plan a view. The data is its plan in JSON; the facts are those of `Viewed`.

    `born` is its first time, if it is known: only EMIT ON CLOSE depends on it.
    """

    query: Query
    born: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """Show the plan of a view. The data is text, or a picture."""

    query: Query
    picture: bool


@dataclass(frozen=True, slots=True)
class Types:
    """Spell the types of a source's columns as DuckDB does. No data; the fact is `columns`."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Declare:
    """Run the body of a function once, to see that it defines the function.

    No data; the facts are `columns`, its arguments as DuckDB spells them, and `returns`.
    """

    statement: CreateFunction


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute a SELECT from the snapshots of its imports, which follow as tables in order.

    The data are rows, each the text of a JSON array on a line of its own; the fact `rows` is
    their number.
    """

    plan: bytes
    time: Timestamp


@dataclass(frozen=True, slots=True)
class EncodeFiles:
    """Compute a SELECT, as `Compute`, and encode its rows as Parquet.

    The data are files of at most about `file_bytes` bytes, one behind the other; the facts are
    those of `FileSizes`.
    """

    plan: bytes
    time: Timestamp
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Compute a SELECT, as `Compute`, and compare its rows with those of one table more.

    That table follows last. No data; the facts are those of `Comparison`.
    """

    plan: bytes
    time: Timestamp


Request = Plan | View | Explain | Types | Declare | Compute | EncodeFiles | Compare


def encoded(request: Request, tables: int) -> bytes:
    """The body of a REQUEST frame, which so many tables follow."""
    return pickle.dumps((tables, request))


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer.

    `refused` is the statement's error: message, detail, hint. `defect` is what went wrong that
    is no fault of the statement's. A worker that is `spent` takes no further request.
    """

    facts: Mapping[str, object] = field(default_factory=dict)
    refused: tuple[str, str, str] | None = None
    defect: str = ""
    spent: bool = False

    def encoded(self) -> bytes:
        """The body of an END frame."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decoded(body: bytes) -> "Ended":
        """The reverse of `encoded`. Errors: Garbled."""
        try:
            document = json.loads(body)
            refused = document["refused"]
            if refused is not None:
                message, detail, hint = map(str, refused)
                refused = message, detail, hint
            return Ended(
                dict(document["facts"]),
                refused,
                str(document["defect"]),
                bool(document["spent"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise Garbled("a worker's answer has an invalid end") from error


def column_facts(columns: Sequence[Column]) -> list[list[str]]:
    """Columns in JSON's types."""
    return [[column.name, column.type] for column in columns]


def columns_told(facts: Mapping[str, object]) -> tuple[Column, ...]:
    """The fact `columns`. Errors: Garbled."""
    match facts:
        case {"columns": list(columns)}:
            try:
                return tuple(Column(str(name), str(kind)) for name, kind in columns)
            except (ValueError, TypeError) as error:
                raise Garbled("a worker returned columns of the wrong form") from error
        case _:
            raise Garbled("a worker's answer has no columns")


def declared(statement: CreateFunction, facts: Mapping[str, object]) -> Function:
    """The function that a worker found a statement to create. Errors: Garbled."""
    columns, returns = columns_told(facts), facts.get("returns")
    if len(columns) != len(statement.parameters) or not isinstance(returns, str):
        raise Garbled("a worker returned a function of the wrong form")
    names, types = (tuple(getattr(c, part) for c in columns) for part in ("name", "type"))
    return Function(statement.name, names, types, returns, statement.body)


@dataclass(frozen=True, slots=True)
class Viewed:
    """The coordinator's facts about a view: its columns, what it reads and calls.

    `keys` are columns in which no two rows are equal, whatever the inputs hold; empty if none
    are known. `kept` says what keeps rows of windows that have closed (EMIT ON CLOSE).
    """

    columns: tuple[Column, ...]
    inputs: tuple[CollectionId, ...]
    functions: tuple[str, ...]
    keys: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def facts(self) -> dict[str, object]:
        """The facts of a view in JSON's types."""
        return {
            "columns": column_facts(self.columns),
            "inputs": list(self.inputs),
            "functions": list(self.functions),
            "keys": list(self.keys),
            "kept": list(self.kept),
        }

    @staticmethod
    def told(facts: Mapping[str, object]) -> "Viewed":
        """The reverse of `facts`. Errors: Garbled."""
        match facts:
            case {
                "inputs": list(inputs),
                "functions": list(functions),
                "keys": list(keys),
                "kept": list(kept),
            }:
                return Viewed(
                    columns_told(facts),
                    tuple(CollectionId(str(input_)) for input_ in inputs),
                    tuple(map(str, functions)),
                    tuple(map(str, keys)),
                    tuple(map(str, kept)),
                )
            case _:
                raise Garbled("a worker's view has no inputs, functions, keys and kept")


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The rows and the bytes of each file."""

    files: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(rows for rows, _ in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(size for _, size in self.files)

    @staticmethod
    def told(facts: Mapping[str, object]) -> "FileSizes":
        """Decode the facts of an answer. Errors: Garbled."""
        try:
            match facts:
                case {"files": list(files)} if files:
                    sizes = tuple((int(pair[0]), int(pair[1])) for pair in files)
                    if all(rows >= 0 and size > 0 for rows, size in sizes):
                        return FileSizes(sizes)
            raise Garbled("a worker's files have no sizes")
        except (ValueError, TypeError) as error:
            raise Garbled("a worker returned files of the wrong form") from error


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of a query, how many of them a table lacks, and how many more it has."""

    rows: int
    missing: int
    excess: int

    @staticmethod
    def told(facts: Mapping[str, object]) -> "Comparison":
        """Decode the facts of an answer. Errors: Garbled."""
        match facts:
            case {"rows": int(rows), "missing": int(missing), "excess": int(excess)}:
                return Comparison(rows, missing, excess)
            case _:
                raise Garbled("a worker's comparison has no counts")


@dataclass(frozen=True, slots=True)
class Import:
    """A collection that a SELECT reads.

    `columns` are the positions of those that matter; each row that counts meets `where` and
    `members`.
    """

    collection: str
    columns: frozenset[int]
    where: tuple[ColumnComparison, ...] = ()
    members: tuple[ColumnMembership, ...] = ()

    @staticmethod
    def told(
        collection: object,
        columns: Iterable[int],
        where: Iterable[Sequence[object]],
        members: Iterable[Sequence[object]],
    ) -> "Import":
        """Decode one fact of a plan. Errors: ValueError, TypeError."""
        return Import(
            str(collection),
            frozenset(map(int, columns)),
            tuple(_compared(*condition) for condition in where),
            tuple(_member(*membership) for membership in members),
        )


def _compared(column: object, operator: object, value: object) -> ColumnComparison:
    """Errors: TypeError."""
    match column, operator, value:
        case int(), str(), int() | float() | str() if operator in OPERATORS:
            return ColumnComparison(column, operator, value)
        case _:
            raise TypeError("a comparison is a column, an operator and a constant")


def _member(column: object, values: object) -> ColumnMembership:
    """Errors: TypeError."""
    if not isinstance(column, int) or not isinstance(values, list):
        raise TypeError("a membership is a column and constants")
    if not values or not all(isinstance(value, int | float | str) for value in values):
        raise TypeError("a membership has constants")
    return ColumnMembership(column, tuple(values))


@dataclass(frozen=True, slots=True)
class PeekPlan:
    """A plan that a peek can carry: JSON of filters and projections of its one import.

    `order` has the position of each term, whether it descends, and whether NULLs come first.
    """

    plan: str
    order: tuple[tuple[int, bool, bool], ...]

    @staticmethod
    def told(fact: object) -> "PeekPlan | None":
        """Decode the fact. Errors: ValueError, TypeError."""
        match fact:
            case None:
                return None
            case [str(plan), list(order)]:
                return PeekPlan(plan, tuple((int(c), bool(d), bool(n)) for c, d, n in order))
            case _:
                raise TypeError("a plan of a peek is a text and an order")


@dataclass(frozen=True, slots=True)
class Planned:
    """The coordinator's facts about a plan.

    `shown` are the names and types of the columns of the answer. `peek` is given if a peek can
    compute it.
    """

    imports: tuple[Import, ...]
    shown: tuple[tuple[str, str], ...]
    peek: PeekPlan | None = None

    def facts(self) -> dict[str, object]:
        """The plan's facts in JSON's types."""
        return {
            "imports": [
                [
                    imported.collection,
                    sorted(imported.columns),
                    [
                        [predicate.column, predicate.operator, predicate.value]
                        for predicate in imported.where
                    ],
                    [[member.column, member.values] for member in imported.members],
                ]
                for imported in self.imports
            ],
            "shown": [list(pair) for pair in self.shown],
            "peek": None if self.peek is None else [self.peek.plan, self.peek.order],
        }

    @staticmethod
    def told(facts: Mapping[str, object]) -> "Planned":
        """The reverse of `facts`. Errors: Garbled."""
        try:
            match facts:
                case {"imports": list(imports), "shown": list(shown), "peek": peek}:
                    return Planned(
                        tuple(Import.told(*imported) for imported in imports),
                        tuple((str(name), str(kind)) for name, kind in shown),
                        PeekPlan.told(peek),
                    )
                case _:
                    raise Garbled("a worker's plan has no imports, columns and peek")
        except (ValueError, TypeError) as error:
            raise Garbled("a worker returned a plan of the wrong form") from error
