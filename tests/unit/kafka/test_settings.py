"""Settings travel, hide their secrets and do not let a guarantee be switched off."""

import pickle

import pytest

from streams.errors import InvalidUsage
from streams.kafka.settings import ClientSettings

SECURE = ClientSettings(
    "a:1",
    (("security.protocol", "SASL_SSL"), ("sasl.password", "hunter2"), ("ssl.key.pem", "pk")),
)


def test_secrets_do_not_show():
    assert "hunter2" not in repr(SECURE)
    assert "'pk'" not in repr(SECURE)
    assert "SASL_SSL" in f"{SECURE}"


def test_settings_survive_pickling_whole():
    assert pickle.loads(pickle.dumps(SECURE)) == SECURE


def test_extra_wins_over_defaults_and_guarantees_over_extra():
    settings = ClientSettings("a:1", (("linger.ms", "7"), ("batch.size", "9")))
    options = settings.client({"linger.ms": 0}, {"acks": "all"})
    assert (options["linger.ms"], options["batch.size"], options["acks"]) == ("7", "9", "all")
    assert options["bootstrap.servers"] == "a:1"


@pytest.mark.parametrize("name", ["acks", "isolation.level", "auto.offset.reset", "group.id"])
def test_a_guarantee_cannot_be_chosen_away(name):
    with pytest.raises(InvalidUsage, match=name):
        ClientSettings("a:1", ((name, "x"),))
