"""Ids of the catalog's objects, and their groups. Pure."""

import re

from streams.ids import CollectionId

CATALOG_ID = re.compile("[surkei][0-9]+")
"""Ids of sources, views, rebases, sinks, indexes and dead letters, never used again.

Each has a group of its own name, made by the coordinator without the registry; dead letters
are in the group of their source.
"""


def group_of(id_: CollectionId) -> str:
    """Return the group of an object of the catalog."""
    is_letters = id_.startswith("e") and CATALOG_ID.fullmatch(id_) is not None
    return f"s{id_[1:]}" if is_letters else id_
