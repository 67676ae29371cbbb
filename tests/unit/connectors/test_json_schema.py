"""What JSON Schemas of connectors refuse, in words that show no value."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from connectors import files, postgres, sqlite
from connectors.json_schema import exposed, marked, refusals
from schemas.materialize_pb2 import SpecRequest

POSTGRES = json.loads(
    postgres.connector({}).spec(SpecRequest()).endpoint_spec_schema_json,
)
PATHS = json.loads(files.FilesConnector().spec(SpecRequest()).resource_spec_schema_json)
NESTED = {
    "type": "object",
    "properties": {
        "auth": {"anyOf": [{"$ref": "#/$defs/Auth"}, {"type": "null"}]},
        "kind": {"const": "x"},
        "free": {},
    },
    "$defs": {
        "Auth": {
            "type": "object",
            "properties": {"user": {"type": "string"}},
            "additionalProperties": False,
            "required": ["user"],
        }
    },
}
GOOD = {"host": "db", "database": "d", "user": "u"}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (POSTGRES, GOOD, []),
        (POSTGRES, {**GOOD, "port": 70000}, ["c.port: expected at most 65535"]),
        (POSTGRES, {**GOOD, "port": True}, ["c.port: expected integer, actual true or false"]),
        (POSTGRES, {**GOOD, "host": ""}, ["c.host: expected at least 1 characters"]),
        (POSTGRES, {**GOOD, "sslmode": "x"}, ["c.sslmode: expected what matches ^("]),
        (
            POSTGRES,
            {"hots": "db", "database": "d", "user": "u"},
            ["c: option hots is not known: did you mean host?", "c: option host is missing"],
        ),
        (PATHS, {"path": "a", "partition_by": [1]}, ["c.partition_by[0]: expected string"]),
        (PATHS, {"path": "a", "delta_updates": False}, ["c.delta_updates: expected one of"]),
        (NESTED, {"auth": None, "kind": "x", "free": {"any": 1}}, []),
        (NESTED, {"auth": {"user": "u", "password": "hunter2"}}, ["c.auth: option password"]),
        (NESTED, {"auth": {}}, ["c.auth: option user is missing"]),
        (NESTED, {"kind": "y"}, ["c.kind: expected one of x"]),
        (NESTED, [], ["c: expected object, actual a list"]),
    ],
)
def test_what_is_refused_is_named(schema: Any, value: Any, expected: Sequence[str]) -> None:
    problems = list(refusals(schema, value, "c", is_closed=True))
    assert len(problems) == len(expected), problems
    for problem, start in zip(problems, expected, strict=True):
        assert problem.startswith(start)
        assert "hunter2" not in problem


def test_an_open_schema_takes_what_it_does_not_know() -> None:
    assert list(refusals({"type": "object"}, {"new": 1}, "c", is_closed=False)) == []


def test_marks_name_a_property() -> None:
    tables = json.loads(sqlite.CONNECTOR.spec(SpecRequest()).resource_spec_schema_json)
    assert marked(tables, "x-delta-updates") == ("delta_updates", False)
    assert marked(PATHS, "x-delta-updates") == ("delta_updates", True)
    assert marked(tables, "x-nothing") is None


LOOP: Any = {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"oneOf": [{"$ref": "#"}]}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": r"^\p{L}+$"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"$ref": "#/$defs/gone"}, "b": False, "c": 7}},
        {"properties": {"a": {"$ref": "other.json"}}},
        {"properties": {"a": {"$ref": "#"}}, "anyOf": 7},
        {"$ref": "#"},
        {"$ref": "#/$defs/b", "$defs": {"b": {"$ref": "#/$defs/b"}}},
        LOOP,
        {"type": {"object": 1}},
        {"type": [["object"]], "items": 7},
        {"required": [{}, 7], "properties": 7},
    ],
    ids=range(11),
)
def test_what_a_schema_of_somebody_else_says_that_is_not_known_says_nothing(
    schema: Any,
) -> None:
    """The connector judges itself, with its own words."""
    assert list(refusals(schema, {"a": "ä"}, "c", is_closed=False)) == []
    assert list(exposed(schema, {"a": "ä"}, "c")) == []


def test_a_recursive_schema_is_asked_of_each_member() -> None:
    tree: Any = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        },
    }
    value: Any = {"name": "a", "next": {"name": "b", "next": {"name": 7, "next": None}}}
    assert list(refusals(tree, value, "c", is_closed=False)) == [
        "c.next.next.name: expected string, actual a whole number"
    ]


SECRET: Any = {"type": "string", "secret": True}
LOGIN: Any = {"properties": {"user": {"type": "string"}, "word": SECRET}}


@pytest.mark.parametrize(
    ("schema", "value", "places"),
    [
        (SECRET, "env:A", []),
        (SECRET, "", []),
        (SECRET, "x", ["c"]),
        (SECRET, 1234, ["c"]),
        (SECRET, ["env:A", {"a": "x"}], ["c[1].a"]),
        ({"properties": {"in": LOGIN}}, {"in": {"user": "u", "word": "x"}}, ["c.in.word"]),
        (
            {"properties": {"in": {"$ref": "#/$defs/l"}}, "$defs": {"l": LOGIN}},
            {"in": {"word": "x"}},
            ["c.in.word"],
        ),
        (
            {"properties": {"in": {"$ref": "#/$defs/t", "secret": True}}, "$defs": {"t": {}}},
            {"in": "x"},
            ["c.in"],
        ),
        ({"oneOf": [{"properties": {"key": {}}}, LOGIN, LOGIN]}, {"word": "x"}, ["c.word"]),
        ({"anyOf": [{"allOf": [LOGIN]}]}, {"word": "x"}, ["c.word"]),
        ({"items": SECRET}, ["env:A", "x"], ["c[1]"]),
        ({"additionalProperties": SECRET}, {"a": "x", "b": "file:/f"}, ["c.a"]),
    ],
    ids=range(12),
)
def test_a_secret_itself_is_found_wherever_a_schema_marks_it(
    schema: Any, value: Any, places: Sequence[str]
) -> None:
    assert list(exposed(schema, value, "c")) == places
