"""A broker of few words: what an admin client asks before it asks for anything else."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

API_VERSIONS, METADATA = 18, 3
SPOKEN = ((API_VERSIONS, 0, 0), (METADATA, 2, 2))
UNKNOWN_TOPIC, UNSUPPORTED_VERSION = 3, 35
NO_CONTROLLER, ITSELF = -1, 1


class Speaking:
    """Answers on a port of its own; it knows no topics.

    The first `fenced` answers name neither brokers nor a controller, as those of a broker that
    was frozen and is not in charge again.
    """

    def __init__(self, fenced: int) -> None:
        self.fenced = fenced
        self.asked = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, struct.error),
            connection,
            connection.makefile("rb") as read,
        ):
            while True:
                (size,) = struct.unpack(">i", read.read(4))
                request = read.read(size)
                kind, version, number = struct.unpack(">hhi", request[:8])
                body = versions(version) if kind == API_VERSIONS else self._metadata(request)
                answer = struct.pack(">i", number) + body
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _metadata(self, request: bytes) -> bytes:
        self.asked += 1
        is_fenced = self.asked <= self.fenced
        brokers = (
            struct.pack(">i", 0)
            if is_fenced
            else struct.pack(">ii", 1, ITSELF)
            + text("127.0.0.1")
            + struct.pack(">ih", self.port, -1)
        )
        controller = struct.pack(">i", NO_CONTROLLER if is_fenced else ITSELF)
        topics = list(topics_of(request))
        return (
            brokers
            + text("cluster")
            + controller
            + struct.pack(">i", len(topics))
            + b"".join(
                struct.pack(">h", UNKNOWN_TOPIC) + text(topic) + b"\0" + struct.pack(">i", 0)
                for topic in topics
            )
        )


def versions(version: int) -> bytes:
    """What it speaks; the client asks in the first version when told that it may not others."""
    error = UNSUPPORTED_VERSION if version else 0
    spoken = b"".join(struct.pack(">hhh", *version) for version in SPOKEN)
    return struct.pack(">hi", error, len(SPOKEN)) + spoken


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def topics_of(request: bytes) -> Iterator[str]:
    """The topics that a request for metadata names."""
    (name_size,) = struct.unpack(">h", request[8:10])
    at = 10 + max(name_size, 0)
    (count,) = struct.unpack(">i", request[at : at + 4])
    at += 4
    for _ in range(max(count, 0)):
        (size,) = struct.unpack(">h", request[at : at + 2])
        yield request[at + 2 : at + 2 + size].decode()
        at += 2 + size
