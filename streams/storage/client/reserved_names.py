"""The names of the system's own collections and groups, which no client may use. Pure.

What the system finds under such a name, it trusts: the specification of a materialization says
which program is started. So they are refused where an id is claimed (`Directory.claim`), and
the system creates them without the registry.
"""

from streams.errors import InvalidUsage
from streams.storage.client.catalog_ids import CATALOG_ID

REGISTRY = "storage.ids"
"""The group of the id registry."""

ENTRY = "id:"
"""Prefix of the ids of the registry's own collections."""

SMALL_TABLES = ("materializations.", "materialize.")
"""Prefixes of the ids of small tables (`streams.storage.small_table`)."""


def refuse_reserved(name: str) -> None:
    """Check the name of a collection or a group. Errors: InvalidUsage for a reserved one."""
    if name == REGISTRY:
        raise InvalidUsage(
            f"{REGISTRY} is reserved for the registry of ids: choose another name"
        )
    if name.startswith(ENTRY):
        raise InvalidUsage(
            f"{name}: names that begin with {ENTRY} are reserved for the registry:"
            " choose another name"
        )
    if name.startswith(SMALL_TABLES):
        raise InvalidUsage(
            f"{name}: names that begin with {' or '.join(SMALL_TABLES)} are reserved for tables"
            " of the system: choose another name"
        )
    if CATALOG_ID.fullmatch(name):
        raise InvalidUsage(
            f"{name}: names of s, u, r, k, e, i or g and a number are reserved for the"
            " catalog's sources, views, rebases, sinks, dead letters, indexes and groups:"
            " choose another name"
        )
