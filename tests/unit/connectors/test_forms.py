"""The configuration schemas of all our connectors, as forms read them."""

import json
from typing import Any

import pytest

from schemas.materialize_pb2 import SpecRequest
from streams.app.connector.lookup import OURS, named


@pytest.mark.parametrize("name", OURS)
def test_every_property_can_be_shown_in_a_form(name: str) -> None:
    """Seed, "Spec": both schemas, and a link to the documentation."""
    response = named(name).spec(SpecRequest())
    assert response.documentation_url.startswith("https://")
    for text in (response.endpoint_spec_schema_json, response.resource_spec_schema_json):
        schema = json.loads(text)
        assert schema["type"] == "object"
        assert schema["title"]
        assert schema.get("additionalProperties", True) is True, "who encrypts it adds one"
        check(schema["properties"])


def check(properties: dict[str, Any]) -> None:
    orders = [each["order"] for each in properties.values()]
    assert orders == list(range(len(properties)))
    for name, each in properties.items():
        assert each["title"][0].isupper(), name
        assert each["description"][0].isupper(), name
        assert each["description"].endswith("."), name
        if each.get("type") == "boolean":
            assert each["default"] in {True, False}, name
        if each.get("secret"):
            assert each["type"] == "string", name
