"""Ids of the catalog's objects, and their groups. Pure."""

import re

from streams.ids import CollectionId

CATALOG_ID = re.compile("[surkeig][0-9]+")
"""Ids of sources, views, rebases, sinks, indexes and dead letters, never used again; and groups
that views share.

A source and a rebase have a group of their own name, made by the coordinator without the
registry; dead letters are in the group of their source. Views are in a group that they share,
which the registry names, or in one of their own name.
"""


def own_group(id_: CollectionId) -> str:
    """Return the group of an object of the catalog that shares none."""
    is_letters = id_.startswith("e") and CATALOG_ID.fullmatch(id_) is not None
    return f"s{id_[1:]}" if is_letters else id_
