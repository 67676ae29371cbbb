"""Carries a UNION as a STRUCT: its tag, a number, and its members, all but one NULL.

Arrow's unions cannot tell a NULL from a member that is NULL, and DuckDB does not import them
wherever a column may stand. So columns have the type `carrier_type`; SQL makes the union where
an expression asks for it, and the struct of a union in results. Inside DuckDB both are one
thing, so that order, hash and what is distinct are the struct's. What `=` says is not:
a union whose member is NULL equals nothing.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from streams.trace.kernel.types import Parts, parts

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_NAME = re.compile(r'\w+|"(?:[^"]|"")*"')


NO_TAG = 255
"""The number of no member: a union that is carried has at most so many."""


@lru_cache(maxsize=4096)
def has_union(type_: str) -> bool:
    """Whether a type, as DuckDB prints it, is a UNION or has one inside it."""
    return "UNION(" in _QUOTED.sub("", type_)


@lru_cache(maxsize=4096)
def carrier_type(type_: str) -> str:
    """The type of columns whose values are of `type_`: with a STRUCT for every UNION."""
    structure = parts(type_) if has_union(type_) else None
    if structure is None:
        return type_
    inside = tuple(map(carrier_type, structure.types))
    members = [f"{name} {kind}" for name, kind in zip(structure.spelled, inside, strict=False)]
    match structure.kind:
        case "LIST" | "ARRAY":
            return f"{inside[0]}[{structure.size}]"
        case "STRUCT":
            return f"STRUCT({', '.join(members)})"
        case "UNION":
            return f"STRUCT({', '.join([f'{tag(structure)} UTINYINT', *members])})"
        case kind:
            return f"{kind}({', '.join(inside)})"


def tag(structure: Parts) -> str:
    """The name of the struct's first field: `tag`, with `_` behind it while a member has it."""
    name, taken = "tag", {name.lower() for name in structure.names}
    while name in taken:
        name += "_"
    return name


def as_struct(value: str, type_: str) -> str:
    """SQL for what carries the value of an expression of this type."""
    return _converted(value, type_, 0, _AS_STRUCT)


def as_union(value: str, type_: str) -> str:
    """SQL for the value, of this type, that the expression carries."""
    return _converted(value, type_, 0, _AS_UNION)


def member(value: str, type_: str, name: str) -> str:
    """SQL for the member of the union that the expression carries; `name` is SQL text."""
    structure = _parts(type_)
    place = [_text(name).lower() for name in structure.names].index(name.lower())
    return as_union(_field(value, structure.names[place]), structure.types[place])


def as_key(value: str, type_: str) -> str:
    """SQL for a struct that is `=` to what carries another union where that union is.

    It is what `value` carries or, where the member is NULL, what no union has.
    """
    structure = _parts(type_)
    nothing = [f"CAST(NULL AS {carrier_type(type_)})" for type_ in structure.types]
    other = _packed(
        (tag(structure), *structure.spelled), (f"CAST({NO_TAG} AS UTINYINT)", *nothing)
    )

    def key(value: str) -> str:
        return f"CASE WHEN {_has_member(value, type_)} THEN {value} ELSE {other} END"

    return _by_name(value, '"carried@0"', key)


def _has_member(value: str, type_: str) -> str:
    """Whether a union is NULL or has a value; a union for a value is asked in its turn."""
    structure = _parts(type_)
    cases = []
    for place, kind in enumerate(structure.types):
        member_value = _field(value, structure.names[place])
        there = f"({member_value} IS NOT NULL)"
        inner = parts(kind)
        if inner is not None and inner.kind == "UNION":
            there = f"({there} AND {_has_member(member_value, kind)})"
        cases.append(f"WHEN {place} THEN {there}")
    return f"(CASE {_field(value, tag(structure))} {' '.join(cases)} ELSE true END)"


Inside = Callable[[str, int], str]
"""SQL for the converted part at a place, given SQL for the part."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A direction of conversion: of a union that is not NULL, and the type of the result."""

    union: Callable[[str, str, Inside], str]
    result: Callable[[str], str]


def _struct_of(value: str, type_: str, inside: Inside) -> str:
    structure = _parts(type_)
    number = f"CAST(enum_code(union_tag({value})) AS UTINYINT)"
    members = [
        inside(f"union_extract({value}, {_text(name)})", place)
        for place, name in enumerate(structure.names)
    ]
    return _packed((tag(structure), *structure.spelled), (number, *members))


def _union_of(value: str, type_: str, inside: Inside) -> str:
    structure = _parts(type_)
    cases = [
        f"WHEN {place} THEN CAST(union_value({structure.spelled[place]} :="
        f" {inside(_field(value, name), place)}) AS {type_})"
        for place, name in enumerate(structure.names)
    ]
    return f"CASE {_field(value, tag(structure))} {' '.join(cases)} END"


_AS_STRUCT = _Way(_struct_of, carrier_type)
_AS_UNION = _Way(_union_of, lambda type_: type_)


def _converted(value: str, type_: str, depth: int, way: _Way) -> str:
    """The value with every union in it converted; `depth` lambdas are around."""
    structure = parts(type_) if has_union(type_) else None
    if structure is None:
        return value
    if structure.kind == "ARRAY":
        before = carrier_type(structure.types[0]) if way is _AS_UNION else structure.types[0]
        listed = f"CAST({value} AS {before}[])"
        converted = _converted(listed, f"{structure.types[0]}[]", depth, way)
        return f"CAST({converted} AS {way.result(type_)})"
    variable = f'"carried@{depth}"'

    def inside(part: str, place: int) -> str:
        return _converted(part, structure.types[place], depth + 1, way)

    if structure.kind == "LIST":
        return _each(value, variable, inside(variable, 0))
    if structure.kind == "MAP":
        sides = [inside(_field(variable, name), i) for i, name in enumerate(("key", "value"))]
        entry = f'struct_pack("key" := {sides[0]}, "value" := {sides[1]})'
        return f"map_from_entries({_each(f'map_entries({value})', variable, entry)})"
    return _by_name(value, variable, lambda name: _whole(name, type_, inside, way))


def _by_name(value: str, variable: str, body: Callable[[str], str]) -> str:
    """The body, in which the value is read several times, over a name for it."""
    if _NAME.fullmatch(value):
        return f"({body(value)})"
    mapped = _each(f"list_value({value})", variable, body(variable))
    return f"array_extract({mapped}, 1)"


def _whole(value: str, type_: str, inside: Inside, way: _Way) -> str:
    """A struct, tuple or union, given by a name."""
    structure = _parts(type_)
    if structure.kind == "UNION":
        packed = way.union(value, type_, inside)
    elif structure.kind == "STRUCT":
        fields = [inside(_field(value, name), i) for i, name in enumerate(structure.names)]
        packed = _packed(structure.spelled, fields)
    else:
        at = [
            f"struct_extract_at({value}, {place + 1})" for place in range(len(structure.types))
        ]
        packed = f"row({', '.join(inside(part, place) for place, part in enumerate(at))})"
    return f"CASE WHEN ({value} IS NULL) THEN NULL ELSE {packed} END"


def _parts(type_: str) -> Parts:
    structure = parts(type_)
    assert structure is not None, type_
    return structure


def _packed(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = zip(names, values, strict=True)
    return f"struct_pack({', '.join(f'{name} := {value}' for name, value in pairs)})"


def _each(list_: str, variable: str, body: str) -> str:
    return f"list_transform({list_}, lambda {variable}: {body})"


def _field(value: str, name: str) -> str:
    return f"struct_extract({value}, {_text(name)})"


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
