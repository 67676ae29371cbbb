"""The endpoint of a service: probes, metrics, a password, TLS, certificates of clients."""

import base64
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from streams.app.client import Client
from streams.app.coordinator_access import Access
from streams.errors import Determinate, InvalidUsage
from streams.http.listening import Listening
from streams.http.metrics import Family, exposition
from streams.http.server import Endpoint, Exchange, Probes, served

PASSWORD = "correct horse battery"


def told(exchange: Exchange) -> None:
    exchange.answer(http.HTTPStatus.OK, {"replicas": ["r1"]})


ROUTES = {"GET /status": told}


def get(port: int, path: str, **headers: str) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(body) if is_json else body


def test_probes_follow_the_service() -> None:
    alive, why = [True], ["Spark is starting"]
    probes = Probes(is_alive=lambda: alive[-1], why_not_ready=lambda: why[-1])
    with served(Endpoint(Listening(), probes)) as port:
        assert get(port, "/healthz") == (200, {"alive": True})
        assert get(port, "/readyz") == (503, {"ready": False, "why": "Spark is starting"})
        alive.append(False)
        why.append("")
        assert get(port, "/healthz?verbose") == (503, {"alive": False})
        assert get(port, "/readyz") == (200, {"ready": True})
        assert get(port, "/nothing") == (404, {"error": "there is no GET /nothing"})


def test_metrics_are_the_services_and_the_processes() -> None:
    families = [Family("rounds_total", "counter", "Rounds.", (({"a": 'x"\n'}, 3.0),))]
    with served(Endpoint(Listening(), Probes(metrics=lambda: exposition(families)))) as port:
        code, text = get(port, "/metrics")
    assert code == 200
    assert 'slackwater_rounds_total{a="x\\"\\n"} 3.0\n' in str(text)
    assert "\nprocess_cpu_seconds_total " in str(text)
    assert "\nprocess_resident_memory_bytes " in str(text)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer wrong",
        f"Bearer {PASSWORD[:-1]}",
        "Basic ???",
        "Basic é",
        f"Basic {base64.b64encode(b'user').decode()}",
        f"Basic {base64.b64encode(PASSWORD.encode()).decode()}",
        "Basic /w==",
        f"Digest {PASSWORD}",
        "Bearer \xff",
    ],
)
def test_without_the_password_there_are_probes_alone(header: str) -> None:
    with served(Endpoint(Listening(password=PASSWORD), routes=ROUTES)) as port:
        assert get(port, "/healthz", Authorization=header)[0] == 200
        assert get(port, "/readyz", Authorization=header)[0] == 200
        for path in ("/metrics", "/status", "/nothing"):
            assert get(port, path, Authorization=header)[0] == 401


def test_a_refusal_reaches_a_client_that_has_sent_a_body() -> None:
    with served(Endpoint(Listening(password=PASSWORD), routes=ROUTES)) as port:
        for _ in range(20):
            with pytest.raises(Determinate, match=r"refused the request: .*expected the pass"):
                Client(f"http://127.0.0.1:{port}").run("SELECT 1;" * 20_000)


def test_the_password_opens_everything() -> None:
    basic = base64.b64encode(f"anyone:{PASSWORD}".encode()).decode()
    with served(Endpoint(Listening(password=PASSWORD), routes=ROUTES)) as port:
        for header in (f"Bearer {PASSWORD}", f"Basic {basic}", f"basic {basic}"):
            assert get(port, "/status", Authorization=header) == (200, {"replicas": ["r1"]})


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidUsage, match="cannot listen at 127"):
            Endpoint(Listening(port=taken.getsockname()[1]))


@dataclass(frozen=True)
class Certificates:
    authority: Path
    server: Path
    client: Path
    stranger: Path
    """Of a client, by another authority."""
    expired: Path
    of_servers: Path
    """Of the authority, and for servers alone."""
    password: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")

    def written(name: str, authority: trustme.CA, until: datetime | None = None) -> Path:
        path = directory / f"{name}.pem"
        issued = authority.issue_cert("127.0.0.1", not_after=until)
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    (directory / "password").write_text(f"{PASSWORD}\n")
    return Certificates(
        directory / "authority.pem",
        written("server", authority),
        written("client", authority),
        written("stranger", other),
        written("expired", authority, datetime(2001, 1, 1, tzinfo=UTC)),
        for_servers(authority, directory / "of_servers.pem"),
        directory / "password",
    )


def for_servers(authority: trustme.CA, path: Path) -> Path:
    """A certificate that says what it is for, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    signer = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .sign(signer, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(text + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[str]:
    listening = Listening(
        certificate=certificates.server, key=certificates.server, password=PASSWORD
    )
    with served(Endpoint(listening, routes=ROUTES)) as port:
        yield f"https://127.0.0.1:{port}"


def access(url: str, certificates: Certificates) -> Client:
    return Access(
        url=url, tls_authority=certificates.authority, password_file=certificates.password
    ).client()


def test_a_client_with_the_authority_and_the_password_is_served(
    secured: str, certificates: Certificates
) -> None:
    assert access(secured, certificates).replicas() == ["r1"]
    assert access(secured, certificates).in_session().replicas() == ["r1"]


def test_a_client_without_either_is_told(secured: str, certificates: Certificates) -> None:
    with pytest.raises(Determinate, match=r"refused the request: .*expected the password"):
        Access(url=secured, tls_authority=certificates.authority).client().replicas()
    with pytest.raises(Determinate, match="that is trusted, actual one that is not"):
        Access(url=secured, password_file=certificates.password).client().replicas()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /status HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\xff"]
)
def test_what_is_no_handshake_costs_its_sender_alone(
    secured: str, certificates: Certificates, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = secured.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port))),  # says nothing
        socket.create_connection((host, int(port)), timeout=10) as raw,
    ):
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert b" 200 " not in raw.recv(1000)
        assert access(secured, certificates).replicas() == ["r1"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_certificates_of_clients_are_asked_for(certificates: Certificates) -> None:
    listening = Listening(
        certificate=certificates.server,
        key=certificates.server,
        client_authority=certificates.authority,
    )

    def client(certificate: Path | None) -> Client:
        return Access(
            url=f"https://127.0.0.1:{port}",
            tls_authority=certificates.authority,
            tls_certificate=certificate,
            tls_key=certificate,
        ).client()

    with served(Endpoint(listening, routes=ROUTES)) as port:
        assert client(certificates.client).replicas() == ["r1"]
        for wrong in (
            None,
            certificates.stranger,
            certificates.expired,
            certificates.of_servers,
        ):
            with pytest.raises(Determinate, match="expected a certificate of this client"):
                client(wrong).replicas()


@pytest.mark.parametrize(
    "url", ["coordinator:8470", "ftp://a:1", "https://", "http://a:1/sql", "file:///etc/passwd"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidUsage, match="expected a URL as https://HOST:PORT"):
        Access(url=url).client()


def test_no_password_is_sent_in_clear_to_another_machine(certificates: Certificates) -> None:
    with pytest.raises(InvalidUsage, match="expected https"):
        Access(url="http://db:8470", password_file=certificates.password).client()
