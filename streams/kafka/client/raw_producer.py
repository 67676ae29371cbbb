"""A producer that writes arbitrary records, for tests of what other clients may send.

Keys, headers, partitions and transactions are whatever the caller gives.
"""

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.errors import Determinate, Indeterminate
from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.client.error_mapping import cause_of
from streams.kafka.settings import ClientSettings

Headers = Sequence[tuple[str, bytes]]

PRODUCERS_CHOICE = -1

_TIMEOUT_S = 30.0


class ForeignProducer:
    """One producer; with a `transactional_id` each record is in a transaction of its own."""

    def __init__(self, settings: ClientSettings, transactional_id: str = "") -> None:
        self._is_transactional = bool(transactional_id)
        extra = {"transactional.id": transactional_id} if transactional_id else {}
        self._producer: Producer = clients.producer(settings, extra, {})
        if transactional_id:
            self._producer.init_transactions(_TIMEOUT_S)

    def send(
        self,
        topic: Topic,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        commits: bool = True,
    ) -> tuple[int, int]:
        """Write one record, durably; return its partition and offset.

        `commits` says how a transactional producer ends the record's transaction.

        Errors: Determinate if the broker refuses it, Indeterminate if it does not answer.
        """
        placed: list[tuple[KafkaError | None, Message]] = []
        try:
            if self._is_transactional:
                self._producer.begin_transaction()
            self._producer.produce(
                topic,
                value,
                key=key,
                headers=list(headers),
                partition=PRODUCERS_CHOICE if partition is None else partition,
                on_delivery=lambda error, message: placed.append((error, message)),
            )
            self._producer.flush(_TIMEOUT_S)
            self._end(commits=commits)
        except (KafkaException, BufferError) as error:
            reason = cause_of(error).str() if isinstance(error, KafkaException) else str(error)
            raise Determinate(f"record for {topic}: {reason}") from error
        return _position(topic, placed)

    def _end(self, *, commits: bool) -> None:
        if not self._is_transactional:
            return
        if commits:
            self._producer.commit_transaction(_TIMEOUT_S)
        else:
            self._producer.abort_transaction(_TIMEOUT_S)


def _position(
    topic: Topic, placed: Sequence[tuple[KafkaError | None, Message]]
) -> tuple[int, int]:
    if not placed:
        raise Indeterminate(f"record for {topic}: no broker answered in {_TIMEOUT_S:g} s")
    ((error, message),) = placed
    if error is not None:
        raise Determinate(f"record for {topic}: {error.str()}")
    return message.partition() or 0, message.offset() or 0
