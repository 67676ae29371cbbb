"""Maps Kafka's errors to ours: the call had an effect, had none, or it is unknown.

An error is Determinate only if it proves that nothing was stored: the record itself was
refused, or was never sent. Every other error may hide a first attempt whose answer was lost,
and is Indeterminate. A false Indeterminate costs a read, a false Determinate a wrong answer.
"""

from confluent_kafka import KafkaError, KafkaException

from streams.errors import Determinate, Indeterminate, InvalidUsage, SlackwaterError
from streams.kafka.log import Unanswered
from streams.kafka.topics import ALIKE

_REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 -- librdkafka's own codes are spelled so
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 -- as above
        KafkaError._PURGE_QUEUE,  # noqa: SLF001 -- as above
    }
)

GONE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 -- as above
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 -- as above
    }
)
"""The topic or the partition does not exist."""

OUT_OF_RANGE = frozenset(
    {
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 -- as above
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001 -- as above
    }
)
"""The partition does not hold the requested offset."""

UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001 -- as above

ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 -- as above

END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001 -- as above

UNSETTLED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""Brokers do not agree yet on who leads: an election, or a topic that was just created."""

UNANSWERED = UNSETTLED | frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 -- as above
        KafkaError._DESTROY_BROKER,  # noqa: SLF001 -- as above
        ALL_DOWN,
        KafkaError._RESOLVE,  # noqa: SLF001 -- as above
        KafkaError._TIMED_OUT,  # noqa: SLF001 -- as above
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001 -- as above
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
"""No broker answered, or one that cannot serve now: a retry may succeed."""

LATE = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 -- as above
        KafkaError._TIMED_OUT,  # noqa: SLF001 -- as above
    }
)
"""A record was not written in time: the client may have lost its brokers."""

_MISUSE = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._INVALID_ARG,  # noqa: SLF001 -- as above
    }
)


_HINTS = {
    KafkaError.INVALID_REPLICATION_FACTOR: (
        ": choose replication.factor and min.insync.replicas that the cluster can satisfy"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        ": grant this client's user READ, WRITE and DESCRIBE on the topic"
    ),
}


def cause_of(error: KafkaException) -> KafkaError:
    """Return the KafkaError that an exception of the client carries."""
    cause = error.args[0] if error.args else None
    return (
        cause if isinstance(cause, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(error))
    )


def write_fault(doing: str, error: KafkaError) -> Determinate | Indeterminate:
    """Return our error for a failed write."""
    kind = Determinate if error.code() in _REFUSED else Indeterminate
    return kind(_said(doing, error))


def read_fault(doing: str, error: KafkaError | KafkaException) -> Determinate:
    """Return our error for a failed read, which had no effect."""
    cause = cause_of(error) if isinstance(error, KafkaException) else error
    kind = Unanswered if cause.code() in UNANSWERED else Determinate
    return kind(_said(doing, cause))


def admin_fault(doing: str, error: KafkaException) -> SlackwaterError:
    """Return our error for a failed change of topics; all changes may be repeated."""
    cause = cause_of(error)
    text = _said(doing, cause)
    return InvalidUsage(text) if cause.code() in _MISUSE else Indeterminate(text)


def _said(doing: str, cause: KafkaError) -> str:
    """Return the text: what failed, where, and what to do if that is known."""
    is_alike = cause.code() == KafkaError.TOPIC_EXCEPTION and "collide" in cause.str()
    hint = ALIKE if is_alike else _HINTS.get(cause.code(), "")
    return f"{doing}: {cause.str()} ({cause.name()}){hint}"
