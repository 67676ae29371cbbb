"""Bulk producer into raw topics, writing messages as a user's producer would."""

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from streams.errors import Indeterminate
from streams.ids import Topic
from streams.kafka.client import clients
from streams.kafka.settings import ClientSettings
from streams.values import uncollected

BULK: dict[str, clients.Setting] = {
    "linger.ms": 5,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1 << 20,
    "delivery.report.only.error": True,  # a Python call a message would halve the rate
}
ANY_PARTITION = -1
_QUEUE_IS_FULL_WAIT_S = 0.01
_FLUSH_TIMEOUT_S = 60


class Publisher:
    """One producer; `flush` waits until everything before it is stored."""

    def __init__(self, settings: ClientSettings) -> None:
        self._producer = clients.producer(settings, {}, BULK)
        self._failed: list[str] = []

    def publish(
        self,
        topic: Topic,
        keys: pa.Array | None,
        values: pa.Array,
        partition: int = ANY_PARTITION,
    ) -> None:
        """Queue one message for each value; messages with one key stay in order.

        Shape: `keys` and `values` are utf8 or binary, of the same length; null is absent.
        Without a partition the key decides, or Kafka.
        """
        with uncollected():
            if keys is None:
                messages = [{"value": value} for value in values.to_pylist()]
            else:
                pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
                messages = [{"key": key, "value": value} for key, value in pairs]
            self._queue(topic, messages, partition)

    def _queue(self, topic: Topic, messages: list[dict[str, object]], partition: int) -> None:
        left = messages
        while left:
            taken = self._producer.produce_batch(
                topic, left, partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0 if taken else _QUEUE_IS_FULL_WAIT_S)
            left = (
                [message for message in left if "_error" in message]
                if taken < len(left)
                else []
            )
            for message in left:
                del message["_error"]

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error.str())

    def flush(self) -> None:
        """Wait until every message queued so far is stored.

        Errors: Indeterminate if one was not confirmed.
        """
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        if left or self._failed:
            reason = self._failed[0] if self._failed else f"{left} not confirmed in time"
            self._failed.clear()
            raise Indeterminate(f"messages not confirmed: {reason}")
