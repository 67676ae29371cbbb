"""Batches of records as bytes of Kafka's protocol, with what our client does not write.

It decodes the names of headers, so it takes none but text; brokers take any bytes.
"""

import socket
import struct
import time
from collections.abc import Sequence
from functools import cache

from streams.errors import Determinate, Indeterminate
from streams.ids import Topic

Headers = Sequence[tuple[bytes, bytes | None]]

CASTAGNOLI = 0x82F63B78
MORE = 0x80
MAGIC, NO_PRODUCER = 2, -1
PRODUCE, VERSION, ALL_REPLICAS = 0, 3, -1
TIMEOUT_S = 30

NO_LEADER_YET = {3, 5, 6}
"""The codes of an unknown partition, of no leader, and of a broker that does not lead it."""

PAUSE_S = 0.05


def varint(value: int) -> bytes:
    """A signed number, zigzag and in groups of seven bits."""
    left, parts = (value << 1) ^ (value >> 63), bytearray()
    while left >= MORE:
        parts.append(left % MORE | MORE)
        left //= MORE
    return bytes([*parts, left])


def counted(data: bytes | None) -> bytes:
    """Bytes behind their number; -1 for none."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """The first record of a batch."""
    written = b"".join(counted(name) + counted(data) for name, data in headers)
    body = b"\0" + varint(0) + varint(0) + counted(key) + counted(value)
    return counted(body + varint(len(headers)) + written)


def batch(key: bytes | None, value: bytes | None, headers: Headers, now_ms: int) -> bytes:
    """A batch of one record (version 2 of the format)."""
    head = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, NO_PRODUCER, -1, -1, 1)
    summed = head + record(key, value, headers)
    rest = struct.pack(">iBI", 0, MAGIC, crc32c(summed)) + summed
    return struct.pack(">qi", 0, len(rest)) + rest


@cache
def _table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (CASTAGNOLI if value & 1 else 0)
        return value

    return tuple(map(entry, range(256)))


def crc32c(data: bytes) -> int:
    """The checksum of batches (Castagnoli's polynomial)."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def text(value: str) -> bytes:
    """A string of the protocol."""
    return struct.pack(">h", len(value)) + value.encode()


class WireProducer:
    """Writes batches as they are to partitions of one broker, which asks for no user."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._place = host, int(port)

    def send(self, topic: Topic, partition: int, records: bytes) -> tuple[int, int]:
        """Write a batch; return partition and offset. A new partition's leader is waited for.

        Errors: Determinate if the broker refuses it, Indeterminate if it does not answer.
        """
        until = time.monotonic() + TIMEOUT_S
        while True:
            code, offset = self._answer(topic, partition, records)
            if code not in NO_LEADER_YET or time.monotonic() > until:
                break
            time.sleep(PAUSE_S)
        if code:
            raise Determinate(f"record for {topic}: the broker refuses it with code {code}")
        return partition, offset

    def _answer(self, topic: Topic, partition: int, records: bytes) -> tuple[int, int]:
        """Write a batch; return the broker's code and the offset. Errors: Indeterminate."""
        body = struct.pack(">hhi", -1, ALL_REPLICAS, 1000 * TIMEOUT_S) + struct.pack(">i", 1)
        body += text(topic) + struct.pack(">iii", 1, partition, len(records)) + records
        request = struct.pack(">hhi", PRODUCE, VERSION, 1) + text("wire") + body
        try:
            with socket.create_connection(self._place, TIMEOUT_S) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                with connection.makefile("rb") as answers:
                    (size,) = struct.unpack(">i", answers.read(4))
                    answer = answers.read(size)
            return struct.unpack_from(">hq", answer, 4 + 4 + len(text(topic)) + 4 + 4)
        except (OSError, struct.error) as error:
            raise Indeterminate(f"record for {topic}: no answer: {error}") from error
