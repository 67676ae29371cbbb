"""A batch of records as bytes of the protocol, with what no library of ours would write."""

import struct
from collections.abc import Sequence
from functools import cache

Headers = Sequence[tuple[bytes, bytes | None]]

CASTAGNOLI = 0x82F63B78
MAGIC, NO_PRODUCER = 2, -1


def varint(value: int) -> bytes:
    """A signed number, zigzag and in groups of seven bits."""
    left, parts = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        parts.append(left & 0x7F | 0x80)
        left >>= 7
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
