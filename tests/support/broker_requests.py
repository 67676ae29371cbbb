"""Requests to a broker as no library of ours would send them: what they ask for may be refused.

Libraries look a topic up first, and send nothing for one that they may not see: then it is not
the broker that refuses. Here each request goes out, in the oldest version that brokers take.
"""

import itertools
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DONE, OUT_OF_RANGE = 0, 1
REFUSED = {
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
"""The codes of want of a right."""

TIMEOUT_S = 30
PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT = 0, 1, 2, 8
SASL_HANDSHAKE, DELETE_RECORDS, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 17, 21, 22, 36


def text(value: str) -> bytes:
    """A string of the protocol."""
    return struct.pack(">h", len(value)) + value.encode()


def one(topic: str, partition: bytes) -> bytes:
    """An array of one topic with partition 0, of which more is said."""
    return struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, 0) + partition


class Stranger:
    """A connection of a user. Its requests return the broker's error code."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)

    def log_in(self, user: str, password: str) -> None:
        """SASL PLAIN. Errors: AssertionError."""
        answer = self._ask(SASL_HANDSHAKE, 1, text("PLAIN"))
        assert answer[:2] == b"\0\0", answer
        secret = f"\0{user}\0{password}".encode()
        answer = self._ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(secret)) + secret)
        assert answer[:2] == b"\0\0", answer

    def write(self, topic: str) -> int:
        """An empty batch: whoever may write is told that it is none."""
        body = struct.pack(">hhi", -1, 1, 5_000) + one(topic, struct.pack(">i", 0))
        return _code(self._ask(PRODUCE, 3, body), topic, before=0)

    def read(self, topic: str) -> int:
        """From the first record on."""
        head = struct.pack(">iiiib", -1, 100, 0, 1 << 20, 0)
        body = head + one(topic, struct.pack(">qi", 0, 1 << 20))
        return _code(self._ask(FETCH, 4, body), topic, before=4)

    def look_at_end(self, topic: str) -> int:
        """How many records there are."""
        body = struct.pack(">i", -1) + one(topic, struct.pack(">q", -1))
        return _code(self._ask(LIST_OFFSETS, 1, body), topic, before=0)

    def delete_records(self, topic: str) -> int:
        """The first one."""
        body = one(topic, struct.pack(">q", 1)) + struct.pack(">i", 5_000)
        return _code(self._ask(DELETE_RECORDS, 0, body), topic, before=4, within=8)

    def move_mark(self, group: str, topic: str) -> int:
        """Commit an offset of a group that somebody else uses."""
        head = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
        body = head + one(topic, struct.pack(">qh", 7, -1))
        return _code(self._ask(OFFSET_COMMIT, 2, body), topic, before=0)

    def take_over(self, transactional_id: str) -> int:
        """That fences whoever has the id."""
        body = text(transactional_id) + struct.pack(">i", 5_000)
        return int(struct.unpack_from(">h", self._ask(INIT_PRODUCER_ID, 0, body), 4)[0])

    def _ask(self, api: int, version: int, body: bytes) -> bytes:
        number = next(self._numbers)
        request = struct.pack(">hhi", api, version, number) + text("stranger") + body
        self._connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        assert struct.unpack_from(">i", answer) == (number,)
        return answer[4:]

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._connection.recv(size - len(parts))
            assert part, "the broker closed the connection"
            parts += part
        return parts


def _code(answer: bytes, topic: str, before: int, within: int = 0) -> int:
    """The error of partition 0, the first of the first topic; `within` bytes precede it."""
    place = before + 4 + len(text(topic)) + 4 + 4 + within
    return int(struct.unpack_from(">h", answer, place)[0])


@contextmanager
def stranger(settings: Mapping[str, Any]) -> Iterator[Stranger]:
    """Connect as the user that settings of a client name."""
    host, _, port = settings["bootstrap.servers"].partition(":")
    context = ssl.create_default_context(cafile=Path(settings["ssl.ca.location"]))
    with (
        socket.create_connection((host, int(port)), TIMEOUT_S) as raw,
        context.wrap_socket(raw, server_hostname=host) as connection,
    ):
        logged_in = Stranger(connection)
        logged_in.log_in(settings["sasl.username"], settings["sasl.password"])
        yield logged_in
