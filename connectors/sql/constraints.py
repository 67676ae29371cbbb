"""The constraint of each field of a collection, given the table that may already exist."""

from collections.abc import Mapping, Sequence

from connectors.sql.columns import Kind, TableColumn, column, kind_of
from connectors.sql.dialect import Dialect, Existing
from connectors.sql.statements import DELETED, EXISTS, GOES
from schemas.flow_pb2 import CollectionSpec, Projection
from schemas.materialize_pb2 import Constraint

RESERVED = (EXISTS.name, GOES.name, DELETED.name)
RAISE = "raise the binding's backfill, which has it written again"
REMEDY = f"name another table, or {RAISE}"


def constraints(
    dialect: Dialect, spec: CollectionSpec, existing: Mapping[str, Existing], *, delta: bool
) -> dict[str, Constraint]:
    """A constraint for every projection."""
    return {
        projection.field: constraint(dialect, spec, projection, existing, delta=delta)
        for projection in spec.projections
    }


def constraint(
    dialect: Dialect,
    spec: CollectionSpec,
    projection: Projection,
    existing: Mapping[str, Existing],
    *,
    delta: bool,
) -> Constraint:
    """The constraint of one projection: what the table says first, then its type."""
    wanted, is_key = column(projection), projection.ptr in spec.key_ptrs
    problem = unnameable(dialect, spec, wanted.name)
    if problem is None and is_key:
        problem = bad_key(dialect, wanted, delta=delta)
    is_required = is_key or wanted.name in existing
    if problem is None and existing:
        problem = unfitting(dialect, wanted, existing, key=is_key and not delta)
        is_required = True
    if problem is not None:
        kind = Constraint.UNSATISFIABLE if is_required else Constraint.FIELD_FORBIDDEN
        return Constraint(type=kind, reason=problem)
    return preference(projection, is_key=is_key, delta=delta)


def preference(projection: Projection, *, is_key: bool, delta: bool) -> Constraint:
    """The constraint in a new table."""
    if is_key:
        return Constraint(type=Constraint.LOCATION_REQUIRED, reason="it is part of the key")
    if projection.ptr == "" and not delta:
        reason = "the whole document is loaded from the table"
        return Constraint(type=Constraint.LOCATION_REQUIRED, reason=reason)
    match kind_of(projection):
        case None:
            return Constraint(type=Constraint.FIELD_FORBIDDEN, reason="it is always null")
        case Kind.JSON if projection.ptr:
            reason = "objects, lists and values of several types are kept as JSON"
            return Constraint(type=Constraint.FIELD_OPTIONAL, reason=reason)
        case _:
            reason = "it has a column type of its own"
            return Constraint(type=Constraint.LOCATION_RECOMMENDED, reason=reason)


def unnameable(dialect: Dialect, spec: CollectionSpec, name: str) -> str | None:
    """Why a field can have no column of its name."""
    same = dialect.same_name
    if problem := malformed(dialect, name):
        return f"{problem}; give the field another name"
    if name in dialect.own_columns:
        own = f"{dialect.name} has a column of its own named {name}"
        return f"{own}; give the field another name"
    if same(name) in map(same, RESERVED):
        return f"{name} is a name of ours; give the field another name"
    others = [projection.field for projection in spec.projections if projection.field != name]
    if twins := [other for other in others if same(other) == same(name)]:
        return f"{dialect.name} cannot tell the column from {twins[0]}; rename one of them"
    return None


def malformed(dialect: Dialect, name: str) -> str | None:
    """Why the database takes no such name: PostgreSQL would cut one that is too long."""
    size = len(name.encode())
    if not name or size > dialect.longest_name:
        limit = f"{dialect.name} takes names of 1 to {dialect.longest_name} bytes"
        return f"{limit}, this one has {size}"
    return f"{dialect.name} takes no NUL in a name" if "\0" in name else None


def bad_key(dialect: Dialect, wanted: TableColumn, *, delta: bool) -> str | None:
    """Why a field cannot be a part of a table's key."""
    if delta:
        return None
    if wanted.nullable:
        return "a part of the key is never null; its schema allows null or leaves it out"
    if wanted.kind in dialect.incomparable:
        return f"{dialect.name} has no key of {dialect.types[wanted.kind]}; declare another key"
    return None


def unfitting(
    dialect: Dialect, wanted: TableColumn, existing: Mapping[str, Existing], *, key: bool
) -> str | None:
    """Why a field does not go into the table that is there."""
    actual = existing.get(wanted.name)
    if actual is None:
        same = dialect.same_name
        twins = [name for name in existing if same(name) == same(wanted.name)]
        if twins and not key:
            return f"{dialect.name} cannot tell it from {twins[0]}, which is there; {REMEDY}"
        return f"the table's key has no such column; {REMEDY}" if key else None
    if actual.key != key:
        part = "is" if actual.key else "is not"
        return f"the column {part} part of the table's key; {REMEDY}"
    type_ = dialect.types[wanted.kind]
    widens = (actual.type, type_) in dialect.wider and (dialect.widens_keys or not key)
    if actual.type != type_ and not widens:
        return f"the column is {actual.type}, expected {type_}; {REMEDY}"
    return None


def missing_keys(existing: Mapping[str, Existing], keys: Sequence[str]) -> list[str]:
    """The key columns of a table that the collection does not have."""
    return [name for name, column in existing.items() if column.key and name not in keys]
