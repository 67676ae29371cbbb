import io
import socket
import threading
from collections.abc import Iterator

import pytest
from rich.console import Console

from streams.app.client import Client
from streams.app.printer import Printer
from streams.app.sql import run
from streams.errors import Determinate, Indeterminate

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
ROWS = b'{"type": "rows", "rows": [[1]]}\n'
COMPLETE = b'{"type": "complete", "tag": "SELECT 1", "facts": {}}\n'
END = b'{"type": "end"}\n'


class Broken:
    """A coordinator that sends some bytes and is gone."""

    def __init__(self, sent: bytes) -> None:
        self._sent, self.asked = sent, b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.client = Client(f"http://127.0.0.1:{self._socket.getsockname()[1]}")
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            self.asked = connection.recv(1 << 16)
            connection.sendall(self._sent)
            # to close with bytes unread would reset the connection, and the answer be lost
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def broken(request: pytest.FixtureRequest) -> Iterator[Broken]:
    connection = Broken(request.param)
    yield connection
    connection.close()


CUT_OFF = [
    pytest.param(HEAD, id="at once"),
    pytest.param(HEAD + ROWS, id="after rows"),
    pytest.param(HEAD + ROWS[:9], id="in a line"),
    pytest.param(HEAD + ROWS + COMPLETE, id="before the end"),
    pytest.param(HEAD + ROWS + COMPLETE + END[:-1], id="in the end"),
]


@pytest.mark.parametrize("broken", CUT_OFF, indirect=True)
def test_an_answer_without_its_end_is_a_failure(broken) -> None:
    with pytest.raises(Indeterminate, match="cut off"):
        broken.client.run("SELECT 1")


@pytest.mark.parametrize("broken", CUT_OFF, indirect=True)
def test_the_shell_fails_when_an_answer_is_cut_off(broken) -> None:
    shown = io.StringIO()
    assert not run(broken.client, "SELECT 1", Printer(Console(file=shown), as_json=False))
    assert "cut off" in shown.getvalue()


@pytest.mark.parametrize("broken", [HEAD + ROWS + COMPLETE + END], indirect=True)
def test_a_whole_answer(broken) -> None:
    (answer,) = broken.client.run("SELECT 1")
    assert (answer.rows, answer.tag) == (((1,),), "SELECT 1")


TIMED = COMPLETE.replace(b"{}", b'{"session_time": 7, "session_event_time": 5}')


@pytest.mark.parametrize("broken", [HEAD + TIMED + END], indirect=True)
def test_a_session_sends_its_token_and_the_time_that_it_was_told(broken) -> None:
    client = broken.client.in_session()
    client.run("SELECT 1")
    assert client.session is not None
    token = client.session.token
    assert f"Slackwater-Session: {token}".encode() in broken.asked
    assert client.session.headers == {
        "Slackwater-Session": token,
        "Slackwater-Session-Time": "7",
        "Slackwater-Session-Event-Time": "5",
    }
    assert broken.client.session is None


REFUSED = b'HTTP/1.0 413 Too Large\r\n\r\n{"error": "more than 9 bytes"}'


@pytest.mark.parametrize("broken", [REFUSED], indirect=True)
def test_a_request_that_is_refused_says_why(broken) -> None:
    with pytest.raises(Determinate, match="more than 9 bytes"):
        broken.client.run("SELECT 1")


def test_nobody_answers() -> None:
    with pytest.raises(Determinate, match="no coordinator"):
        Client("http://127.0.0.1:1").run("SELECT 1")
