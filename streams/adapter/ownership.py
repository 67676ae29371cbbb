"""Checks whether the shard under an object's id belongs to the object. Pure.

Ids are numbered by the catalog. If its topic is deleted, a new catalog begins with the same
numbers, and finds the shards of the earlier one under them. Adopting one would return another
object's rows. So each shard names the catalog that created it (`Catalog.identity`).
"""

from dataclasses import replace

from streams.adapter.catalog import Item
from streams.errors import InvalidUsage
from streams.storage.description import Description, dumps, loads
from streams.storage.log.state import CollectionState


def described(item: Item, catalog: str) -> Description:
    """Return the description of the object's shard. `catalog` is the catalog's identity."""
    columns = tuple((column.name, column.type) for column in item.columns)
    keys = item.source.keys if item.source is not None else ()
    return Description(columns, keys, item.kind, catalog=catalog)


def strange(item: Item, catalog: str, state: CollectionState) -> str:
    """Return why a shard under the object's id is not the object's; empty if it is. Pure.

    Earlier versions did not say which catalog made a shard. Such a shard is the object's when
    it has the same columns and keys, and begins when the object was born or later: a shard of
    an earlier catalog is older than the objects of this one.
    """
    expected = described(item, catalog)
    try:
        description = loads(state.description)
    except InvalidUsage as cause:
        return str(cause)
    if description.catalog and description.catalog != catalog:
        return (
            f"expected one of catalog {catalog}, was created by catalog {description.catalog}"
        )
    if replace(description, catalog=catalog) != expected:
        return f"expected {dumps(expected)}, is {state.description}"
    if item.as_of is None:
        return "the object was not born yet"
    if not state.since.is_empty and state.since.time < item.as_of:
        return f"the object began at {item.as_of}, the shard before, at {state.since.time}"
    return ""
