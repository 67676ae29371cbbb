"""The options of commands that speak to a coordinator by its URL."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from streams.app.client import Client
from streams.errors import InvalidUsage
from streams.http.listening import is_loopback, password_in, trust


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Access:
    """The address of a coordinator, and what it asks for."""

    url: Annotated[
        str,
        typer.Option(
            envvar="SLACKWATER_URL",
            help="A coordinator, http(s)://HOST:PORT, instead of the environment's.",
        ),
    ] = ""
    tls_authority: Annotated[
        Path | None,
        typer.Option(
            envvar="SLACKWATER_TLS_AUTHORITY",
            help="Certificates, as PEM, that sign the coordinator's. Default: the machine's.",
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A certificate of this client, as PEM.")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key, as PEM.")] = None
    password_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SLACKWATER_PASSWORD_FILE",
            help="A file that holds the coordinator's password.",
        ),
    ] = None

    def client(self) -> Client:
        """The client. Errors: InvalidUsage."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
            raise InvalidUsage(f"expected a URL as https://HOST:PORT, got {self.url!r}")
        password = "" if self.password_file is None else password_in(self.password_file)
        if parts.scheme == "http" and password and not is_loopback(parts.hostname):
            raise InvalidUsage(
                f"expected https in {self.url}: a password would be sent in clear to another"
                " machine"
            )
        context = self._context() if parts.scheme == "https" else None
        return Client(f"{parts.scheme}://{parts.netloc}", context=context, password=password)

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self.tls_authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trust(context, self.tls_authority)
        if self.tls_certificate is not None:
            try:
                context.load_cert_chain(self.tls_certificate, self.tls_key)
            except (OSError, ValueError) as cause:
                raise InvalidUsage(
                    f"expected a certificate and its key as PEM in {self.tls_certificate} and"
                    f" {self.tls_key}: {cause}"
                ) from cause
        return context
