"""Verdicts of audits: counted for /metrics, and written to a topic as JSON.

The topic is `<namespace>.audits`, one message a verdict: an ordinary topic, over which a user
may create a source. A verdict that cannot be written is written with a later one; the newest
`_WAITING` are kept for that. No audit fails because its verdict cannot be written.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from streams.errors import SlackwaterError
from streams.http.metrics import Family, counter, gauge, seconds
from streams.ids import CollectionId, Timestamp, Topic
from streams.kafka.log import Logs
from streams.kafka.topics import TopicKind, Topics, TopicSpec
from streams.plan.physical import Column

log = logging.getLogger(__name__)

COLUMNS = (
    Column("view", "VARCHAR"),
    Column("time", "BIGINT"),
    Column("rows", "BIGINT"),
    Column("missing", "BIGINT"),
    Column("excess", "BIGINT"),
)
"""Of AUDIT: `missing` rows the view does not have, `excess` rows it has and should not."""

_WAITING = 1_000

Publish = Callable[[Sequence[bytes]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """A view at one time, and what its query says: `rows`, of which some are `missing`."""

    view: str
    id: CollectionId
    time: Timestamp
    rows: int
    missing: int
    excess: int

    @property
    def row(self) -> tuple[str, int, int, int, int]:
        """A row of `COLUMNS`."""
        return self.view, self.time, self.rows, self.missing, self.excess

    @property
    def observations(self) -> int:
        """The rows compared: those of the query, and the excess of the view."""
        return self.rows + self.excess

    @property
    def wrong(self) -> int:
        """The rows that differ."""
        return self.missing + self.excess


@dataclass(slots=True)
class Counts:
    """Counts since the coordinator began."""

    right: int = 0
    wrong: int = 0
    refused: int = 0
    observations: int = 0
    wrong_rows: int = 0
    last_ms: int | None = None


class Verdicts:
    """Takes verdicts. Thread-safe."""

    def __init__(self, publish: Publish, now_ms: Callable[[], int]) -> None:
        self._publish, self._now_ms = publish, now_ms
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=_WAITING)
        self.counts = Counts()

    def note(self, verdict: AuditVerdict) -> None:
        """Count it, write it, and log one that is wrong."""
        at_ms = self._now_ms()
        fields = {**asdict(verdict), "at": at_ms}
        if verdict.wrong:
            log.error("a view is not what its query says", extra=fields)
        with self._lock:
            counts = self.counts
            counts.right += not verdict.wrong
            counts.wrong += bool(verdict.wrong)
            counts.observations += verdict.observations
            counts.wrong_rows += verdict.wrong
            counts.last_ms = at_ms
            self._waiting.append(json.dumps(fields, ensure_ascii=False).encode())
            self._write()

    def refused(self) -> None:
        """Count an audit that could not be done."""
        with self._lock:
            self.counts.refused += 1

    def _write(self) -> None:
        try:
            self._publish(tuple(self._waiting))
        except SlackwaterError as error:
            log.warning("verdicts of audits cannot be written", extra={"cause": str(error)})
        else:
            self._waiting.clear()


def topic_of_verdicts(namespace: str) -> Topic:
    """Return the topic of verdicts: the one of an environment's own that a source may read."""
    return Topic(f"{namespace}.audits")


def publisher(logs: Logs, topics: Topics, namespace: str) -> Publish:
    """Return a function that writes to the topic of verdicts, and creates it before."""
    topic, is_created = topic_of_verdicts(namespace), False

    def publish(bodies: Sequence[bytes]) -> None:
        nonlocal is_created
        if not is_created:
            topics.create([TopicSpec(topic, 1, TopicKind.RAW)])
            is_created = True
        logs.append([(topic, body) for body in bodies])

    return publish


def of_audits(counts: Counts) -> Iterator[Family]:
    """Return the metrics of audits."""
    outcomes = {"right": counts.right, "wrong": counts.wrong, "refused": counts.refused}
    yield counter(
        "audits_total",
        "Audits: a view at one time, compared with its query over its inputs.",
        [({"outcome": outcome}, count) for outcome, count in outcomes.items()],
    )
    yield counter(
        "audit_observations_total", "Rows that audits compared.", [({}, counts.observations)]
    )
    yield counter(
        "audit_wrong_rows_total",
        "Rows that views lacked, or had and should not.",
        [({}, counts.wrong_rows)],
    )
    yield gauge(
        "audit_last_timestamp_seconds",
        "When the last audit was, in seconds since 1970.",
        [({}, seconds(counts.last_ms))],
    )
