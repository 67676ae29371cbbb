"""A broker with TLS, SASL and an authorizer: services have the least rights, a client fewer.

`RIGHTS` is what streams/docs/CONTAINERS.md lists; everything else is denied.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import serialization

from tests.e2e.containers import PASSWORD, SECRETS

ADMIN, SERVICES_USER, CLIENT = "admin", "slackwater", "client"
USERS = (ADMIN, SERVICES_USER, CLIENT)
READERS = "slackwater"
"""The group that every reader names, for the client requires one; none joins it."""
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

Right = tuple[ResourceType, str, ResourcePatternType, tuple[AclOperation, ...]]

LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


def rights(namespace: str, source: str, output: str) -> Mapping[str, list[Right]]:
    """What users may do: the services, and a client that writes commands and reads answers."""
    own = f"{namespace}."
    operations = AclOperation
    return {
        SERVICES_USER: [
            (
                ResourceType.TOPIC,
                own,
                PREFIXED,
                (
                    operations.CREATE,
                    operations.READ,
                    operations.WRITE,
                    operations.ALTER,
                    operations.DELETE,
                    operations.DESCRIBE_CONFIGS,
                ),
            ),
            (
                ResourceType.TOPIC,
                source,
                LITERAL,
                (operations.READ, operations.DESCRIBE_CONFIGS),
            ),
            (
                ResourceType.TOPIC,
                output,
                LITERAL,
                (operations.CREATE, operations.WRITE, operations.DESCRIBE_CONFIGS),
            ),
            (ResourceType.TRANSACTIONAL_ID, own, PREFIXED, (operations.WRITE,)),
            (ResourceType.GROUP, own, PREFIXED, (operations.READ,)),
            (ResourceType.GROUP, READERS, LITERAL, (operations.DESCRIBE,)),
        ],
        CLIENT: [
            (ResourceType.TOPIC, f"{own}storage.commands", LITERAL, (operations.WRITE,)),
            (ResourceType.TOPIC, f"{own}storage.responses", LITERAL, (operations.READ,)),
            (ResourceType.GROUP, CLIENT, LITERAL, (operations.DESCRIBE,)),
        ],
    }


def binding(user: str, topic: str) -> AclBinding:
    """The right to do anything with a topic."""
    allow, everything = AclPermissionType.ALLOW, AclOperation.ALL
    return AclBinding(
        ResourceType.TOPIC, topic, LITERAL, f"User:{user}", "*", everything, allow
    )


def grant(admin: AdminClient, user: str, given: list[Right]) -> None:
    """Allow a user what is listed."""
    allow = AclPermissionType.ALLOW
    bindings = [
        AclBinding(resource, name, pattern, f"User:{user}", "*", operation, allow)
        for resource, name, pattern, operations in given
        for operation in operations
    ]
    for answer in admin.create_acls(bindings).values():
        answer.result(30)


def make_broker_pem(authority: trustme.CA, directory: Path) -> None:
    """The broker's certificate and key in one file, the key as PKCS #8."""
    issued = authority.issue_cert("127.0.0.1", "kafka", "localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    (directory / "broker.pem").write_bytes(text + chain)


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
