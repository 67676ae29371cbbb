"""The error for a name that no object has."""

import difflib
from collections.abc import Iterable

from streams.adapter.catalog import Item
from streams.adapter.system_columns import is_system, select_only
from streams.errors import InvalidStatement


def unknown(name: str, items: Iterable[Item]) -> InvalidStatement:
    """Return the error for an unknown source or view, with a similar name."""
    if is_system(name):
        return select_only(name)
    names = [item.name for item in items if item.has_shard and item.kind != "errors"]
    spelled = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(name.casefold(), spelled, n=1)
    return InvalidStatement(
        f"{name} does not exist",
        f"there are {', '.join(names)}" if names else "nothing has been created yet",
        f"did you mean {spelled[close[0]]}?" if close else "",
    )
