"""What a client can hold that has proven nothing: little, and not for long."""

import base64
import contextlib
import http.client
import io
import itertools
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import cast

import pytest
import trustme

from streams.http import server
from streams.http.listening import Listening
from streams.http.server import Endpoint, Exchange, served
from tests.support.processes import eventually

PASSWORD = "correct horse battery"
AUTHORIZED = f"Authorization: Bearer {PASSWORD}\r\n"
SOON_S = 60
"""Far more than a client is given here, for a busy machine."""

going_on = threading.Event()


def echoed(exchange: Exchange) -> None:
    text = exchange.body(exchange.length or 0)
    if text is not None:
        exchange.answer(HTTPStatus.OK, {"bytes": len(text)})


def held(exchange: Exchange) -> None:
    exchange.send_response(HTTPStatus.OK)
    exchange.end_headers()
    going_on.wait(60)
    exchange.wfile.write(b"end")


ROUTES = {"POST /sql": echoed, "GET /held": held}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNPROVEN_S", 0.5)
    monkeypatch.setattr(server, "REQUEST_S", 1.0)
    going_on.clear()


@pytest.fixture(params=[False, True], ids=["clear", "TLS"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    listening = Listening(password=PASSWORD)
    if request.param:
        pem = tmp_path / "server.pem"
        trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
        listening = Listening(password=PASSWORD, certificate=pem, key=pem)
    endpoint = Endpoint(listening, routes=ROUTES)
    with served(endpoint):
        yield endpoint


def raw(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.server_port), timeout=SOON_S)


def connected(endpoint: Endpoint) -> socket.socket:
    """A connection on which requests can be sent."""
    connection = raw(endpoint)
    if endpoint.listening.certificate is None:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def answered(connection: "socket.socket | Answer") -> tuple[int, dict[str, object]]:
    response = http.client.HTTPResponse(cast(socket.socket, connection))
    response.begin()
    return response.status, json.loads(response.read())


def parsed(received: bytes | None) -> tuple[int, dict[str, object]]:
    assert received is not None, "the connection did not end"
    return answered(Answer(received))


class Answer:
    """The bytes of an answer as `http.client` reads a connection."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, mode: str) -> io.BytesIO:
        assert mode == "rb"
        return io.BytesIO(self._received)


def dribbled(connection: socket.socket, text: bytes) -> bytes | None:
    """Send a byte now and then, more often than any pause that is too long.

    Return what the server has sent when it ends the connection; None if it does not soon. One
    thread sends and receives: a connection of TLS is not for two.
    """
    received, until_s = b"", time.monotonic() + SOON_S
    connection.settimeout(0.05)
    for byte in itertools.cycle(text):
        if time.monotonic() > until_s:
            return None
        try:
            connection.sendall(bytes([byte]))
            piece = connection.recv(1 << 16)
        except TimeoutError:
            continue
        except OSError:
            return received
        if not piece:
            return received
        received += piece
    raise AssertionError("the text is empty")


def is_ended(connection: socket.socket) -> bool:
    """Whether the server ends the connection soon."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        pytest.param("", "a", id="in the request line"),
        pytest.param("GET /healthz HTTP/1.0\r\n", "a", id="in a header"),
        pytest.param("GET /healthz HTTP/1.0\r\n", "a: b\r\n", id="in the headers"),
    ],
)
def test_a_byte_now_and_then_holds_no_connection(
    endpoint: Endpoint, start: str, repeated: str
) -> None:
    with connected(endpoint) as connection:
        connection.sendall(start.encode())
        assert dribbled(connection, repeated.encode()) is not None
    eventually(lambda: not len(endpoint.unauthenticated))


@pytest.mark.parametrize("endpoint", [True], indirect=True, ids=["TLS"])
def test_a_handshake_that_never_ends_holds_no_connection(endpoint: Endpoint) -> None:
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc"  # and 16,380 bytes to come
    with raw(endpoint) as connection:
        connection.sendall(hello)
        assert dribbled(connection, b"\0") is not None


def test_a_body_of_a_client_without_the_password_is_not_waited_for(endpoint: Endpoint) -> None:
    with connected(endpoint) as connection:
        connection.sendall(b"POST /sql HTTP/1.0\r\nContent-Length: 1000000\r\n\r\n")
        assert parsed(dribbled(connection, b"x"))[0] == 401


def test_a_body_that_does_not_come_in_time_is_said(endpoint: Endpoint) -> None:
    with connected(endpoint) as connection:
        head = f"POST /sql HTTP/1.0\r\n{AUTHORIZED}Content-Length: 1000\r\n\r\n"
        connection.sendall(head.encode())
        error = "expected 1000 bytes within 1 seconds"
        assert parsed(dribbled(connection, b"x")) == (408, {"error": error})


def test_headers_are_few_and_small(endpoint: Endpoint) -> None:
    for fields in (["a: b"] * 200, [f"a: {'b' * 40_000}"] * 8, [f"a: {'b' * 70_000}"]):
        head = "\r\n".join(["GET /healthz HTTP/1.0", *fields, "", ""])
        with connected(endpoint) as connection, contextlib.suppress(OSError):
            connection.sendall(head.encode())
            answer = connection.recv(1000)  # nothing if it was closed while we were sending
            assert not answer or answer.split()[1] == b"431"
    fields = [f"a{number}: {'b' * 1000}" for number in range(90)]
    head = "\r\n".join(["GET /healthz HTTP/1.0", *fields, "", ""])
    with connected(endpoint) as connection:
        connection.sendall(head.encode())
        assert answered(connection)[0] == 200


def test_what_is_sent_in_one_piece_is_read_whole(endpoint: Endpoint) -> None:
    credentials = base64.b64encode(f"anyone:{PASSWORD}".encode()).decode()
    for size in (0, 1, 70_000, 3_000_000):
        with connected(endpoint) as connection:
            head = f"POST /sql HTTP/1.0\r\nAuthorization: Basic {credentials}\r\n"
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode() + b"x" * size)
            assert answered(connection) == (200, {"bytes": size})


def test_silent_clients_are_few_and_keep_nobody_out(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNPROVEN_S", 60.0)
    before = threading.active_count()
    with ExitStack() as stack:
        subscriber = stack.enter_context(connected(endpoint))
        subscriber.sendall(f"GET /held HTTP/1.0\r\n{AUTHORIZED}\r\n".encode())
        assert subscriber.recv(9) == b"HTTP/1.0 "
        silent = [stack.enter_context(raw(endpoint)) for _ in range(300)]
        eventually(lambda: len(endpoint.unauthenticated) == 64)
        eventually(lambda: threading.active_count() - before < 64 + 10)
        assert is_ended(silent[0])
        with connected(endpoint) as connection:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert answered(connection)[0] == 200
        going_on.set()
        received = b""
        while piece := subscriber.recv(1000):
            received += piece
        assert received.endswith(b"end"), "who has proven something is not ended for others"


def test_hostile_clients_are_no_errors_of_ours(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (b"", b"\n", b"GET", b"\x16\x03", b"POST /sql HTTP/1.0\r\nContent-Length: 9"):
        with raw(endpoint) as connection:
            connection.sendall(sent)
            assert is_ended(connection)
    time.sleep(0.1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
