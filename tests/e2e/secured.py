"""A broker in a container with TLS, SASL and an authorizer."""

from collections.abc import Iterator

from tests.e2e.containers import PASSWORD, SECRETS
from tests.support.broker_rights import ADMIN, USERS

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def broker_variables() -> dict[str, str]:
    """What differs from an open broker."""
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    login = f'{LOGIN} username="{ADMIN}" password="{PASSWORD}" {users};'
    return {
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "INTERNAL:SASL_SSL,HOST:SASL_SSL,CONTROLLER:PLAINTEXT"
        ),
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
        "KAFKA_LISTENER_NAME_INTERNAL_PLAIN_SASL_JAAS_CONFIG": login,
        "KAFKA_LISTENER_NAME_HOST_PLAIN_SASL_JAAS_CONFIG": login,
        "KAFKA_SSL_KEYSTORE_TYPE": "PEM",
        "KAFKA_SSL_KEYSTORE_LOCATION": f"{SECRETS}/broker.pem",
        "KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
        "KAFKA_SSL_TRUSTSTORE_LOCATION": f"{SECRETS}/authority.pem",
        "KAFKA_AUTHORIZER_CLASS_NAME": AUTHORIZER,
        "KAFKA_SUPER_USERS": f"User:{ADMIN};User:ANONYMOUS",  # the controller's own listener
    }


def client_settings(user: str, authority: str) -> dict[str, str]:
    """What a client of librdkafka needs."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "ssl.ca.location": authority,
    }


def client_properties(user: str) -> Iterator[str]:
    """The same as lines of a file in a container."""
    settings = client_settings(user, f"{SECRETS}/authority.pem")
    yield from (f"{name}={value}" for name, value in settings.items())
