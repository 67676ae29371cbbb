"""The least rights at a broker suffice for everything, and a client has none of the others'.

The services log in as a user with the rights that streams/docs/OPERATIONS.md lists. A client
that may write commands alone tries what would harm others, and the broker refuses each attempt.
The services themselves want a certificate of each client.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from streams.app.client import Client
from streams.errors import Determinate
from tests.e2e import secured
from tests.e2e.bank import OUTPUT, TOPIC
from tests.e2e.containers import PASSWORD, PERSON, SECRETS, Environment, trusting
from tests.e2e.hostile import DONE, OUT_OF_RANGE, REFUSED, Stranger, stranger
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial, inflict

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

WAIT_S = 15


def prepared(authority: trustme.CA, directory: Path) -> None:
    secured.make_broker_pem(authority, directory)
    lines = secured.client_properties(secured.SERVICES_USER)
    (directory / "client.properties").write_text("\n".join(lines))
    person = authority.issue_cert("person@example.com")
    person.private_key_and_cert_chain_pem.write_to_path(str(directory / PERSON))


def opened(environment: Environment) -> None:
    admin = AdminClient(environment.kafka)
    for user, given in secured.rights(environment.namespace, TOPIC, OUTPUT).items():
        secured.grant(admin, user, given)


@pytest.fixture
def plan() -> Plan:
    return Plan(
        broker=secured.broker_variables(),
        client=lambda place: secured.client_settings(
            secured.ADMIN, str(place / "authority.pem")
        ),
        arguments=["--client", f"@{SECRETS}/client.properties"],
        variables={"SLACKWATER_TLS_CLIENT_AUTHORITY": f"{SECRETS}/authority.pem"},
        prepared=prepared,
        opened=opened,
    )


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
    made = NewTopic(f"{namespace}.made", 1, 1)
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    retention = ConfigResource("TOPIC", victim, incremental_configs=[entry])
    binding = secured.binding(secured.CLIENT, victim)
    return {
        "delete a topic": lambda: each(admin.delete_topics([victim])),
        "change a topic": lambda: each(admin.incremental_alter_configs([retention])),
        "create a topic": lambda: each(admin.create_topics([made])),
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


def check_who_may(environment: Environment, others: Collection[str]) -> None:
    """Nobody is refused for another reason: who may do it, does it by the same request."""
    answers = f"{environment.namespace}.storage.responses"
    with stranger(environment.kafka) as admin:
        for name in others:
            assert admin.look_at_end(name) == DONE
            assert admin.read(name) in {DONE, OUT_OF_RANGE}, "the first record may be gone"
            assert admin.write(name) not in {DONE, *REFUSED}, "an empty batch is none"
    with stranger(client_of(environment)) as client:
        assert client.read(answers) == client.look_at_end(answers) == DONE


def check_that_a_certificate_is_wanted(environment: Environment) -> None:
    """The coordinator has it from its client, and lets nobody in without one."""
    nobody = Client(environment.url, context=trusting(environment.directory), password=PASSWORD)
    with pytest.raises(Determinate, match="expected a certificate of this client"):
        nobody.run("SHOW SOURCES")


def client_of(environment: Environment) -> Mapping[str, Any]:
    authority = str(environment.directory / "authority.pem")
    return environment.kafka | secured.client_settings(secured.CLIENT, authority)


def test_the_least_rights_suffice_and_a_client_has_no_more(trial: Trial) -> None:
    environment, namespace = trial.environment, trial.environment.namespace
    for name in ("replica", "kafka"):
        trial.suffer("kill", name, partial(inflict, "kill", environment.parts[name]))
    named = AdminClient(environment.kafka).list_topics(timeout=WAIT_S).topics
    shared = {f"{namespace}.storage.commands", f"{namespace}.storage.responses"}
    own = {name for name in named if name.startswith(f"{namespace}.")}
    assert len(own - shared) > 8, own
    assert shared <= own
    others = [*sorted(own - shared), TOPIC, OUTPUT]
    check_that_a_certificate_is_wanted(environment)
    settings = client_of(environment)
    write(settings, f"{namespace}.storage.commands")  # this it may
    check_who_may(environment, others)
    with stranger(settings) as client:
        assert went_through(asking(client, namespace, others, others[0])) == {}
    assert went_through(harming(settings, namespace, others[0])) == {}
    trial.end()
    trial.end_services()
