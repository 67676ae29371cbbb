"""Where a service listens, and who may speak to it.

Beyond this machine a service speaks TLS alone, and answers only clients that have its password
or a certificate of the authority that it trusts.
"""

import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from streams.errors import InvalidUsage

SHORTEST_PASSWORD = 12
"""Fewest characters of a password: a client that reaches the port may try any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """An address, and what protects it. Port 0 is a free one.

    `certificate` and `key` are PEM files of the server; `client_authority` is the PEM file of
    the authority that certificates of clients must have.

    Errors: InvalidUsage when something is missing, or it is open beyond this machine.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidUsage("expected a certificate and its key for TLS, actual one of them")
        if self.client_authority is not None and self.certificate is None:
            raise InvalidUsage(
                "expected a certificate and a key of the server: without TLS clients show none"
            )
        if self.password and len(self.password) < SHORTEST_PASSWORD:
            raise InvalidUsage(
                f"expected a password of at least {SHORTEST_PASSWORD} characters,"
                f" actual {len(self.password)}"
            )
        if is_loopback(self.host):
            return
        lacks = [
            name
            for name, is_there in (
                ("a certificate and its key for TLS", self.certificate is not None),
                ("a password or an authority of clients", self.is_closed),
            )
            if not is_there
        ]
        if lacks:
            raise InvalidUsage(
                f"expected {' and '.join(lacks)} to listen at {self.host or 'all addresses'},"
                " beyond this machine: add them, or listen at 127.0.0.1"
            )

    @property
    def is_closed(self) -> bool:
        """Whether a client has to prove something."""
        return bool(self.password) or self.client_authority is not None

    @property
    def url(self) -> str:
        """The address as clients on this machine write it."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def context(self) -> ssl.SSLContext | None:
        """TLS as the server speaks it; None without. Errors: InvalidUsage, naming the file."""
        if self.certificate is None or self.key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=no_passphrase)
        except (OSError, ValueError) as cause:  # ssl.SSLError is an OSError
            raise InvalidUsage(
                f"expected a certificate and its key as PEM in {self.certificate} and"
                f" {self.key}: {cause}"
            ) from cause
        if self.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            trust(context, self.client_authority)
        return context


def trust(context: ssl.SSLContext, authority: Path) -> None:
    """Trust the certificates of a PEM file. Errors: InvalidUsage."""
    try:
        context.load_verify_locations(authority)
    except OSError as cause:
        raise InvalidUsage(f"expected certificates as PEM in {authority}: {cause}") from cause


def no_passphrase() -> str:
    """Instead of a prompt on the terminal, which a service does not have."""
    raise ValueError("the key has a passphrase")


def address(text: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT. Errors: InvalidUsage."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidUsage(f"expected HOST:PORT, as 127.0.0.1:9464, actual {text!r}")
    return host.strip("[]"), int(port)


def password_in(file: Path) -> str:
    """The password in a file, without the line's end. Errors: InvalidUsage."""
    try:
        password = file.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as cause:
        kind = type(cause).__name__
        raise InvalidUsage(
            f"expected a password in {file}, which cannot be read: {kind}"
        ) from cause
    if not password:
        raise InvalidUsage(f"expected a password in {file}, which is empty")
    return password


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host. Any name but localhost counts as no."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
