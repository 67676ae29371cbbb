"""Endpoint configurations: how to reach the connector, wrapped around its own configuration.

A driver's configuration names the connector and wraps its own: `{"command": [..], "config":
{..}}` or `{"grpc": "host:port", "config": {..}}`. The connector sees `config` alone.
"""

import json
from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, Field, JsonValue, model_validator

from connectors.config import STRICT, parsed
from connectors.driver import Transport
from connectors.transport.rpc import Rpc
from connectors.transport.stdio import Command


class WrappedConfig(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """A configuration that wraps a connector's."""

    model_config = STRICT

    command: list[str] | None = Field(default=None, min_length=1)
    """A program and its arguments, to which the name of the call is appended."""
    grpc: str | None = Field(default=None, min_length=1)
    """host:port, or unix:path."""
    config: dict[str, JsonValue]

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (self.grpc is None):
            raise ValueError("expected command or grpc, not both")
        return self

    @property
    def config_json(self) -> str:
        """The connector's own configuration."""
        return json.dumps(self.config)

    def transport(self, environment: Mapping[str, str]) -> Transport:
        """Open the transport; `environment` is the whole environment of its processes."""
        if self.command is not None:
            return Command(self.command, environment)
        assert self.grpc is not None, "it was validated"
        return Rpc(self.grpc)


def unwrap(text: str) -> WrappedConfig:
    """Errors: InvalidUsage, which names each field that is wrong."""
    return parsed(WrappedConfig, "endpoint configuration", text)
