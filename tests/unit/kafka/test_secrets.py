"""Secrets travel to every client, and show nowhere."""

import logging
import traceback

import pytest

from streams.errors import InvalidUsage
from streams.kafka.client import clients
from streams.kafka.settings import HIDDEN, ClientSettings, is_secret

SECRET = "hunter2"


def producer(settings: ClientSettings) -> object:
    return clients.producer(settings, {}, {})


def consumer(settings: ClientSettings) -> object:
    return clients.consumer(settings, {}, {})


MAKERS = [clients.admin, producer, consumer]


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
    ],
)
def test_what_is_secret_is_known(name) -> None:
    assert is_secret(name)
    assert SECRET not in repr(ClientSettings("a:1", ((name, SECRET),)))


@pytest.mark.parametrize("name", ["security.protocol", "sasl.username", "ssl.ca.location"])
def test_what_is_none_is_shown(name) -> None:
    assert not is_secret(name)


def test_text_is_masked_the_longest_secret_first() -> None:
    settings = ClientSettings("a:1", (("sasl.password", "ab"), ("ssl.key.password", "abc")))
    assert settings.masked("abc and ab, a") == f"{HIDDEN} and {HIDDEN}, a"


@pytest.mark.parametrize("make", MAKERS)
def test_refused_settings_are_told_without_secrets(make) -> None:
    settings = (("debug", SECRET), ("sasl.password", SECRET))
    with pytest.raises(InvalidUsage, match="client settings are invalid") as raised:
        make(ClientSettings("127.0.0.1:1", settings))
    lines = "".join(traceback.format_exception(raised.value))
    assert "debug" in lines
    assert SECRET not in lines


@pytest.mark.parametrize("make", MAKERS)
def test_a_client_that_logs_everything_logs_no_secret(make, caplog, capfd) -> None:
    settings = (
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "somebody"),
        ("sasl.password", SECRET),
        ("debug", "all"),
        ("log_level", "7"),
    )
    with caplog.at_level(logging.DEBUG, logger="streams.kafka.librdkafka"):
        client = make(ClientSettings("127.0.0.1:1", settings))
        client.poll(0.05)
    output = caplog.text + "".join(capfd.readouterr())
    assert "sasl_plaintext://127.0.0.1:1" in output  # it did log
    assert SECRET not in output


def test_tls_and_sasl_settings_reach_the_client() -> None:
    settings = (
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", "/nowhere/ca.pem"),
    )
    options = ClientSettings("a:1", settings).client({}, {})
    assert dict(settings).items() <= options.items()


@pytest.mark.parametrize("name", ["metadata.broker.list", "allow.auto.create.topics"])
def test_what_would_go_around_our_settings_cannot_be_chosen(name) -> None:
    with pytest.raises(InvalidUsage, match=name):
        ClientSettings("a:1", ((name, "x"),))
