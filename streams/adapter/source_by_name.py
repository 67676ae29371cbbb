"""Finds the source that an ALTER SOURCE names."""

from streams.adapter.catalog import NAMES, Catalog, Item
from streams.adapter.unknown_names import unknown
from streams.errors import InvalidStatement


def source_by_name(name: str, catalog: Catalog, hint: str) -> Item:
    """Return the source of this name; `hint` is for one that is no source.

    Errors: InvalidStatement.
    """
    item = catalog.find(name)
    if item is None:
        raise unknown(name, catalog.ordered())
    if item.source is None:
        raise InvalidStatement(
            f"{item.name} is not a source but a {NAMES[item.kind]}", hint=hint
        )
    return item
