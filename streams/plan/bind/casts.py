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
        for struct, made in _maps(source, type_name(node.record("return_type"))):
            if not computable(_keyed(struct, made)):
                raise Refusal(
                    f"a cast of {struct} to {made}",
                    "its keys are the names of the members: cast to MAP(VARCHAR, ...)",
                ).raised()


def _maps(source: str, target: str) -> Iterator[tuple[str, str]]:
    """The structs inside a value that become maps, with those maps."""
    one, other = parts(source), parts(target)
    if one is None or other is None:
        return
    if (one.kind, other.kind) == ("STRUCT", "MAP"):
        yield source, target
    for before, after in _pairs(one, other):
        yield from _maps(before, after)


def _pairs(one: Parts, other: Parts) -> Iterator[tuple[str, str]]:
    """The types of the parts of a value that is cast, before and after."""
    if one.kind == "STRUCT" and other.kind == "MAP":
        yield from ((type_, other.types[1]) for type_ in one.types)
    elif one.kind == other.kind and one.kind in _BY_NAME:
        after = dict(zip(map(str.lower, other.names), other.types, strict=True))
        for name, before in zip(map(str.lower, one.names), one.types, strict=True):
            if name in after:
                yield before, after[name]
    elif {one.kind, other.kind} <= _LISTS or one.kind in {"STRUCT", "TUPLE", other.kind}:
        yield from zip(one.types, other.types, strict=False)


def _keyed(struct: str, made: str) -> str:
    """SQL that has a value if the names are keys, each another one."""
    source, target = parts(struct), parts(made)
    assert source is not None, struct
    assert target is not None, made
    names = ("'" + name.replace("'", "''") + "'" for name in source.names)
    keys = [f"CAST({name} AS {target.types[0]})" for name in names]
    return f"map([{', '.join(keys)}], [{', '.join(['true'] * len(keys))}])"
