"""The options of commands that speak to a coordinator by its URL."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import typer

from streams.app.client import Client
from streams.errors import InvalidUsage
from streams.http.listening import is_loopback, no_passphrase, password_in, trust


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
        Path | None,
        typer.Option(
            envvar="SLACKWATER_TLS_CLIENT_CERTIFICATE",
            help="A certificate of this client, as PEM.",
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(envvar="SLACKWATER_TLS_CLIENT_KEY", help="Its key, as PEM."),
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SLACKWATER_PASSWORD_FILE",
            help="A file that holds the coordinator's password.",
        ),
    ] = None

    def client(self) -> Client:
        """The client. Errors: InvalidUsage."""
        parts = _parts(self.url)
        password = "" if self.password_file is None else password_in(self.password_file)
        if parts.scheme == "http" and password and not is_loopback(parts.hostname or ""):
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
        if self.tls_key is not None and self.tls_certificate is None:
            raise InvalidUsage(
                "expected a certificate of this client with its key, actual the key"
            )
        if self.tls_certificate is not None:
            try:
                context.load_cert_chain(
                    self.tls_certificate, self.tls_key, password=no_passphrase
                )
            except (OSError, ValueError) as cause:
                raise InvalidUsage(
                    f"expected a certificate and its key as PEM in {self.tls_certificate} and"
                    f" {self.tls_key}: {cause}"
                ) from cause
        return context


def _parts(url: str) -> SplitResult:
    """The parts of a coordinator's URL. Errors: InvalidUsage."""
    try:
        parts = urlsplit(url)
        is_right = (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0  # which raises if it is no number
            and "@" not in parts.netloc
            and not (parts.path.strip("/") or parts.query or parts.fragment)
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        raise InvalidUsage(_no_url(url)) from None  # its text would have the password
    if not is_right:
        raise InvalidUsage(_no_url(url))
    return parts


def _no_url(url: str) -> str:
    shown = repr(url) if "@" not in url else "one with a user or password"
    return f"expected a URL as https://HOST:PORT, actual {shown}"
