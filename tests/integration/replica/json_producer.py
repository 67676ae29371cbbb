"""Producing JSON messages, for tests."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

Row = Mapping[str, Any]


class Feed:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})

    def send(self, topic: str, rows: Sequence[Row]) -> None:
        """Rows as values without keys, all acknowledged on return."""
        for row in rows:
            self._producer.produce(topic, json.dumps(row).encode())
            self._producer.poll(0)
        self._producer.flush()

    def send_at_once(self, topic: str, rows: Sequence[Row]) -> None:
        """The same in one transaction: who reads the topic finds all of a partition at once."""
        transaction = {"bootstrap.servers": self._bootstrap, "transactional.id": f"at-{topic}"}
        producer = Producer(transaction)
        producer.init_transactions()
        producer.begin_transaction()
        for row in rows:
            producer.produce(topic, json.dumps(row).encode())
            producer.poll(0)
        producer.commit_transaction()

    def put(self, topic: str, pairs: Sequence[tuple[Row, Row | bytes | None]]) -> None:
        """Keyed messages; None deletes."""
        for key, value in pairs:
            body = value if value is None or isinstance(value, bytes) else json.dumps(value)
            self._producer.produce(topic, body, key=json.dumps(key))
            self._producer.poll(0)
        self._producer.flush()
