"""A broker that wants TLS, a password and rights: what its properties and its clients say.

Clients connect by SASL_SSL and log in with PLAIN; Kafka's own authorizer denies what nobody was
allowed. Only the broker's administrator may do everything. The controller listens to this
machine alone, without TLS.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.errors import InvalidUsage

PROTOCOL = "SASL_SSL"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_PLAIN = re.compile(r"[A-Za-z0-9_.@-]+")
"""What needs no quotes: in the text of a login module, whatever the broker makes of quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """`certificate` is the broker's certificate and key as PEM, the key as PKCS #8.

    `authority` is the PEM file that signed it, for 127.0.0.1. `users` have the passwords.
    """

    certificate: Path
    authority: Path
    users: Mapping[str, str] = field(repr=False)
    administrator: str

    def __post_init__(self) -> None:
        """Errors: InvalidUsage."""
        for user, password in self.users.items():
            if not _PLAIN.fullmatch(user) or not _PLAIN.fullmatch(password):
                raise InvalidUsage(
                    f"user {user!r} of the embedded broker: expected a name and a password of"
                    " letters, digits and _.@-"
                )
        if self.administrator not in self.users:
            raise InvalidUsage(f"expected a password of the administrator {self.administrator}")

    def properties(self) -> Mapping[str, str]:
        """What differs in the broker's properties from a broker without."""
        users = " ".join(f'user_{user}="{word}"' for user, word in self.users.items())
        name, password = self.administrator, self.users[self.administrator]
        login = f'{_LOGIN} username="{name}" password="{password}" {users};'
        return {
            "listener.security.protocol.map": f"{PROTOCOL}:{PROTOCOL},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": PROTOCOL,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{PROTOCOL.lower()}.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{name};User:ANONYMOUS",  # who comes to the controller
        }

    def client(self, user: str) -> dict[str, str]:
        """The settings of a client of librdkafka that logs in as the user."""
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": self.users[user],
            "ssl.ca.location": str(self.authority),
        }
