"""The metrics of statements that come over HTTP. Pure but for the counts themselves."""

from collections.abc import Iterator
from dataclasses import dataclass

from streams.http.metrics import Family, counter, gauge


@dataclass(slots=True)
class RequestCounts:
    """Requests that have ended, their time, and statements that failed; the server counts."""

    answered: int = 0
    seconds: float = 0.0
    failed_statements: int = 0


def of_requests(counts: RequestCounts, in_progress: int) -> Iterator[Family]:
    """Return the metrics of requests for statements."""
    yield counter(
        "sql_requests_total", "Requests of statements that have ended.", [({}, counts.answered)]
    )
    yield counter(
        "sql_request_seconds_total",
        "Their seconds; a subscription is one request, however long.",
        [({}, counts.seconds)],
    )
    yield counter(
        "sql_errors_total",
        "Statements that ended with an error.",
        [({}, counts.failed_statements)],
    )
    yield gauge(
        "sql_requests_in_progress", "Requests that are being answered.", [({}, in_progress)]
    )
