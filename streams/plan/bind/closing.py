"""Plans EMIT ON CLOSE: when the window of a view's row ends, and the filter up to then.

The end is an expression over the view's columns, so DuckDB binds it against a relation with
these columns. The plan is that of the query with the filter `mz_now() < end`, which passes move
like any other; the last operator of the dataflow (`operators.emit_on_close`) emits the rows
that the filter retracts when their window closes. Pushed below a Group by the window, the
filter drops the state of windows that have ended.
"""

from collections.abc import Sequence

from streams.errors import InvalidStatement
from streams.ids import CollectionId, Timestamp
from streams.plan import ir
from streams.plan.analyses.temporal import TIMESTAMPS, before_end
from streams.plan.lowering.lower import WindowEnd
from streams.plan.physical import Column
from streams.plan.scalar import Call, Form, Literal, Ref, Scalar, refs, substitute
from streams.plan.sql.emit import USAGE, Emit
from streams.plan.type_names import quoted

WINDOW_END = "window_end"
"""The column that is meant if none is named."""

ROW = "row of the view"
"""The relation against which the end is bound."""

COLLECTION = CollectionId("emit on close")

_HINT = "cast it to TIMESTAMP, the type of event times"


def query_of(emit: Emit, columns: Sequence[Column]) -> str:
    """A query for the end, over the relation `ROW` with a view's columns.

    Errors: InvalidStatement if no end is given and no column has its name.
    """
    if emit.expression:
        return f"SELECT (\n{emit.expression}\n) AS {WINDOW_END} FROM {quoted(ROW)}"
    if not any(column.name.casefold() == WINDOW_END for column in columns):
        names = ", ".join(column.name for column in columns)
        raise InvalidStatement(
            f"EMIT ON CLOSE without an end, and no column {WINDOW_END}",
            f"the view's columns are {names}",
            "say when a row's window ends, as"
            " EMIT ON CLOSE (window_start + INTERVAL '1 minute')",
        )
    return f"SELECT {WINDOW_END} FROM {quoted(ROW)}"


def end_of(bound: ir.Relational) -> Scalar:
    """The end over a view's columns, from the plan of its query.

    Errors: InvalidStatement for what is no expression of one row, or is not a timestamp.
    """
    end = _scalar(bound)
    if end is None or not refs(end):
        what = "over other rows" if end is None else "without a column"
        raise InvalidStatement(
            f"EMIT ON CLOSE by an expression {what}",
            "expected the end of a row's window, computed from the view's columns",
            f"the clause is {USAGE}",
        )
    if end.type not in TIMESTAMPS:
        raise InvalidStatement(
            f"EMIT ON CLOSE by a value of type {end.type}",
            f"expected {', '.join(sorted(TIMESTAMPS))}",
            _HINT,
        )
    return end


def _scalar(node: ir.Relational) -> Scalar | None:
    """The one column of a projection of the relation; None for another plan."""
    match node:
        case ir.Get():
            return None
        case ir.Project(input=ir.Get(), outputs=(output,)):
            return output
        case ir.Project(input=ir.Project() as below, outputs=(output,)):
            return _scalar(
                ir.Project(below.input, (substitute(output, below.outputs),), node.names)
            )
        case _:
            return None


def open_rows(
    rows: ir.Relational, end: Scalar, born: Timestamp | None
) -> tuple[ir.Relational, WindowEnd]:
    """The rows of a view whose windows have not closed, with a column for the end.

    Windows that had ended at the dataflow's first time count as open until the next one.
    """
    own = ir.columns(rows)
    columns = tuple(Ref(i, column.type, column.name) for i, column in enumerate(own))
    if isinstance(end, Ref):
        place = end.index
    else:
        place = len(own)
        names = (*(column.name for column in own), WINDOW_END)
        rows = ir.Project(rows, (*columns, end), names)
    leaves = _not_before(Ref(place, end.type, WINDOW_END), born)
    return ir.Filter(rows, (before_end(leaves),)), WindowEnd(place, born)


def _not_before(end: Scalar, born: Timestamp | None) -> Scalar:
    if born is None:
        return end
    ms = born + 1
    first = Literal(f"CAST(epoch_ms(CAST('{ms}' AS BIGINT)) AS {end.type})", end.type, str(ms))
    earlier = Call(Form.INFIX, "<", (end, first), "BOOLEAN")
    return Call(Form.CASE, "case", (earlier, first, end), end.type)


def key_of(
    key: tuple[int, ...] | None, end: Scalar, closing: WindowEnd, width: int
) -> tuple[int, ...] | None:
    """A key of what comes out, from one of the rows whose windows are open.

    At each time no two of those are equal in it; what comes out keeps rows of all times.
    """
    if key is None or refs(end) <= set(key):
        return key if key is None or max(key, default=0) < width else None
    if closing.end >= width:
        return None
    return tuple(sorted({*key, closing.end}))
