"""Connection settings of a Kafka cluster: one value for every process that connects.

Any librdkafka setting may be in `extra` (TLS, SASL, timeouts); it overrides our defaults except
those on which a guarantee depends. Secrets never appear in a repr, a log line or an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streams.errors import InvalidUsage

HIDDEN = "********"

# Substrings of the librdkafka settings that hold secrets.
_SECRET = (
    "password",
    "passphrase",
    "secret",
    "private.key",
    "sasl.jaas",
    "key.pem",
    "token",
    "oauthbearer.config",
)

# A guarantee depends on each of these: they cannot be overridden.
_OURS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "isolation.level",
        "metadata.broker.list",
        "request.required.acks",
        "transactional.id",
    }
)


def is_secret(name: str) -> bool:
    """Whether the value of this setting must be masked."""
    return any(part in name for part in _SECRET)


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """Addresses (`host:port,host:port`) and further librdkafka settings."""

    bootstrap: str
    extra: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise InvalidUsage("bootstrap: expected host:port, actual nothing")
        if taken := sorted(_OURS.intersection(name for name, _ in self.extra)):
            raise InvalidUsage(f"client settings that cannot be chosen: {', '.join(taken)}")

    def __repr__(self) -> str:
        shown = tuple((k, HIDDEN if is_secret(k) else v) for k, v in self.extra)
        return f"ClientSettings(bootstrap={self.bootstrap!r}, extra={shown!r})"

    def masked(self, text: str) -> str:
        """Return the text with the secrets of these settings masked."""
        secrets = {value for name, value in self.extra if is_secret(name) and value}
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def client(
        self,
        defaults: Mapping[str, str | int | bool],
        guarantees: Mapping[str, str | int | bool],
    ) -> dict[str, str | int | bool]:
        """A librdkafka configuration: `extra` overrides `defaults`, `guarantees` both."""
        return {
            "client.id": "slackwater",
            **defaults,
            **dict(self.extra),
            **guarantees,
            "bootstrap.servers": self.bootstrap,
        }
