"""The configuration schemas of all our connectors, as forms read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.materialize_pb2 import SpecRequest
from streams.app.connector.lookup import OURS, named

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", OURS)
def test_every_property_can_be_shown_in_a_form(name: str) -> None:
    """Seed, "Spec": both schemas, and a link to the documentation."""
    response = named(name).spec(SpecRequest())
    page = ROOT / response.documentation_url
    assert page.is_file(), "a page of this project, relative to its root"
    for text in (response.endpoint_spec_schema_json, response.resource_spec_schema_json):
        schema = json.loads(text)
        assert schema["type"] == "object"
        assert schema["title"]
        assert schema.get("additionalProperties", True) is True, "who encrypts it adds one"
        check(schema["properties"])


def check(properties: dict[str, Any]) -> None:
    orders = [property_["order"] for property_ in properties.values()]
    assert orders == list(range(len(properties)))
    for name, property_ in properties.items():
        assert property_["title"][0].isupper(), name
        assert property_["description"][0].isupper(), name
        assert property_["description"].endswith("."), name
        if property_.get("type") == "boolean":
            assert property_["default"] in {True, False}, name
        if property_.get("secret"):
            assert property_["type"] == "string", name
