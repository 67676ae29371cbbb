"""What is allowed together, and what is refused before anything listens."""

from pathlib import Path
from typing import Any

import pytest

from streams.errors import InvalidUsage
from streams.http.listening import Listening, address, is_loopback

PASSWORD = "correct horse battery"


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.example", False),
        ("db", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, here: bool) -> None:
    assert is_loopback(host) == here


def test_an_address_is_a_host_and_a_port() -> None:
    assert address("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert address("[::1]:9464") == ("::1", 9464)
    assert address(":9464") == ("", 9464)
    for wrong in ("9464", "host", "host:", "host:x", "host:65536", "host:²"):
        with pytest.raises(InvalidUsage, match="expected HOST:PORT"):
            address(wrong)


def test_beyond_this_machine_a_service_needs_tls_and_something_that_clients_prove() -> None:
    pem = Path("x.pem")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "a certificate and its key for TLS and a password or an authority"),
        ({"password": PASSWORD}, "expected a certificate and its key for TLS to listen"),
        ({"certificate": pem, "key": pem}, "expected a password or an authority of clients"),
    )
    for given, lacks in cases:
        with pytest.raises(InvalidUsage, match=lacks):
            Listening(host="0.0.0.0", port=1, **given)
        assert Listening(host="127.0.0.1", port=1, **given).port == 1
    Listening(host="0.0.0.0", port=1, certificate=pem, key=pem, password=PASSWORD)
    Listening(host="0.0.0.0", port=1, certificate=pem, key=pem, client_authority=pem)


def test_halves_are_refused_and_no_password_is_shown() -> None:
    with pytest.raises(InvalidUsage, match="actual one of them"):
        Listening(certificate=Path("x.pem"))
    with pytest.raises(InvalidUsage, match="without TLS clients show none"):
        Listening(client_authority=Path("x.pem"))
    with pytest.raises(InvalidUsage, match="at least 12 characters, actual 7") as refused:
        Listening(password="hunter2")
    assert "hunter2" not in str(refused.value)
    assert PASSWORD not in repr(Listening(password=PASSWORD))


def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    listening = Listening(certificate=pem, key=pem)
    with pytest.raises(
        InvalidUsage, match=r"expected a certificate and its key as PEM in .*x\.pem"
    ):
        listening.context()
    pem.write_text("nothing")
    with pytest.raises(InvalidUsage, match=r"x\.pem"):
        listening.context()
