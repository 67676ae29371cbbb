"""The constructs that a view may not contain, by their names in SQL.

DuckDB's syntax tree has the constructs as written; its bound plan has what they are translated
to (IN becomes a MARK join). So constructs are refused here, before binding, in terms of the
query. Constructs that a macro hides are refused by `bind`, by their names in the plan.
"""

from collections.abc import Callable, Iterable

from streams.errors import InvalidStatement
from streams.plan.analyses.aggregates import REFUSED
from streams.plan.bind.binder import Binder, unstable_functions
from streams.plan.duckdb_plan import Record
from streams.plan.physical import Column
from streams.plan.refusal import Refusal
from streams.plan.sql.tokens import tokenize
from streams.plan.type_names import contains
from streams.trace.kernel.types import DEEPEST_TYPE, is_deeper
from streams.trace.kernel.unions import has_union

_EMPTY = r"(STRUCT|TUPLE)(\(\)|(?!\())"
"""A struct without members: DuckDB has two names for its type, and stores it in no table."""
NOT_CARRIED = ("AGGREGATE_STATE", "GEOMETRY", "PARQUET_VARIANT", "TYPE", "VARIANT", _EMPTY)
"""Types whose values Arrow does not bring back as they were: no column can be of them."""
TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})


_JOINS = {
    "POSITIONAL": "rows of a view have no order: join on a column",
}


_SAMPLE = Refusal("TABLESAMPLE", "keep a share of the keys: WHERE hash(key) % 10 = 0")


def refuse(binder: Binder, query: str, names: frozenset[str]) -> None:
    """Refuse a query that is not one SELECT of the constructs we maintain.

    `names` are those of the catalog's columns, in lower case.

    Errors: InvalidStatement that names the construct.
    """
    try:
        statements = binder.syntax(query)
    except InvalidStatement as error:
        if "Only SELECT" in str(error) or "only SELECT" in str(error):
            raise _not_a_select(query) from error
        raise
    if len(statements) != 1:
        raise InvalidStatement(f"expected one SELECT, actual {len(statements)} statements")
    functions = set()
    for node in statements[0].walk():
        refusal = _refusal(node)
        if refusal:
            raise refusal.raised()
        functions |= _function(node)
        _refuse_pseudo_column(node, names)
    refuse_unstable(functions)


def _not_a_select(query: str) -> InvalidStatement:
    """Statements that DuckDB cannot serialize, and a PIVOT, which reads the data first."""
    words = [token.text.upper() for token in tokenize(query)]
    if words[0] in {"PIVOT", "SELECT", "WITH", "FROM", "("}:
        return Refusal(
            "PIVOT without a list of its values",
            "say which there are: PIVOT ... ON x IN ('a', 'b')",
            "its columns would come and go with the rows",
        ).raised()
    return InvalidStatement(f"expected a SELECT, actual {words[0]}")


def _refusal(node: Record) -> Refusal | None:
    for field in ("type", "class"):
        kind = node.fields.get(field)
        check = _CHECKS.get(kind) if isinstance(kind, str) else None
        if check:
            return check(node)
    return None


def _always(refusal: Refusal) -> Callable[[Record], Refusal | None]:
    return lambda _: refusal


def _select(node: Record) -> Refusal | None:
    return _SAMPLE if node.has("sample") else None


def _from(node: Record) -> Refusal | None:
    return _SAMPLE if node.has("sample") else None


def _join(node: Record) -> Refusal | None:
    kind = node.text("ref_type")
    if kind in _JOINS:
        return Refusal(f"{kind} JOIN", _JOINS[kind])
    return _from(node)


def _table_function(node: Record) -> Refusal | None:
    name = node.record("function").text("function_name")
    if name in TABLE_FUNCTIONS:
        return None
    return Refusal(f"table function {name}", "create a source or a view to read from")


