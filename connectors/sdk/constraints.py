"""Constraints of endpoints that keep documents whole."""

from collections.abc import Mapping

from schemas.flow_pb2 import CollectionSpec
from schemas.materialize_pb2 import Constraint
from streams.errors import InvalidUsage


def document_constraints(spec: CollectionSpec) -> Mapping[str, Constraint]:
    """A constraint for every projection: the document has them all.

    Errors: InvalidUsage if the collection has no field of the whole document.
    """
    by_field: dict[str, Constraint] = {}
    for projection in spec.projections:
        if projection.ptr in spec.key_ptrs:
            kind, reason = Constraint.LOCATION_REQUIRED, "it is part of the key"
        elif projection.ptr == "":
            kind, reason = Constraint.FIELD_REQUIRED, "documents are what is kept"
        else:
            kind, reason = Constraint.FIELD_OPTIONAL, "the document has it"
        by_field[projection.field] = Constraint(type=kind, reason=reason)
    if "" not in {projection.ptr for projection in spec.projections}:
        raise InvalidUsage(f"collection {spec.collection}: expected a field of the document")
    return by_field
