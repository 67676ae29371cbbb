"""The program by which the end-to-end tests have a slow network: all arrives, only later."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.adapter.test_services import free_port
from tests.support.container_files import DOCKER

SIZE = 1 << 20


class Echo:
    """Sends back what comes, on each connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def close(self) -> None:
        with suppress(OSError):  # a second time
            self._listener.shutdown(socket.SHUT_RDWR)  # it accepts no more
        self._listener.close()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[tuple[int, Path, Echo]]:
    """A wire to an echo, and the file with its delay."""
    echo, port, delay = Echo(), free_port(), tmp_path / "delay"
    delay.write_text("0")
    script = str(DOCKER / "standin" / "wire.py")
    command = [sys.executable, "-I", script, str(port), f"127.0.0.1:{echo.port}", str(delay)]
    with subprocess.Popen(command) as running:
        yield port, delay, echo
        running.kill()
    echo.close()


def connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 30)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "it was closed"
        data += part
    return data


def test_all_arrives_in_order_and_as_much_later_as_the_file_says(
    wire: tuple[int, Path, Echo],
) -> None:
    port, delay, _ = wire
    sent = bytes(range(256)) * (SIZE // 256)
    with connect(port) as connection:
        for milliseconds in (0, 200):
            delay.write_text(str(milliseconds))
            time.sleep(0.3)
            began = time.monotonic()
            sender = threading.Thread(target=connection.sendall, args=(sent,))
            sender.start()
            assert exactly(connection, SIZE) == sent
            sender.join()
            assert time.monotonic() - began >= 2 * milliseconds / 1000


def test_an_end_of_one_side_is_the_end_of_both(wire: tuple[int, Path, Echo]) -> None:
    port, _, echo = wire
    with connect(port) as connection:
        connection.sendall(b"last")
        connection.shutdown(socket.SHUT_WR)
        assert exactly(connection, 4) == b"last"
        assert connection.recv(1) == b""
    echo.close()
    with connect(port) as connection:
        connection.settimeout(30)
        assert connection.recv(1) == b"", "nobody is there"