def _call(node: Record) -> Refusal | None:
    name = node.text("function_name").lower()
    if any(_is_now(record.record("expression")) for record in node.records("arguments")):
        where = "arithmetic" if node.flag("is_operator") else f"function {name}"
        return Refusal(
            f"mz_now() in {where}", "compute on the other side: mz_now() <= ts + ..."
        )
    if name in {"unlist", "generate_subscripts"}:
        return Refusal(f"{name} in the select list", "write unnest(range(1, len(x) + 1))")
    if name == "alias":
        return Refusal("function alias", "write the name as text")
    if name in REFUSED:
        return Refusal(f"aggregate {name}", REFUSED[name])
    return None


def _is_now(node: Record) -> bool:
    """Whether this is the logical time, perhaps in another type."""
    if node.text("class") == "CAST":
        return _is_now(node.record("child"))
    return node.text("class") == "FUNCTION" and node.text("function_name").lower() == "mz_now"


_CHECKS: dict[str, Callable[[Record], Refusal | None]] = {
    "SELECT_NODE": _select,
    "BASE_TABLE": _from,
    "JOIN": _join,
    "SUBQUERY": _from,
    "TABLE_FUNCTION": _table_function,
    "SHOW_REF": _always(Refusal("DESCRIBE, SHOW or SUMMARIZE", "send EXPLAIN SELECT ...")),
    "PARAMETER": _always(Refusal("a parameter", "write the value into the query")),
    "FUNCTION": _call,
}


def _function(node: Record) -> set[str]:
    return {node.text("function_name").lower()} if node.has("function_name") else set()


def _refuse_pseudo_column(node: Record, names: frozenset[str]) -> None:
    """Refuse row numbers of tables: only DuckDB's own tables have them."""
    if node.has("column_names"):
        name = (node.texts("column_names") or ("",))[-1].lower()
        if name == "rowid" and name not in names:
            raise Refusal("column rowid", "name a column of the relation").raised()


def refuse_unstable(functions: Iterable[str]) -> None:
    """Refuse functions (by lower-case name) whose value depends on more than the row.

    The user names some; others come out of words and macros when the query is bound.

    Errors: InvalidStatement that names the first of them.
    """
    unstable = unstable_functions()
    for name in sorted(set(functions)):
        if name in unstable:
            raise Refusal(
                f"function {name}",
                "a view's contents may depend on its inputs alone; put the value in a column",
                f"it is {unstable[name]}: the same row may give another value later",
            ).raised()


def refuse_today(plan: Record) -> None:
    """Refuse calls that read the clock only because of how they are called.

    `age(t)` counts from today, and a time of day in another zone depends on today's offset.
    Errors: InvalidStatement that names the call.
    """
    for node in plan.walk():
        name = node.record("qname").texts("path")[-1] if node.has("qname") else ""
        kinds = [argument.text("id") for argument in node.records("arguments")]
        if name == "age" and len(kinds) == 1:
            raise Refusal("age with one argument", "write the day to count from").raised()
        if name == "timezone" and "TIME WITH TIME ZONE" in kinds:
            raise Refusal("AT TIME ZONE of a time of day", "convert a timestamp").raised()


def is_carried(type_: str) -> bool:
    """Tell whether a column of this type can be stored and read back."""
    return not any(contains(type_, kind) for kind in NOT_CARRIED)


def refuse_types(columns: Iterable[Column], inner: Iterable[str]) -> None:
    """Refuse a view whose columns, or those of a step on the way to it, cannot be stored.

    Errors: InvalidStatement that names the column, or else the type.
    """
    hint = "cast it to VARCHAR, or take the parts that you need"
    inner = sorted(inner)
    for type_ in (*(column.type for column in columns), *inner):
        if is_deeper(type_, DEEPEST_TYPE):
            said = f"type {type_[:40]}... with more than {DEEPEST_TYPE} types in each other"
            raise Refusal(f"a column of {said}", hint).raised()
    for column in columns:
        if not is_carried(column.type):
            raise Refusal(f"column {column.name} of type {column.type}", hint).raised()
    for type_ in inner:
        if not is_carried(type_) or has_union(type_):
            raise Refusal(f"grouping, joining or aggregating {type_}", hint).raised()
