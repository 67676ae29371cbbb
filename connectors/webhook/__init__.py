"""A connector of web hooks: every change is sent by POST, in requests that can be told apart.

Bindings are of delta updates. A request that comes twice comes with the same id and the same
bytes, so a receiver that looks at ids takes each change once: see `connectors/docs/WEBHOOK.md`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, JsonValue, model_validator

from connectors.config import STRICT, form, parsed, schema_text, secret
from connectors.protocol.messages import Extensions, Open
from connectors.sdk.constraints import document_constraints
from connectors.webhook.http_client import Sender
from connectors.webhook.transactor import IN_MEMORY, RequestLimits, WebhookTransactor
from schemas.materialize_pb2 import (
    ApplyRequest,
    ApplyResponse,
    SpecRequest,
    SpecResponse,
    ValidateRequest,
    ValidateResponse,
)

SECRET: dict[str, JsonValue] = {"type": "string", "secret": True}
SECRET_NAMES = {"authorization", "proxy-authorization", "cookie", "x-api-key"}
OWN_NAMES = {"content-type", "content-length", "host", "idempotency-key"}


class Config(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Endpoint configuration: the URL and the form of requests."""

    model_config = STRICT | {"title": "Web hook"}

    url: str = Field(
        title="URL",
        description="What paths are appended to; no user, password or query is in it.",
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$",
        json_schema_extra=form(0),
    )
    headers: dict[str, str] = Field(
        default={},
        title="Headers",
        description="Headers of every request.",
        json_schema_extra=form(1),
    )
    secret_headers: dict[str, str] = Field(
        default={},
        title="Secret headers",
        description="Headers whose values are found at env:NAME or file:PATH.",
        json_schema_extra={**form(2), "additionalProperties": SECRET},
    )
    timeout_s: float = Field(
        default=30.0,
        title="Timeout",
        description="Seconds to wait for a connection, and for an answer.",
        gt=0,
        json_schema_extra=form(3),
    )
    batch_documents: int = Field(
        default=1000,
        title="Batch documents",
        description="The most documents of a request.",
        ge=1,
        le=100_000,
        json_schema_extra=form(4),
    )
    batch_bytes: int = Field(
        default=1 << 20,
        title="Batch bytes",
        description="The most bytes of a request's documents; one document may have more.",
        ge=1,
        le=64 << 20,
        json_schema_extra=form(5),
    )
    retries: int = Field(
        default=5,
        title="Retries",
        description="How often a request is repeated that failed of what can pass.",
        ge=0,
        le=100,
        json_schema_extra=form(6),
    )
    verify_tls: bool = Field(
        default=True,
        title="Verify TLS",
        description="Whether the endpoint's certificate is verified.",
        json_schema_extra=form(7),
    )
    ca_file: str = Field(
        default="",
        title="CA file",
        description="Certificates to verify by, as PEM; empty: those of the system.",
        json_schema_extra=form(8),
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not urlsplit(self.url).hostname:
            raise ValueError("expected a URL with a host")
        for name in (*self.headers, *self.secret_headers):
            if name.casefold() in OWN_NAMES:
                raise ValueError(f"the header {name} is set by the connector: leave it out")
        for name in self.headers:
            if name.casefold() in SECRET_NAMES:
                raise ValueError(f"the header {name} is secret: move it to secret_headers")
        return self


class Resource(BaseModel):  # type: ignore[explicit-any] # JSON is recursive
    """Resource configuration: the path of a binding's requests."""

    model_config = STRICT | {"title": "Path"}

    path: str = Field(
        title="Path",
        description="What is appended to the URL, after a slash.",
        pattern=r"^[^/\s?#][^\s?#]*$",
        json_schema_extra=form(0, mark="x-collection-name"),
    )
    delta_updates: Literal[True] = Field(
        default=True,
        title="Delta updates",
        description="Every change is a document of its own.",
        json_schema_extra=form(1, mark="x-delta-updates"),
    )


class WebhookConnector:
    """The four calls. An endpoint of this kind keeps nothing that could be asked for."""

    extensions = Extensions()

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def spec(self, request: SpecRequest) -> SpecResponse:
        """The schemas."""
        del request
        return SpecResponse(
            endpoint_spec_schema_json=schema_text(Config),
            resource_spec_schema_json=schema_text(Resource),
            documentation_url="connectors/docs/WEBHOOK.md",
        )

    def validate(self, request: ValidateRequest) -> ValidateResponse:
        """No-op: nothing is sent. Errors: InvalidUsage."""
        self._sender(request.endpoint_spec_json)
        response = ValidateResponse()
        for index, binding in enumerate(request.bindings):
            response.bindings.add(
                constraints=document_constraints(binding.collection),
                resource_path=[path_of(index, binding.resource_spec_json)],
                delta_updates=True,
            )
        return response

    def apply(self, request: ApplyRequest) -> ApplyResponse:
        """No-op. Errors: InvalidUsage."""
        spec = request.materialization
        self._sender(spec.endpoint_spec_json)
        for index, binding in enumerate(spec.bindings):
            path_of(index, binding.resource_spec_json)
        return ApplyResponse()

    @contextmanager
    def open(self, message: Open) -> Iterator[WebhookTransactor]:
        """Errors: InvalidUsage."""
        sender, limits = self._sender(message.materialization.endpoint_spec_json)
        with sender, SpooledTemporaryFile(max_size=IN_MEMORY) as file:
            yield WebhookTransactor(sender, file, limits, message)

    def _sender(self, text: str) -> tuple[Sender, RequestLimits]:
        config = parsed(Config, "endpoint configuration", text)
        hidden = {
            name: secret(self._environment, value)
            for name, value in config.secret_headers.items()
        }
        sender = Sender(
            url=config.url,
            headers={**config.headers, **hidden},
            timeout_s=config.timeout_s,
            retries=config.retries,
            ca_file=config.ca_file or None,
            verify=config.verify_tls,
        )
        return sender, RequestLimits(config.batch_documents, config.batch_bytes)


def path_of(index: int, text: str) -> str:
    """Errors: InvalidUsage."""
    return parsed(Resource, f"binding {index}: resource configuration", text).path


def connector(environment: Mapping[str, str]) -> WebhookConnector:
    """The connector; `environment` is where `env:NAME` is looked up."""
    return WebhookConnector(environment)
