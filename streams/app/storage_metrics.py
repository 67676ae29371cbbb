"""The metrics of the service that answers storage's commands. Pure."""

from collections.abc import Iterator

from streams.http.metrics import Family, counter, gauge
from streams.storage.commands.service import ServiceMeasures
from streams.storage.commands.wire import Status


def of_storage(measures: ServiceMeasures) -> Iterator[Family]:
    """Return the metrics of the service."""
    yield counter(
        "storage_commands_total",
        "Commands that were answered, by the status of the response.",
        [({"status": status.value}, measures.answered.get(status, 0)) for status in Status],
    )
    yield gauge(
        "storage_pending_commands",
        "Commands that were read and are not answered yet.",
        [({}, measures.pending)],
    )
    yield counter(
        "storage_session_failures_total",
        "Sessions that ended with an error; the next one reads commands again.",
        [({}, measures.failures)],
    )
