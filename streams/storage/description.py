"""The immutable description of a collection: columns with types, keys, and kind.

The description is JSON, so that any client can read a collection's schema from the log alone.
It never changes: a new schema needs a new collection.
"""

import json
from dataclasses import dataclass
from functools import lru_cache

from schemas.stream import brief
from streams.errors import InvalidUsage
from streams.trace.kernel.kernel import arrow_schema


@dataclass(frozen=True, slots=True)
class Description:
    """`columns` are (name, DuckDB type) in order; `keys` name the columns of a unique key.

    `kind` says what feeds the collection: a table, a source, a view. `required` names the
    columns that hold no NULL. `catalog` is the identity of the catalog that made the collection
    for one of its objects; empty for users' collections.
    """

    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...] = ()
    kind: str = "view"
    required: tuple[str, ...] = ()
    catalog: str = ""

    def __post_init__(self) -> None:
        for what, named in (("keys", self.keys), ("required", self.required)):
            missing = set(named) - {name for name, _ in self.columns}
            if missing:
                raise InvalidUsage(
                    f"description: expected {what} among the columns, actual {missing}"
                )

    @property
    def is_user_fed(self) -> bool:
        """Whether users, and not the system, write to the collection (rule 3)."""
        return self.kind == "table"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(name for name, _ in self.columns)

    @property
    def types(self) -> tuple[str, ...]:
        """The columns' DuckDB types."""
        return tuple(type_ for _, type_ in self.columns)


def check_columns(description: Description) -> None:
    """Check the columns. Errors: InvalidUsage if no row could be written or read with them."""
    names = description.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidUsage(f"description: expected columns of different names, twice: {twice}")
    try:
        arrow_schema(description.types)
    except Exception as cause:  # whatever error the engine raises for an unknown type
        raise InvalidUsage(
            f"description: expected DuckDB's types, actual {', '.join(description.types)}"
        ) from cause


def dumps(description: Description, creator: str = "") -> str:
    """Return the description as JSON; equal descriptions by equal creators give equal text."""
    columns = [{"name": name, "type": type_} for name, type_ in description.columns]
    value = {"columns": columns, "keys": list(description.keys), "kind": description.kind}
    if description.required:
        value["required"] = list(description.required)
    if description.catalog:
        value["catalog"] = description.catalog
    if creator:
        value["creator"] = creator
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=4096)
def loads(text: str) -> Description:
    """Parse a description from JSON text; cached, because every write calls it.

    Errors: InvalidUsage if the text is no description.
    """
    try:
        value = json.loads(text)
        columns = tuple((column["name"], column["type"]) for column in value["columns"])
        required = tuple(value.get("required", ()))
        catalog = str(value.get("catalog", ""))
        return Description(columns, tuple(value["keys"]), value["kind"], required, catalog)
    except (ValueError, KeyError, TypeError, RecursionError) as cause:  # nested too deep
        raise InvalidUsage(
            f"description: expected columns, keys, kind, actual {brief(text)}"
        ) from cause
