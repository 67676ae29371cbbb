"""Users of a broker with an authorizer: services have the least rights, a client fewer.

`rights` is what streams/docs/OPERATIONS.md lists; everything else is denied. What a client with
fewer rights tries is here too: each attempt would harm others, or show what is theirs.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import serialization

from tests.support.broker_requests import DONE, OUT_OF_RANGE, REFUSED, Stranger, stranger

ADMIN, SERVICES_USER, CLIENT = "admin", "slackwater", "client"
USERS = (ADMIN, SERVICES_USER, CLIENT)
READERS = "slackwater"
"""The group that every reader names, for the client requires one; none joins it."""

WAIT_S = 15

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


def binding_of(user: str, topic: str) -> AclBinding:
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


def write(settings: Mapping[str, Any], topic: str) -> None:
    """Errors: AssertionError if the broker refuses."""
    failures: list[Any] = []
    producer = Producer({**settings, "log_level": 0, "message.timeout.ms": WAIT_S * 1000})
    producer.produce(
        topic, b"forged", b"u1", on_delivery=lambda error, _: failures.append(error)
    )
    producer.flush(WAIT_S)
    assert failures == [None]


def each(answers: Mapping[Any, Any]) -> int:
    """The code of the first error; 0 without any."""
    for answer in answers.values():
        try:
            answer.result(WAIT_S)
        except KafkaException as refused:
            return int(refused.args[0].code())
    return DONE


Attempts = Mapping[str, Callable[[], int]]


def harming(settings: Mapping[str, Any], namespace: str, victim: str) -> Attempts:
    """What would harm others through a library."""
    admin = AdminClient(dict(settings))
    new_topic = NewTopic(f"{namespace}.made", 1, 1)
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    retention = ConfigResource("TOPIC", victim, incremental_configs=[entry])
    binding = binding_of(CLIENT, victim)
    return {
        "delete a topic": lambda: each(admin.delete_topics([victim])),
        "change a topic": lambda: each(admin.incremental_alter_configs([retention])),
        "create a topic": lambda: each(admin.create_topics([new_topic])),
        "get a right": lambda: each(admin.create_acls([binding])),
    }


def asking(client: Stranger, namespace: str, topics: Collection[str], victim: str) -> Attempts:
    """What would harm others, or show what is theirs, in requests of its own."""
    commands = f"{namespace}.storage.commands"
    tried: dict[str, Callable[[], int]] = {
        f"{request.__name__} {name}": partial(request, name)
        for request in (client.read, client.write, client.look_at_end)
        for name in topics
    }
    return tried | {
        "delete records": partial(client.delete_records, victim),
        "move a mark": partial(client.move_mark, commands, victim),
        "fence a sink": partial(client.take_over, f"{namespace}.sink.k7"),
        "fence storage": partial(client.take_over, commands),
        "read commands": partial(client.read, commands),
        "write answers": partial(client.write, f"{namespace}.storage.responses"),
    }


def went_through(tried: Attempts) -> dict[str, int]:
    """The attempts that were not refused for want of a right, and what came of them."""
    codes = {name: attempt() for name, attempt in tried.items()}
    return {name: code for name, code in codes.items() if code not in REFUSED}


def check_who_may(
    administrator: Mapping[str, Any],
    client: Mapping[str, Any],
    namespace: str,
    others: Collection[str],
) -> None:
    """Nobody is refused for another reason: who may do it, does it by the same request."""
    answers = f"{namespace}.storage.responses"
    with stranger(administrator) as admin:
        for name in others:
            assert admin.look_at_end(name) == DONE
            assert admin.read(name) in {DONE, OUT_OF_RANGE}, "the first record may be gone"
            assert admin.write(name) not in {DONE, *REFUSED}, "an empty batch is none"
    with stranger(client) as reader:
        assert reader.read(answers) == reader.look_at_end(answers) == DONE
