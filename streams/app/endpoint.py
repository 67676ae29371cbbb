"""The HTTP endpoint of a service, as its configuration describes it."""

from collections.abc import Iterator
from contextlib import contextmanager

from streams.app.service_config import Service
from streams.http.server import Endpoint, Probes, served


@contextmanager
def probed(service: Service, probes: Probes) -> Iterator[None]:
    """Answer /healthz, /readyz and /metrics meanwhile, if the service listens.

    Errors: InvalidUsage if it cannot listen there.
    """
    listening = service.listening
    if listening is None:
        yield
        return
    with served(Endpoint(listening, probes)):
        yield
