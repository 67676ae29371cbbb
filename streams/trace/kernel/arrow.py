"""Arrow types without DuckDB: what values travel as, and tables of no rows."""

import pyarrow as pa


def without_dictionaries(kind: pa.DataType) -> pa.DataType:
    """The type with dictionaries replaced by their value types, also nested ones."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_list(kind) or types.is_fixed_size_list(kind):
        child = kind.value_field.with_type(without_dictionaries(kind.value_type))
        return pa.list_(child, kind.list_size if types.is_fixed_size_list(kind) else -1)
    if types.is_map(kind):
        sides = [without_dictionaries(kind.key_type), without_dictionaries(kind.item_type)]
        return pa.map_(kind.key_field.with_type(sides[0]), kind.item_field.with_type(sides[1]))
    if types.is_struct(kind):
        return pa.struct(
            [child.with_type(without_dictionaries(child.type)) for child in kind.fields]
        )
    return kind


def is_plain(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is one of Arrow's own, through and through."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    return all(is_plain(kind.field(index).type) for index in range(kind.num_fields))


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows; pyarrow's own cannot be of a type with DuckDB's types inside."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
