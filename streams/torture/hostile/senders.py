"""Sends inputs: producers, with and without transactions, and the coordinator's port."""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from streams.errors import SlackwaterError
from streams.kafka.client.raw_producer import ForeignProducer
from streams.kafka.settings import ClientSettings
from streams.torture.hostile.inputs import Burst, Ending, Input, Record, Request
from streams.torture.hostile.wire_batches import WireProducer, batch

NOWHERE = (0, 0)
LISTENS_S = 0.5
MOST_ANSWERED = 1 << 20


class Senders:
    """The connections of an attacker. One thread."""

    def __init__(self, settings: ClientSettings, url: str, name: str) -> None:
        self.plain = ForeignProducer(settings)
        self._transactional = ForeignProducer(settings, f"hostile-{name}")
        self._url, self._settings = url, settings
        self.refused = 0

    def send(self, sent: Input) -> tuple[int, int]:
        """Send it; the partition and offset of a record. What is refused goes nowhere."""
        if isinstance(sent, Request | Burst):
            self._at_once((sent.payload,) if isinstance(sent, Request) else sent.payloads)
            return NOWHERE
        try:
            return self._record(sent)
        except SlackwaterError:
            self.refused += 1
            return NOWHERE

    def _record(self, sent: Record) -> tuple[int, int]:
        if sent.wire_headers:
            whole = batch(sent.key, sent.value, sent.wire_headers, time.time_ns() // 1_000_000)
            wire = WireProducer(self._settings.bootstrap)
            return wire.send(sent.topic, sent.partition or 0, whole)
        producer = self.plain if sent.ending is Ending.PLAIN else self._transactional
        return producer.send(
            sent.topic,
            sent.value,
            key=sent.key,
            headers=sent.headers,
            partition=sent.partition,
            commits=sent.ending is not Ending.ABORTED,
        )

    def _at_once(self, payloads: Sequence[bytes]) -> None:
        """Send all but the first from threads of their own."""
        others = [
            threading.Thread(target=self._request, args=(payload,)) for payload in payloads[1:]
        ]
        for other in others:
            other.start()
        self._request(payloads[0])
        for other in others:
            other.join()

    def _request(self, payload: bytes) -> None:
        """Send bytes and take what comes, for a while: what is followed never ends."""
        place = urlsplit(self._url)
        deadline = time.monotonic() + LISTENS_S
        taken = 0
        with (
            contextlib.suppress(OSError),
            socket.create_connection((place.hostname, place.port), LISTENS_S) as connection,
        ):
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            while taken < MOST_ANSWERED and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                taken += len(piece)
