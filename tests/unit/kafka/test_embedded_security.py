"""What a broker's properties say of TLS, passwords and rights."""

from pathlib import Path
from typing import Any

import pytest

from streams.errors import InvalidUsage
from streams.kafka.embedded import BrokerSecurity
from streams.kafka.embedded.properties import server_properties


def security(**options: Any) -> BrokerSecurity:
    given = {
        "certificate": Path("/broker.pem"),
        "authority": Path("/authority.pem"),
        "users": {"admin": "first-secret", "client": "second-secret"},
        "administrator": "admin",
    }
    return BrokerSecurity(**{**given, **options})


def test_nobody_comes_in_without_tls_but_the_controller() -> None:
    lines = server_properties(Path("/d"), 1, 2, security()).splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert properties["listeners"] == "SASL_SSL://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert properties["inter.broker.listener.name"] == "SASL_SSL"
    assert len(properties) == len(lines), "each is said once"
    assert "PLAINTEXT:PLAINTEXT," not in properties["listener.security.protocol.map"]


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(security())


@pytest.mark.parametrize("word", ['a"b', "a;b", "a b", "a\nb", "", "ä", "a\\"])
def test_what_a_login_module_reads_otherwise_is_refused(word: str) -> None:
    for users in ({"admin": "x", "client": word}, {"admin": "x", word: "secret"}):
        with pytest.raises(InvalidUsage, match="expected a name and a password of") as refused:
            security(users=users)
        assert "secret" not in str(refused.value)


def test_an_administrator_has_a_password() -> None:
    with pytest.raises(InvalidUsage, match="a password of the administrator root"):
        security(administrator="root")
