"""Calls of every function in DuckDB's catalogue, with every type that an argument takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from streams.bench.sql.columns import COLUMNS

_CONSTANTS = {
    "VARCHAR": ["'day'", "'a'", "'%d'", "'$.a'", "'x'"],
    "BIGINT": ["2"],
    "INTEGER": ["2"],
    "DOUBLE": ["0.5"],
    "BOOLEAN": ["true"],
}
"""Values for arguments that a function takes as constants alone."""
_LAMBDAS = ["lambda x: x", "lambda x: x IS NULL", "lambda x, y: x", "lambda x, y: y"]
_PARTS = {
    "TUPLE": ["tuple"], "STRUCT": ["st", "sd", "ss", "su"],
    "MAP(K, V)": ["m", "md", "ml", "flags"],
    "T[][]": ["ll"], "STRUCT[]": ["ls"], "DECIMAL": ["dec", "wide"],
    "FLOAT[ANY]": ["af"], "DOUBLE[ANY]": ["ad"], "FLOAT[3]": ["af"], "DOUBLE[3]": ["ad"],
    "BIGINT[]": ["l"], "BOOLEAN[]": ["bools"], "K[]": ["lv"], "V[]": ["l"],
}  # fmt: skip
_WRITTEN = {
    "UNION": ["union_value(n := {}_i)", "{}_un", "{}_us"],
    "VARIANT": ["{}_i::VARIANT", "{}_st::VARIANT"],
    "GEOMETRY": ["'POINT(1 2)'::GEOMETRY"],
    "TIMESTAMPTZ_NS": ["{}_tsz::TIMESTAMPTZ_NS"],
}
_SIZED = {
    "bitstring", "repeat", "lpad", "rpad", "range", "generate_series", "list_resize", "space",
    "array_resize", "list_repeat",
}  # fmt: skip
"""Functions whose answer is as large as a number says: DuckDB does not stop before it ends."""
_LISTS = [
    "l", "a", "ls", "lf", "ld", "lv", "ll", "liv", "bools", "ids", "jsons", "bitss", "enums",
    "lu",
]  # fmt: skip
_TWO = 2
_INFIX = {
    "~~~", "~~*", "~", "||", "^@", "<", "!~~", "**", "+", "-", "/", "//", "<<", "<=", "<@", "=",
    ">>", "@>", "|", "~~", "!=", "^", "!~~*", "%", "&", "&&", "*", "->>", "<->", "<=>", ">",
    ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "->", "<>",
}  # fmt: skip


@dataclass(frozen=True)
class Signature:
    """An overload in the catalogue."""

    name: str
    kind: str
    parameters: tuple[str | None, ...]
    varargs: str | None
    family: str


Row = tuple[str, str, Sequence[str | None], str | None, Sequence[str]]
CATALOGUE = (
    "SELECT DISTINCT function_name, function_type, parameter_types, varargs, categories"
    " FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'macro')"
    " AND coalesce(stability, 'CONSISTENT') = 'CONSISTENT' ORDER BY ALL"
)
"""Asks for all scalar and aggregate functions and macros, but those of the moment."""


def signatures(rows: Sequence[Row]) -> list[Signature]:
    """The overloads that the answer to CATALOGUE has."""
    return [
        Signature(name, kind, tuple(parameters), varargs, _family(name, kind, parameters, tags))
        for name, kind, parameters, varargs, tags in rows
    ]


def _family(name: str, kind: str, parameters: Sequence[str | None], tags: Sequence[str]) -> str:
    if kind != "scalar":
        return kind
    if name.startswith("__"):
        return "internal"
    if "collate" in name:
        return "collation"
    if "json" in name or "JSON" in parameters:
        return "json"
    return tags[-1] if tags else _family_of_type(parameters)


def _family_of_type(parameters: Sequence[str | None]) -> str:
    first = next(
        (parameter for parameter in parameters if parameter and parameter != "VARCHAR"),
        "VARCHAR",
    )
    if any(word in first for word in ("DATE", "TIME", "INTERVAL")):
        return "temporal"
    if any(word in first for word in ("[", "STRUCT", "TUPLE", "MAP", "UNION")):
        return "nested"
    return {"VARCHAR": "string", "ANY": "any", "BIT": "bitstring", "BLOB": "blob"}.get(
        first, "numeric"
    )


def calls(signature: Signature) -> Iterator[str]:
    """Calls in which every type of every argument turns up, beside others and beside itself.

    They read columns `x_<name>` and `y_<name>` of the types in COLUMNS, and `g`, a number.
    """
    counts = [0, 1, 2] if signature.varargs else [0]
    for more in counts:
        parameters = [*signature.parameters, *[signature.varargs] * more]
        options = [
            ["g", "2"]
            if signature.name in _SIZED and kind in {"INTEGER", "BIGINT", "HUGEINT", "ANY"}
            else _options(kind, "xy"[place % 2])
            for place, kind in enumerate(parameters)
        ]
        width = max(map(len, options), default=1)
        steps = [0, 1] if len(parameters) > 1 else [0]
        seen = set()
        for step, number in product(steps, range(width)):
            arguments = [
                option[(number + step * place) % len(option)]
                for place, option in enumerate(options)
            ]
            seen.add(_written(signature, arguments))
        yield from sorted(seen)


def _options(kind: str | None, side: str) -> list[str]:
    """The argument for a type of the catalogue: a column, or a constant."""
    if kind == "LAMBDA":
        return _LAMBDAS
    if kind in _WRITTEN:
        return [template.format(side) for template in _WRITTEN[kind]]
    if kind in ("ANY", "T", "K", "V", None):
        return [f"{side}_{name}" for name in COLUMNS]
    if kind in ("ANY[]", "T[]"):
        names = _LISTS
    else:
        names = _PARTS.get(kind, [name for name, type_ in COLUMNS.items() if type_ == kind])
    return [f"{side}_{name}" for name in names] + _CONSTANTS.get(kind, []) or ["NULL"]


def _written(signature: Signature, arguments: list[str]) -> str:
    name = signature.name
    if name in _INFIX and len(arguments) == _TWO:
        return f"({arguments[0]} {name} {arguments[1]})"
    if name in ("+", "-", "~", "@") and len(arguments) == 1:
        return f"({name}{arguments[0]})"
    plain = name.replace("_", "").isalnum() and name.lower() == name
    called = name if plain else f'"{name}"'
    return f"{called}({', '.join(arguments)})"
