"""The parts of nested types, and one value for each class of equal nested values.

A nested value is rebuilt from the representatives of its parts. A value that is
read more than once is bound by a lambda, so that text grows with the type and not with its
depth's power.
"""

from collections.abc import Callable

from streams.plan.scalar import Call, Form, Literal, Parameter, Scalar
from streams.plan.type_names import struct_type
from streams.trace.kernel.types import Parts, parts

Representative = Callable[[Scalar], Scalar]


def rebuilt(scalar: Scalar, representative: Representative, depth: int = 0) -> Scalar:
    """The nested value with every part in it that is not nested replaced by `representative`.

    Args:
        scalar: the value; NULL stays NULL.
        representative: of a part that is not nested.
        depth: how many lambdas are around it.
    """
    structure = parts(scalar.type)
    if structure is None:
        return representative(scalar)
    match structure.kind:
        case "LIST":
            return _each(scalar, structure.types[0], representative, depth)
        case "ARRAY":
            kind = f"{structure.types[0]}[]"
            listed = Call(Form.CAST, "cast", (scalar,), kind)
            rebuilt_items = _each(listed, structure.types[0], representative, depth)
            return Call(Form.CAST, "cast", (rebuilt_items,), scalar.type)
        case "MAP":
            entry = struct_type(zip(("key", "value"), structure.types, strict=True))
            entries = _function("map_entries", (scalar,), f"{entry}[]")
            rebuilt_items = _each(entries, entry, representative, depth)
            return _function("map_from_entries", (rebuilt_items,), scalar.type)
        case _:
            variable = Parameter(f"value@r{depth}", scalar.type)
            whole = _whole(variable, structure, representative, depth + 1)
            return bound(scalar, variable, whole)


def _each(scalar: Scalar, type_: str, representative: Representative, depth: int) -> Scalar:
    variable = Parameter(f"value@r{depth}", type_)
    body = rebuilt(variable, representative, depth + 1)
    return _transformed(scalar, variable, body)


def _transformed(scalar: Scalar, variable: Parameter, body: Scalar) -> Scalar:
    over = Call(Form.LAMBDA, "lambda", (body,), "LAMBDA", (variable.name,))
    return _function("list_transform", (scalar, over), f"{body.type}[]")


def bound(scalar: Scalar, variable: Parameter, body: Scalar) -> Scalar:
    """The body with the variable for the value."""
    alone = _function("list_value", (scalar,), f"{scalar.type}[]")
    first = Literal("CAST('1' AS BIGINT)", "BIGINT", "1")
    return _function("array_extract", (_transformed(alone, variable, body), first), scalar.type)


def _whole(
    value: Parameter, structure: Parts, representative: Representative, depth: int
) -> Scalar:
    """A struct or tuple that is not NULL, rebuilt."""
    null = Literal(f"CAST(NULL AS {value.type})", value.type, "NULL")
    is_null = Call(Form.IS_NULL, "is null", (value,), "BOOLEAN")
    places = range(len(structure.types))
    scalars = [
        rebuilt(_part(value, structure, place), representative, depth) for place in places
    ]
    packed = (
        Call(Form.FUNCTION, "struct_pack", tuple(scalars), value.type, structure.names)
        if structure.kind == "STRUCT"
        else _function("row", tuple(scalars), value.type)
    )
    return Call(Form.CASE, "case", (is_null, null, packed), value.type)


def _part(value: Parameter, structure: Parts, place: int) -> Scalar:
    type_ = structure.types[place]
    if structure.kind == "TUPLE":
        at = Literal(f"CAST('{place + 1}' AS BIGINT)", "BIGINT", str(place + 1))
        return _function("struct_extract_at", (value, at), type_)
    return _function("struct_extract", (value, _text(structure.names[place])), type_)


def _text(text: str) -> Literal:
    quoted = "'" + text.replace("'", "''") + "'"
    return Literal(quoted, "VARCHAR", quoted)


def _function(name: str, arguments: tuple[Scalar, ...], type_: str) -> Call:
    return Call(Form.FUNCTION, name, arguments, type_)
