"""The least rights at a broker suffice for everything, and a client has none of the others'.

The services log in as a user with the rights that streams/docs/OPERATIONS.md lists. A client
that may write commands alone tries what would harm others, and the broker refuses each attempt.
The services themselves want a certificate of each client.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import AdminClient

from streams.app.client import Client
from streams.errors import Determinate
from tests.e2e import secured
from tests.e2e.bank import OUTPUT, TOPIC
from tests.e2e.containers import PASSWORD, PERSON, SECRETS, Environment, trusting
from tests.e2e.plan import Plan
from tests.e2e.trial import Trial, inflict
from tests.support.broker_requests import stranger
from tests.support.broker_rights import (
    ADMIN,
    CLIENT,
    SERVICES_USER,
    asking,
    check_who_may,
    grant,
    harming,
    make_broker_pem,
    rights,
    went_through,
    write,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

WAIT_S = 15


def prepared(authority: trustme.CA, directory: Path) -> None:
    make_broker_pem(authority, directory)
    lines = secured.client_properties(SERVICES_USER)
    (directory / "client.properties").write_text("\n".join(lines))
    person = authority.issue_cert("person@example.com")
    person.private_key_and_cert_chain_pem.write_to_path(str(directory / PERSON))


def opened(environment: Environment) -> None:
    admin = AdminClient(environment.kafka)
    for user, given in rights(environment.namespace, TOPIC, OUTPUT).items():
        grant(admin, user, given)


@pytest.fixture
def plan() -> Plan:
    return Plan(
        broker=secured.broker_variables(),
        client=lambda place: secured.client_settings(ADMIN, str(place / "authority.pem")),
        arguments=["--client", f"@{SECRETS}/client.properties"],
        variables={"SLACKWATER_TLS_CLIENT_AUTHORITY": f"{SECRETS}/authority.pem"},
        prepared=prepared,
        opened=opened,
    )


def check_that_a_certificate_is_wanted(environment: Environment) -> None:
    """The coordinator has it from its client, and lets nobody in without one."""
    nobody = Client(environment.url, context=trusting(environment.directory), password=PASSWORD)
    with pytest.raises(Determinate, match="expected a certificate of this client"):
        nobody.run("SHOW SOURCES")


def client_of(environment: Environment) -> Mapping[str, Any]:
    authority = str(environment.directory / "authority.pem")
    return environment.kafka | secured.client_settings(CLIENT, authority)


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
    check_who_may(environment.kafka, settings, namespace, others)
    with stranger(settings) as client:
        assert went_through(asking(client, namespace, others, others[0])) == {}
    assert went_through(harming(settings, namespace, others[0])) == {}
    trial.end()
    trial.end_services()
