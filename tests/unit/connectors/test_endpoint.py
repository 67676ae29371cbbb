"""Endpoint configurations: a connector is given its own part alone."""

import json

import pytest

from connectors.transport.endpoint import unwrap
from connectors.transport.rpc import Rpc
from connectors.transport.stdio import Command
from streams.errors import InvalidUsage


def test_a_connector_is_given_its_own_configuration():
    """Seed, "Endpoint configuration": how the connector is to configure itself."""
    endpoint = unwrap('{"command": ["./run", "-v"], "config": {"host": "db", "n": [1]}}')
    assert json.loads(endpoint.config_json) == {"host": "db", "n": [1]}
    transport = endpoint.transport({"A": "b"})
    assert isinstance(transport, Command)
    assert transport.command == ["./run", "-v"]
    assert transport.environment == {"A": "b"}
    transport = unwrap('{"grpc": "unix:/x", "config": {}}').transport({})
    assert isinstance(transport, Rpc)
    transport.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Invalid JSON"),
        ("{}", "config: Field required"),
        ('{"config": {}}', "expected command or grpc, not both"),
        ('{"config": {}, "grpc": "a:1", "command": ["x"]}', "expected command or grpc"),
        ('{"config": {}, "grpc": "a:1", "image": "x"}', "image: Extra inputs"),
        ('{"config": [], "grpc": "a:1"}', "config: "),
        ('{"config": {}, "command": []}', "command: "),
        ('{"config": {}, "command": "./x"}', "command: "),
    ],
)
def test_what_is_wrong_is_named_and_no_value_shown(text, problem):
    with pytest.raises(InvalidUsage, match=problem) as caught:
        unwrap(text)
    assert "./x" not in str(caught.value)
