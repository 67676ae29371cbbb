"""Elects one owner among processes: the one that is assigned the only partition of a topic.

They are members of a consumer group of Kafka, so brokers do the election: a member that sends
no heartbeats for `SESSION_MS` loses the partition to another one. An owner may not have heard
yet that it is one no longer, so ownership saves work, and correctness does not depend on it.

Members are static (KIP-345): a process that starts again under the name of one that died has
its assignment at once, and of two that live under one name the older one is fenced. Assignments
are cooperative (KIP-429), so a member that joins takes nothing from the owner. Of the topic
itself nothing is read.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from streams.errors import SlackwaterError
from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import UNANSWERED, cause_of
from streams.kafka.settings import ClientSettings

log = logging.getLogger(__name__)

SESSION_MS = 8_000
"""How long an owner may be silent before another member becomes the owner."""

ADMISSION_S = 30.0
"""How long a group may take to admit a member before that is reported."""

_POLL_S = 0.2
_RETRY_S = 2.0
_JOIN_S = 5.0

_MEMBERSHIP: Mapping[str, clients.Setting] = {
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 1_000,
    # the loop below polls five times a second: one that hangs owns nothing
    "max.poll.interval.ms": 30_000,
    "partition.assignment.strategy": "cooperative-sticky",
}

_REFUSALS = frozenset(
    {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)

_FENCED = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        # the one fatal error of a consumer of this protocol
        KafkaError._FATAL,  # noqa: SLF001 -- librdkafka's own codes are spelled so
    }
)


class Ownership:
    """One member of a group; a thread of its own keeps it in the group.

    It joins once the topic `exists`.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        topic: Topic,
        group: str,
        member: str,
        exists: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._member, self._exists = member, exists
        self._state = (False, "")
        self._is_member = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ownership", daemon=True)

    @property
    def is_owner(self) -> bool:
        """Whether this member is the owner, as far as it has heard."""
        return self._state[0]

    @property
    def trouble(self) -> str:
        """Why it cannot become the owner; empty if it can."""
        return self._state[1]

    def start(self) -> None:
        """Join the group as soon as that is possible."""
        self._thread.start()

    def close(self) -> None:
        """Stop owning. Another member becomes the owner when the session has timed out."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not (self._stopped.is_set() or self._is_possible()):
            self._stopped.wait(_RETRY_S / 4)
        while not self._stopped.is_set():
            try:
                self._belong()
            except Exception as failure:
                if not isinstance(failure, KafkaException | SlackwaterError):
                    log.exception("membership failed", extra={"group": self._group})
                self._fail(failure)
                self._stopped.wait(_RETRY_S)

    def _is_possible(self) -> bool:
        try:
            return self._exists()
        except SlackwaterError:
            return False  # brokers do not answer, as all other clients report too

    def _belong(self) -> None:
        """Be a member until stopped. Errors: KafkaException; the client is of no more use."""
        identity = {"group.id": self._group, "group.instance.id": self._member}
        consumer = clients.consumer(self._settings, {**_MEMBERSHIP, **identity}, {})
        with ExitStack() as stack:
            stack.callback(consumer.close)
            stack.callback(self._resign)
            consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
            self._is_member, asked = False, time.monotonic()
            while not self._stopped.is_set():
                message = consumer.poll(_POLL_S)
                error = None if message is None else message.error()
                if error is not None:
                    self._judge(error)
                elif not self._is_member and time.monotonic() - asked > ADMISSION_S:
                    self._set(is_owner=False, trouble=self._no_coordinator())

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Note an assignment, which is empty for a member that stands by."""
        assigned = [
            TopicPartition(where.topic, where.partition, OFFSET_END) for where in partitions
        ]
        consumer.incremental_assign(assigned)
        self._is_member = True
        if assigned:
            consumer.pause(assigned)
        self._set(is_owner=self.is_owner or bool(assigned), trouble="")

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.incremental_unassign(list(partitions))
        if partitions:
            self._resign()

    def _judge(self, error: KafkaError) -> None:
        """Report what keeps us out of the group. Errors: KafkaException if it is for good."""
        if error.fatal() or error.code() in _FENCED:
            raise KafkaException(error)
        if error.code() in _REFUSALS:
            self._set(is_owner=False, trouble=self._reason(error))
        elif error.code() not in UNANSWERED:
            log.warning("ownership", extra={"group": self._group, "why": error.str()})

    def _fail(self, failure: Exception) -> None:
        """Report a failure; a newer process of the same name is the owner for good."""
        error = cause_of(failure) if isinstance(failure, KafkaException) else None
        if error is not None and error.code() in _FENCED:
            self._stopped.set()
        reason = str(failure) if error is None else self._reason(error)
        self._set(is_owner=False, trouble=reason)

    def _reason(self, error: KafkaError) -> str:
        if error.code() in _FENCED:
            return f'another process is named "{self._member}": give each a name of its own'
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return f"group {self._group}: grant this client's user READ on the group"
        return f"group {self._group}: {self._settings.masked(error.str())} ({error.name()})"

    def _no_coordinator(self) -> str:
        return (
            f"group {self._group}: no broker has admitted this member for {ADMISSION_S:.0f} s:"
            " can the cluster have the topic __consumer_offsets, with as many copies as"
            " offsets.topic.replication.factor says?"
        )

    def _resign(self) -> None:
        self._set(is_owner=False, trouble=self.trouble)

    def _set(self, *, is_owner: bool, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.error("not the owner", extra={"group": self._group, "why": trouble})
        self._state = (is_owner, trouble)
