"""What a client says of a URL, a password or a certificate that is wrong: one line."""

import datetime as dt
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.coordinator_access import Access
from streams.errors import Determinate, InvalidUsage
from streams.http.listening import Listening
from streams.http.server import Endpoint, Exchange, served

PASSWORD = "correct horse battery"
LONG_AGO = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)


def answers(exchange: Exchange) -> None:
    exchange.body(exchange.length or 0)
    exchange.send_response(HTTPStatus.OK)
    exchange.send_header("Content-Type", "application/x-ndjson")
    exchange.end_headers()
    exchange.wfile.write(b'{"type": "end"}\n')


ROUTES = {"POST /sql": answers}


@dataclass(frozen=True)
class Files:
    """Certificates of servers, by what is wrong with them, and the authority of all but one."""

    authority: Path
    good: Path
    expired: Path
    elsewhere: Path
    stranger: Path
    password: Path
    wrong_password: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()

    def written(name: str, certificate: trustme.LeafCert) -> Path:
        path = directory / f"{name}.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def secret(name: str, text: str) -> Path:
        (directory / name).write_text(f"{text}\n")
        return directory / name

    authority.cert_pem.write_to_path(directory / "authority.pem")
    return Files(
        directory / "authority.pem",
        written("good", authority.issue_cert("127.0.0.1")),
        written("expired", authority.issue_cert("127.0.0.1", not_after=LONG_AGO)),
        written("elsewhere", authority.issue_cert("db.example")),
        written("stranger", trustme.CA().issue_cert("127.0.0.1")),
        secret("password", PASSWORD),
        secret("wrong", "hunter2"),
    )


@contextmanager
def listening(certificate: Path | None, authority: Path | None = None) -> Iterator[int]:
    endpoint = Endpoint(
        Listening(
            certificate=certificate,
            key=certificate,
            client_authority=authority,
            password=PASSWORD,
        ),
        routes=ROUTES,
    )
    with served(endpoint) as port:
        yield port


def said(*arguments: str) -> str:
    """The one line with which `slackwater sql` fails."""
    done = CliRunner().invoke(app, ["sql", "--json", "-c", "SELECT 1", *arguments])
    assert done.exit_code == 1, done.output
    (line,) = done.output.splitlines()
    message = str(json.loads(line)["error"]["message"])
    assert "\n" not in message
    assert PASSWORD not in message
    assert "hunter2" not in message
    return message


def test_what_is_right_works(files: Files) -> None:
    trusted = ("--tls-authority", str(files.authority), "--password-file", str(files.password))
    with listening(files.good) as port:
        url = f"https://127.0.0.1:{port}"
        done = CliRunner().invoke(app, ["sql", "-c", "SELECT 1", "--url", url, *trusted])
    assert (done.exit_code, done.output) == (0, "")


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        ("expired", "valid now, actual one that has expired: have it renewed there"),
        (
            "elsewhere",
            "for 127.0.0.1, actual one for another name: use the name that it is for",
        ),
        (
            "stranger",
            "trusted, actual one that is not (unable to get local issuer certificate)",
        ),
        ("stranger", "give the certificate of its authority with --tls-authority"),
    ],
)
def test_a_certificate(files: Files, certificate: str, message: str) -> None:
    with listening(getattr(files, certificate)) as port:
        url = f"https://127.0.0.1:{port}"
        assert message in said("--url", url, "--tls-authority", str(files.authority))


def test_a_certificate_of_a_client(files: Files) -> None:
    with listening(files.good, files.authority) as port:
        trusted = (
            "--url",
            f"https://127.0.0.1:{port}",
            "--tls-authority",
            str(files.authority),
        )
        message = said(*trusted)
        assert "expected a certificate of this client, actual none" in message
        assert "--tls-certificate" in message
        other = ("--tls-certificate", str(files.stranger), "--tls-key", str(files.stranger))
        assert "one of an authority that it does not trust" in said(*trusted, *other)


