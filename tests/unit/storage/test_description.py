"""Descriptions are JSON that says the same both ways."""

import pytest

from streams.errors import InvalidUsage
from streams.storage.description import Description, dumps, loads


def test_a_description_comes_back() -> None:
    columns = (("größe", "DECIMAL(18,2)"), ("a b", "STRUCT(x INTEGER)"))
    description = Description(columns, keys=("a b",), kind="source")
    assert loads(dumps(description)) == description
    assert (description.names, description.types) == (
        ("größe", "a b"),
        ("DECIMAL(18,2)", "STRUCT(x INTEGER)"),
    )


def test_keys_are_columns() -> None:
    with pytest.raises(InvalidUsage, match="expected keys among the columns"):
        Description((("a", "INTEGER"),), keys=("b",))
    with pytest.raises(InvalidUsage, match="expected required among the columns"):
        Description((("a", "INTEGER"),), required=("b",))


def test_what_is_required_is_said_only_when_something_is() -> None:
    plain = Description((("a", "INTEGER"),), kind="table")
    assert "required" not in dumps(plain)
    strict = Description((("a", "INTEGER"),), kind="table", required=("a",))
    assert loads(dumps(strict)) == strict


NESTED = "[" * 100_000


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"columns": 1, "keys": [], "kind": "x"}', NESTED]
)
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(InvalidUsage, match="description") as refused:
        loads(text)
    assert len(str(refused.value)) < 1_000, "others read it in their answers"
