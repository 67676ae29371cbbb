"""What a cluster reports of itself, to diagnose what is wrong with it.

Each broker is asked on its own, by a request that only it answers, with a client of its own
connections: an answer means that the broker can be reached from here, as clients reach it.

Kafka does not report its release. Brokers report which versions of requests they take, and
librdkafka writes that to its log alone, whose lines are read here (contexts "broker" and
"feature" of its setting `debug`).
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
)

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.client.admin import KafkaTopics
from streams.kafka.client.error_mapping import cause_of
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.settings import ClientSettings
from streams.kafka.topic_settings import TopicChoices
from streams.kafka.topics import Durability, Found, TopicKind, TopicSpec

REQUEST_S = 10.0
"""Seconds that a broker has to answer."""

AT_ONCE = 500
"""Topics that are described by one request."""

_POLL_S = 0.05
_API = re.compile(r"ApiKey (\w+) \(\d+\) Versions \d+\.\.(\d+)")
_HUNG_UP = re.compile(r"Disconnected.*in state APIVERSION_QUERY")
_CUT_OFF = "connections are closed without a word: is security.protocol that of the listener?"
_PREFIX = re.compile(r"^(?:\w+ )?(?:\[[^\]]*\]:? ?)*")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker: the address that it advertises; `problem` says why it does not answer."""

    id: int
    address: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The brokers, and the greatest version of each request that all of them take, by name."""

    brokers: tuple[BrokerFacts, ...]
    requests: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The broker's clock, between two readings of ours. Units: milliseconds since the epoch."""

    before_ms: int
    broker_ms: int
    after_ms: int


def cluster(settings: ClientSettings) -> ClusterFacts:
    """Ask all brokers. Errors: InvalidUsage; Determinate, with the reason, if none answers."""
    said = _Said()
    config = settings.client(
        {}, {"log_level": 7, "debug": "broker,feature", "socket.timeout.ms": 10_000}
    )
    try:
        called = {**config, "error_cb": said.note}  # a callback is a setting too
        admin = AdminClient(called, logger=said.logger)  # type: ignore[arg-type]
    except KafkaException as error:
        reason = settings.masked(cause_of(error).str())
        raise InvalidUsage(f"client settings are invalid: {reason}") from None
    try:
        described: DescribeClusterResult = _answer(
            admin, admin.describe_cluster(request_timeout=REQUEST_S)
        )
    except KafkaException as error:
        raise Determinate(settings.masked(said.reason(cause_of(error)))) from None
    asked = {
        node: _asked(admin, node.id)
        for node in sorted(described.nodes, key=lambda node: int(node.id))
    }
    problems = {node: settings.masked(_problem(admin, asked[node])) for node in asked}
    brokers = tuple(
        BrokerFacts(node.id, f"{node.host}:{node.port}", problem)
        for node, problem in problems.items()
    )
    admin.poll(_POLL_S)  # the last lines of its log
    return ClusterFacts(brokers, said.requests)


def found_topics(
    settings: ClientSettings, chosen: Callable[[Collection[Topic]], Sequence[Topic]]
) -> dict[Topic, Found]:
    """Return partitions, copies and settings of what is chosen of all topics.

    Errors: Determinate.
    """
    topics = KafkaTopics(ReconnectingClient(lambda: clients.admin(settings)))
    names = chosen(topics.names())
    descriptions: dict[Topic, Found] = {}
    for first in range(0, len(names), AT_ONCE):
        descriptions |= topics.found(names[first : first + AT_ONCE])
    return descriptions


def clock(
    settings: ClientSettings, topic: Topic, copies: int, now_ms: Callable[[], int]
) -> ClockFacts:
    """Read a broker's clock: from the append time of a record in a topic made for it alone.

    The topic has so many copies, and is deleted again.

    Errors: InvalidUsage, Determinate, Indeterminate.
    """
    choices = TopicChoices(durability=Durability(copies, 1))
    topics = KafkaTopics(ReconnectingClient(lambda: clients.admin(settings)), choices)
    topics.create([TopicSpec(topic, 1, TopicKind.COMMANDS)])
    try:
        producer = clients.producer(settings, {}, {})
        times: list[tuple[int, int]] = []
        producer.produce(topic, b"", callback=_noting(times))
        producer.flush(REQUEST_S)  # connections are open from here on
        before_ms = now_ms()
        producer.produce(topic, b"", callback=_noting(times))
        producer.flush(REQUEST_S)
        after_ms = now_ms()
    finally:
        with suppress(Determinate, Indeterminate):
            topics.delete([topic])
    if len(times) != 2:  # noqa: PLR2004  the two records
        raise Determinate("records could not be written")
    return ClockFacts(before_ms, times[-1][1], after_ms)


def _noting(times: list[tuple[int, int]]) -> "Callable[[KafkaError | None, object], None]":
    def note(error: KafkaError | None, message: object) -> None:
        if error is None:
            times.append(message.timestamp())  # type: ignore[attr-defined]  # librdkafka's message

    return note


class _Said:
    """What a client has written to its log, and the errors that it has reported."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.errors: list[str] = []
        self.is_cut_off = False
        self.logger = logging.Logger("inspection")  # noqa: LOG001  used here alone
        self.logger.addFilter(self._read)

    def note(self, error: KafkaError) -> None:
        """Take an error that concerns the whole client."""
        self.errors.append(_PREFIX.sub("", error.str()))

    def reason(self, error: KafkaError) -> str:
        """Return the reason of a failed request: what came first, which is the most exact."""
        reason = (self.errors or [error.str()])[0]
        return f"{reason}: {_CUT_OFF}" if self.is_cut_off else reason

    def _read(self, record: logging.LogRecord) -> bool:
        self.is_cut_off |= _HUNG_UP.search(record.getMessage()) is not None
        match = _API.search(record.getMessage())
        if match is not None:
            name, greatest = match[1], int(match[2])
            self.requests[name] = min(greatest, self.requests.get(name, greatest))
        return False


def _asked(admin: AdminClient, broker: int) -> "Future[object]":
    """Begin a request that this broker alone answers."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    answers: Mapping[ConfigResource, Future[object]]
    answers = admin.describe_configs([resource], request_timeout=REQUEST_S)
    return answers[resource]


_DENIED = frozenset(
    {KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)


def _problem(admin: AdminClient, future: "Future[object]") -> str:
    """Why the broker does not answer; empty if it does, be it with a refusal."""
    try:
        _answer(admin, future)
    except KafkaException as error:
        cause = cause_of(error)
        return "" if cause.code() in _DENIED else cause.str()
    return ""


def _answer(admin: AdminClient, future: "Future[T]") -> T:
    """Wait for an answer, and take meanwhile what the client says. Errors: KafkaException."""
    deadline = time.monotonic() + 2 * REQUEST_S
    while not future.done() and time.monotonic() < deadline:
        admin.poll(_POLL_S)
    return future.result(0)
