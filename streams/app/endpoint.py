"""The HTTP endpoint of a service, as its configuration describes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.app.service_config import Service
from streams.errors import InvalidUsage
from streams.http.listening import Listening, address
from streams.http.server import Endpoint, Probes, served


def listening_of(service: Service) -> Listening | None:
    """Where a service listens; None if nowhere. Errors: InvalidUsage."""
    files = (service.certificate, service.key, service.client_authority)
    if not service.listen:
        if any(files) or service.password_file:
            raise InvalidUsage("expected --listen HOST:PORT with TLS and a password, got none")
        return None
    host, port = address(service.listen)
    certificate, key, client_authority = map(_file, files)
    return Listening(
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        client_authority=client_authority,
        password=password_in(service.password_file),
    )


def _file(name: str) -> Path | None:
    return Path(name).absolute() if name else None


def password_in(name: str) -> str:
    """The password in a file, without the line's end. Errors: InvalidUsage."""
    if not name:
        return ""
    try:
        password = Path(name).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as cause:
        kind = type(cause).__name__
        raise InvalidUsage(
            f"expected a password in {name}, which cannot be read: {kind}"
        ) from cause
    if not password:
        raise InvalidUsage(f"expected a password in {name}, which is empty")
    return password


@contextmanager
def probed(service: Service, probes: Probes) -> Iterator[None]:
    """Answer /healthz, /readyz and /metrics meanwhile, if the service listens.

    Errors: InvalidUsage if it cannot listen there.
    """
    listening = listening_of(service)
    if listening is None:
        yield
        return
    with served(Endpoint(listening, probes)):
        yield
