"""Creates librdkafka producers, consumers and admin clients with the settings we rely on.

For latency, producers do not linger and the broker answers a fetch as soon as it has one byte;
so `fetch.wait.max.ms` only bounds how often an idle consumer polls, and how long a newly
assigned topic may have to wait.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from streams.errors import InvalidUsage
from streams.kafka.client.error_mapping import cause_of
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import MAXIMUM_RECORD_BYTES

ANSWER_TIMEOUT_S = 30.0
"""Timeout of requests to the cluster, in seconds."""

_log = logging.getLogger("streams.kafka.librdkafka")

Setting = str | int | bool
T = TypeVar("T")

_CONNECTION: Mapping[str, Setting] = {
    "socket.nagle.disable": True,
    # a broker that dies with its machine closes no connection: 60 s is the client's default
    "socket.timeout.ms": 15_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 20,  # a topic that was just created
    # relevant errors are raised by us; an unreachable broker would fill the log
    "log_level": 2,
}

_MARGIN_BYTES = 1 << 16  # headers and framing on top of the greatest record


def producer(
    settings: ClientSettings,
    guarantees: Mapping[str, Setting],
    choices: Mapping[str, Setting],
) -> Producer:
    """A producer whose delivery reports mean durable (`acks=all`) and once (idempotent)."""
    defaults: dict[str, Setting] = {
        **_CONNECTION,
        "linger.ms": 0,
        "message.max.bytes": MAXIMUM_RECORD_BYTES + _MARGIN_BYTES,
        "queue.buffering.max.kbytes": 1 << 20,
        "delivery.timeout.ms": int(ANSWER_TIMEOUT_S * 1000),
        "retry.backoff.ms": 20,
        "topic.metadata.propagation.max.ms": 5000,  # topics are created before they are written
        **choices,
    }
    sure: dict[str, Setting] = {"acks": "all", "enable.idempotence": True, **guarantees}
    return _made(settings, lambda: Producer(settings.client(defaults, sure), logger=_log))


def consumer(
    settings: ClientSettings,
    guarantees: Mapping[str, Setting],
    choices: Mapping[str, Setting],
    on_error: Callable[[KafkaError], None] | None = None,
) -> Consumer:
    """A consumer without group management: the caller keeps positions, a lost one raises.

    A poll calls `on_error` with what concerns the whole client, as the loss of all brokers.
    """
    defaults: dict[str, Setting] = {
        **_CONNECTION,
        "fetch.queue.backoff.ms": 2,
        "fetch.error.backoff.ms": 20,
        "fetch.message.max.bytes": 4 << 20,
        "receive.message.max.bytes": 256 << 20,
        "topic.metadata.propagation.max.ms": 1000,  # as for producers
        **choices,
    }
    sure: dict[str, Setting] = {
        "group.id": "slackwater",  # the client requires one; the group is never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        **guarantees,
    }
    config = settings.client(defaults, sure)
    called = {} if on_error is None else {"error_cb": on_error}
    return _made(settings, lambda: Consumer({**config, **called}, logger=_log))


def admin(settings: ClientSettings) -> AdminClient:
    """Return a client that creates and describes topics."""
    return _made(
        settings, lambda: AdminClient(dict(settings.client(_CONNECTION, {})), logger=_log)
    )


def _made(settings: ClientSettings, make: Callable[[], T]) -> T:
    """Create a client. Errors: InvalidUsage if librdkafka rejects the settings."""
    try:
        return make()
    except KafkaException as error:
        reason = settings.masked(cause_of(error).str())
    # raised here, not above: the cause may show a secret
    raise InvalidUsage(f"client settings are invalid: {reason}")