def test_a_password(files: Files) -> None:
    with listening(None) as port:
        url = f"http://127.0.0.1:{port}"
        start = f"the coordinator at {url} refused the request: expected the password, actual"
        todo = "give the file that holds it with --password-file"
        assert said("--url", url) == f"{start} none: {todo}"
        wrong = ("--password-file", str(files.wrong_password))
        assert said("--url", url, *wrong) == f"{start} another one: {todo}"


@pytest.mark.parametrize("password", ["päss wörd und €uro", "two\nlines of it"])
def test_a_password_of_any_characters_is_sent(tmp_path: Path, password: str) -> None:
    (tmp_path / "password").write_text(password)
    with served(Endpoint(Listening(password=password), routes=ROUTES)) as port:
        url = f"http://127.0.0.1:{port}"
        client = Access(url=url, password_file=tmp_path / "password").client()
        assert client.run("SELECT 1") == []


def test_http_where_tls_is_spoken(files: Files) -> None:
    with listening(files.good) as port:
        message = said("--url", f"http://127.0.0.1:{port}")
        assert "expected TLS here: write https instead of http" in message


def test_tls_where_http_is_spoken() -> None:
    with listening(None) as port:
        message = said("--url", f"https://127.0.0.1:{port}")
        assert message == (
            f"expected TLS at https://127.0.0.1:{port}, actual something else: if the"
            f" coordinator speaks none, write http://127.0.0.1:{port}"
        )


def test_nothing_listens_there() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert said("--url", url) == (
            f"no coordinator answers at {url}: nothing listens there: check the port, or"
            " start it"
        )


def test_a_host_that_there_is_not() -> None:
    message = said("--url", "http://nowhere.invalid:8470")
    assert "no host is called nowhere.invalid: check the name" in message


@contextmanager
def answering(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """Something that is no coordinator."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            handle(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("sent", [b"", b"\x00\x00\x00\x04kafka"])
def test_something_else_listens_there(scheme: str, sent: bytes) -> None:
    with answering(lambda connection: connection.sendall(sent)) as port:
        message = said("--url", f"{scheme}://127.0.0.1:{port}")
        assert message.startswith("expected ")
        assert f"{scheme}://127.0.0.1:{port}, actual" in message


def test_the_connection_is_closed_before_an_answer() -> None:
    with answering(lambda _: None) as port:
        message = said("--url", f"http://127.0.0.1:{port}")
        assert message == (
            f"expected an answer of a coordinator at http://127.0.0.1:{port}, actual a"
            " connection"
            " that was closed: if it has just ended, try again when it is back; if it speaks"
            f" TLS, write https://127.0.0.1:{port}"
        )


def test_some_other_http_server_listens_there() -> None:
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>welcome")

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        message = said("--url", f"http://127.0.0.1:{pages.server_port}")
        pages.shutdown()
    assert "expected a coordinator" in message
    assert "actual an answer of type text/html" in message


def test_another_service_listens_there() -> None:
    with served(Endpoint(Listening())) as port:
        message = said("--url", f"http://127.0.0.1:{port}")
    assert "actual another service (there is no POST /sql)" in message


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
        "http://[::1:8470",
        "http://host:8470?x=1",
        "http://a b:8470",
        "https://user:hunter2@host:8470",
    ],
)
def test_a_url(url: str) -> None:
    with pytest.raises(InvalidUsage, match="expected a URL as https://HOST:PORT") as refused:
        Access(url=url).client()
    assert "hunter2" not in str(refused.value)


def test_a_key_of_a_client(files: Files) -> None:
    with pytest.raises(
        InvalidUsage, match="expected a certificate of this client with its key"
    ):
        Access(url="https://a:1", tls_key=files.good).client()


def test_status_says_the_same(files: Files) -> None:
    with listening(None) as port:
        client = Access(url=f"http://127.0.0.1:{port}").client()
        with pytest.raises(Determinate, match="expected the password, actual none"):
            client.objects()
