"""Checks unions that clients send as structs: the tag names exactly one member.

Keys and consolidation compare whole structs. So among structs that a query would read as the
same union value, only one form may be stored, and the others are refused.
"""

import pyarrow as pa
import pyarrow.compute as pc

from streams.storage.write.arrow_types import TypeMismatch
from streams.trace.kernel.kernel import printed_type
from streams.trace.kernel.types import parts
from streams.trace.kernel.unions import has_union


def check_unions(column: pa.ChunkedArray, duckdb_type: str) -> None:
    """Errors: Misfit where a struct in the column carries no union of the type."""
    kind = printed_type(duckdb_type)
    if has_union(kind):
        for chunk in column.chunks:
            _check(pa.concat_arrays([chunk]), kind)


def _check(array: pa.Array, kind: str) -> None:
    union = parts(kind) if has_union(kind) else None
    if union is None:
        return
    if union.kind == "UNION":
        tag, *inside = array.flatten()
        _check_tags(array, tag, inside)
    elif union.kind == "MAP":
        inside = [array.keys, array.items]
    elif union.kind in {"LIST", "ARRAY"}:
        inside = [array.flatten()]
    else:
        inside = array.flatten()
    for part, type_ in zip(inside, union.types, strict=True):
        _check(part, type_)


def _check_tags(array: pa.Array, tag: pa.Array, members: list[pa.Array]) -> None:
    if tag.null_count != array.null_count:
        raise TypeMismatch("expected a tag in every union that is not NULL, actual NULL")
    last = pc.max(tag).as_py()
    if last is not None and last >= len(members):
        raise TypeMismatch(f"expected tags of {len(members)} members, actual {last}")
    for place, member in enumerate(members):
        others = pc.and_(member.is_valid(), pc.not_equal(tag, pa.scalar(place, tag.type)))
        if pc.any(others).as_py():
            raise TypeMismatch(
                f"expected NULL for each member but the tag's, actual member {place}"
            )
