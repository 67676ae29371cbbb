"""Casts from a struct to a map, whose keys are the names of the struct's members.

Where a name is no key of the map's type, DuckDB's TRY_CAST makes a map that it prints as
`{invalid}` and cannot hand out, and its CAST fails even for NULL: such a cast is refused.
"""

from collections.abc import Callable, Iterator

from streams.plan.duckdb_plan import Record
from streams.plan.refusal import Refusal
from streams.plan.type_names import type_name
from streams.trace.kernel.types import Parts, parts

_LISTS = frozenset({"LIST", "ARRAY"})
_BY_NAME = frozenset({"STRUCT", "UNION"})


def refuse_casts(plan: Record, computable: Callable[[str], bool]) -> None:
    """Refuse casts from structs to maps whose keys their names are not.

    Args:
        plan: a bound plan.
        computable: whether an SQL expression without columns has a value.

    Errors: InvalidStatement that names the two types.
    """
    for node in plan.walk():
        if node.fields.get("type") != "OPERATOR_CAST":
            continue
        (source,) = map(type_name, node.records("arguments"))
        for struct, map_type in _maps(source, type_name(node.record("return_type"))):
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
