"""Casts that are refused: of structs to some maps, and of lists to arrays of something else.

A cast from a struct to a map uses the names of the members as keys. If a name cannot be cast to
the map's key type, DuckDB's TRY_CAST makes a map that it prints as `{invalid}` and cannot
return, and its CAST fails even for NULL.

A cast from a list to an array casts each element. If there is no cast of the elements, as from
FLOAT to INTEGER[2], or the cast parses a text, DuckDB either fails or makes each element NULL,
depending on whether the first list in a batch of rows is NULL: replicas would differ.
"""

from collections.abc import Callable, Iterator

from streams.plan.duckdb_plan import Record
from streams.plan.refusal import Refusal
from streams.plan.type_names import type_name
from streams.trace.kernel.types import Parts, parts

_LISTS = frozenset({"LIST", "ARRAY"})
_BY_NAME = frozenset({"STRUCT", "UNION"})
_FAMILY = {"ARRAY": "LIST", "TUPLE": "STRUCT"}
_TEXTS = frozenset({"VARCHAR", "JSON", "VARIANT", '"NULL"'})
"""Types whose values any type is cast to, or from."""


def refuse_casts(plan: Record, computable: Callable[[str], bool]) -> None:
    """Refuse casts of which DuckDB makes no value, or one that depends on other rows.

    Args:
        plan: a bound plan.
        computable: whether an SQL expression without columns has a value.

    Errors: InvalidStatement that names the two types.
    """
    for node in plan.walk():
        if node.fields.get("type") != "OPERATOR_CAST":
            continue
        (source,) = map(type_name, node.records("arguments"))
        target = type_name(node.record("return_type"))
        for list_type, array_type in _arrays(source, target):
            raise Refusal(
                f"a cast of {list_type} to {array_type}",
                "its elements have no cast: take those that you need, as x[1]",
            ).raised()
        for struct, map_type in _maps(source, target):
            if not computable(_keyed(struct, map_type)):
                raise Refusal(
                    f"a cast of {struct} to {map_type}",
                    "its keys are the names of the members: cast to MAP(VARCHAR, ...)",
                ).raised()


def _maps(source: str, target: str) -> Iterator[tuple[str, str]]:
    """The structs inside a value that become maps, with those maps."""
    source_parts, target_parts = parts(source), parts(target)
    if source_parts is None or target_parts is None:
        return
    if (source_parts.kind, target_parts.kind) == ("STRUCT", "MAP"):
        yield source, target
    for before, after in _pairs(source_parts, target_parts):
        yield from _maps(before, after)


def _arrays(source: str, target: str) -> Iterator[tuple[str, str]]:
    """The lists inside a value that become arrays of what their elements cannot be cast to."""
    source_parts, target_parts = parts(source), parts(target)
    if source_parts is None or target_parts is None:
        return
    for before, after in _pairs(source_parts, target_parts):
        is_array = source_parts.kind in _LISTS and target_parts.kind == "ARRAY"
        if is_array and not _has_cast(before, after):
            yield source, target
        yield from _arrays(before, after)


def _has_cast(source: str, target: str) -> bool:
    """Whether DuckDB has a cast between two types that is none of each text."""
    kinds = [parsed.kind if (parsed := parts(type_)) else "" for type_ in (source, target)]
    before, after = (_FAMILY.get(kind, kind) for kind in kinds)
    is_map = (before, after) == ("STRUCT", "MAP")
    return before == after or is_map or after == "UNION" or target in _TEXTS


def _pairs(source_parts: Parts, target_parts: Parts) -> Iterator[tuple[str, str]]:
    """The types of the parts of a value that is cast, before and after."""
    if source_parts.kind == "STRUCT" and target_parts.kind == "MAP":
        yield from ((type_, target_parts.types[1]) for type_ in source_parts.types)
    elif source_parts.kind == target_parts.kind and source_parts.kind in _BY_NAME:
        after = dict(zip(map(str.lower, target_parts.names), target_parts.types, strict=True))
        for name, before in zip(
            map(str.lower, source_parts.names), source_parts.types, strict=True
        ):
            if name in after:
                yield before, after[name]
    elif {source_parts.kind, target_parts.kind} <= _LISTS or source_parts.kind in {
        "STRUCT",
        "TUPLE",
        target_parts.kind,
    }:
        yield from zip(source_parts.types, target_parts.types, strict=False)


def _keyed(struct: str, map_type: str) -> str:
    """SQL that has a value if the names are keys, each another one."""
    source, target = parts(struct), parts(map_type)
    assert source is not None, struct
    assert target is not None, map_type
    names = ("'" + name.replace("'", "''") + "'" for name in source.names)
    keys = [f"CAST({name} AS {target.types[0]})" for name in names]
    return f"map([{', '.join(keys)}], [{', '.join(['true'] * len(keys))}])"
