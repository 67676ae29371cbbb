"""Producing JSON messages, for tests."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

Row = Mapping[str, Any]


class Feed:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})

    def send(self, topic: str, rows: Sequence[Row]) -> None:
        """Rows as values without keys, all acknowledged on return."""
        for row in rows:
            self._producer.produce(topic, json.dumps(row).encode())
            self._producer.poll(0)
        self._producer.flush()

    def put(self, topic: str, pairs: Sequence[tuple[Row, Row | bytes | None]]) -> None:
        """Keyed messages; None deletes."""
        for key, value in pairs:
            body = value if value is None or isinstance(value, bytes) else json.dumps(value)
            self._producer.produce(topic, body, key=json.dumps(key))
            self._producer.poll(0)
        self._producer.flush()
