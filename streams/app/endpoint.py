"""The HTTP endpoint of a service, as its configuration describes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from streams import log_lines
from streams.app.service_config import Service
from streams.http.metrics import Family, counter, exposition
from streams.http.server import Endpoint, Probes, served
from streams.kafka.client.producer import WRITES


@contextmanager
def probed(service: Service, probes: Probes) -> Iterator[None]:
    """Answer /healthz, /readyz and /metrics meanwhile, if the service listens.

    Errors: InvalidUsage if it cannot listen there.
    """
    listening = service.listening
    if listening is None:
        yield
        return
    with served(Endpoint(listening, with_shared(probes))):
        yield


def with_shared(probes: Probes) -> Probes:
    """The probes of a service, with the metrics that every one has."""
    return replace(probes, metrics=lambda: probes.metrics() + exposition(of_every_service()))


def of_every_service() -> Iterator[Family]:
    """What is logged, and what is written to brokers."""
    yield counter(
        "log_records_total",
        "Lines in the log, by level: warning, error or critical.",
        [({"level": level}, count) for level, count in log_lines.counts().items()],
    )
    yield counter("broker_writes_total", "Flushes to brokers.", [({}, WRITES.calls)])
    yield counter(
        "broker_write_seconds_total",
        "Seconds from the first record of a flush to its last acknowledgement.",
        [({}, WRITES.seconds)],
    )
    yield counter(
        "broker_records_total",
        "Records that flushes had, by result: stored, or failed if that is not sure.",
        [({"result": "stored"}, WRITES.stored), ({"result": "failed"}, WRITES.failed)],
    )
