"""An environment on a broker that wants TLS, a password and rights, each no more than needed.

The services log in as a user with the rights that streams/docs/OPERATIONS.md lists. A client
with fewer uses them, and is refused everything else by the broker; what it may send and is
wrong, it is refused by the service.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams.app.environment import Environment, Settings
from streams.app.environment_access import reachable
from streams.errors import Determinate
from streams.ids import Topic
from streams.kafka.client import admin, inspection
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.ownership import Ownership
from streams.kafka.client.raw_producer import ForeignProducer
from streams.kafka.embedded import BrokerSecurity, EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.torture.hostile.attacker_knowledge import DESCRIPTION, RESERVED
from streams.torture.hostile.command_client import CommandClient
from tests.integration.adapter.support import eventually
from tests.support.broker_requests import stranger
from tests.support.broker_rights import (
    ADMIN,
    CLIENT,
    SERVICES_USER,
    USERS,
    WAIT_S,
    asking,
    check_who_may,
    grant,
    harming,
    make_broker_pem,
    rights,
    went_through,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NAMESPACE, SOURCE, OUTPUT = "shop", "secured.orders", "secured.revenue"
OTHER = "other.pem"
VIEW = f"""
CREATE SOURCE orders FROM KAFKA (TOPIC '{SOURCE}') (country VARCHAR, price BIGINT)
  FORMAT JSON ENVELOPE NONE;
CREATE MATERIALIZED VIEW revenue AS SELECT country, sum(price) AS total FROM orders
  GROUP BY country;
CREATE SINK revenue_out FROM revenue INTO KAFKA (TOPIC '{OUTPUT}') KEY (country)
"""


@dataclass(frozen=True)
class Secured:
    """A broker, and who may connect to it."""

    bootstrap: str
    security: BrokerSecurity

    def settings(self, user: str) -> Mapping[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.security.client(user)}

    def client(self, user: str, **others: str) -> ClientSettings:
        extra = {**self.security.client(user), **others}
        return ClientSettings(self.bootstrap, tuple(sorted(extra.items())))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place, authority = tmp_path_factory.mktemp("secured"), trustme.CA()
    make_broker_pem(authority, place)
    authority.cert_pem.write_to_path(str(place / "authority.pem"))
    security = BrokerSecurity(
        certificate=place / "broker.pem",
        authority=place / "authority.pem",
        users={user: uuid.uuid4().hex for user in USERS},
        administrator=ADMIN,
    )
    with EmbeddedBroker(place / "kafka", security=security) as broker:
        place_ = Secured(broker.bootstrap, security)
        client = AdminClient(dict(place_.settings(ADMIN)))
        for user, given in rights(NAMESPACE, SOURCE, OUTPUT).items():
            grant(client, user, given)
        for answer in client.create_topics([NewTopic(SOURCE, 2, 1)]).values():
            answer.result(30)
        yield place_


@pytest.fixture(scope="module")
def environment(
    secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    settings = Settings(
        directory=tmp_path_factory.mktemp("environment"),
        brokers=secured.bootstrap,
        client=secured.security.client(SERVICES_USER),
        namespace=NAMESPACE,
        compact_every_s=3.0,
    )
    started = Environment(settings).start()
    yield started
    started.stop()


def topics(secured: Secured) -> set[str]:
    return set(AdminClient(dict(secured.settings(ADMIN))).list_topics(timeout=30).topics)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sasl.password": "another"}, "Authentication failed"),
        ({"security.protocol": "PLAINTEXT"}, "security.protocol"),
        ({"ssl.ca.location": OTHER}, "certificate verify failed"),
    ],
    ids=["password", "no TLS", "another authority"],
)
def test_who_is_not_let_in_is_told_why(
    secured: Secured,
    wrong: Mapping[str, str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if OTHER in wrong.values():
        trustme.CA().cert_pem.write_to_path(str(tmp_path / OTHER))
        wrong = {"ssl.ca.location": str(tmp_path / OTHER)}
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(inspection, "REQUEST_S", 3.0)
    with pytest.raises(Determinate, match="no broker answers at") as refused:
        reachable(secured.client(SERVICES_USER, **wrong))
    assert reason in str(refused.value)
    assert secured.security.users[SERVICES_USER] not in str(refused.value)


def test_who_is_let_in_sees_what_it_may_read(secured: Secured) -> None:
    broker = KafkaBroker(secured.client(SERVICES_USER))
    assert broker.topics.names() == {SOURCE}
    broker.close()


def test_the_least_rights_suffice_and_a_client_has_no_more(
    secured: Secured, environment: Environment
) -> None:
    environment.sql(VIEW)
    producer = ForeignProducer(secured.client(ADMIN))
    for number in range(10):
        producer.send(Topic(SOURCE), b'{"country":"no","price":%d}' % number)

    def totals() -> list[tuple[str, str]]:
        rows = environment.sql("SELECT country, total FROM revenue")[0].rows
        return [(str(country), str(total)) for country, total in rows]

    eventually(lambda: totals() == [("no", "45")])
    environment.kill("replica")
    producer.send(Topic(SOURCE), b'{"country":"no","price":5}')
    eventually(lambda: totals() == [("no", "50")])
    eventually(lambda: OUTPUT in topics(secured))

    own = {name for name in topics(secured) if name.startswith(f"{NAMESPACE}.")}
    commands = f"{NAMESPACE}.storage.commands"
    shared = {commands, f"{NAMESPACE}.storage.responses"}
    assert shared <= own
    others = [*sorted(own - shared), SOURCE, OUTPUT]
    assert len(others) > 8, others
    write(secured.settings(CLIENT), commands)  # this it may
    check_who_may(secured.settings(ADMIN), secured.settings(CLIENT), NAMESPACE, others)
    with stranger(secured.settings(CLIENT)) as client:
        assert went_through(asking(client, NAMESPACE, others, others[0])) == {}
    assert went_through(harming(secured.settings(CLIENT), NAMESPACE, others[0])) == {}


def test_a_client_writes_commands_and_harms_nobody_by_them(
    secured: Secured, environment: Environment
) -> None:
    """With the rights of a client of the command topics alone."""
    eventually(environment.client.is_ready)
    broker = KafkaBroker(secured.client(CLIENT))
    producer = ForeignProducer(secured.client(CLIENT))
    client = CommandClient.open(broker, producer, NAMESPACE, time.monotonic)

    def refused(name: str, **fields: object) -> str:
        outcome = client.outcome(client.send(name, **fields), WAIT_S)
        assert outcome["status"] in {"REFUSED", "LOST"}, outcome
        error = outcome["error"]
        return str(error["code"]) if isinstance(error, dict) else str(outcome["status"])

    read, writing = client.done("create", WAIT_S, collection="mine", description=DESCRIPTION)
    for name in RESERVED:
        assert refused("create", collection=name, description=DESCRIPTION) in {
            "InvalidUsage",
            "AlreadyBound",
        }
        refused("create", collection=f"in-{name}", group=name, description=DESCRIPTION)
    views = [
        str(row["id"])
        for kind in ("SOURCES", "MATERIALIZED VIEWS")
        for row in environment.sql(f"SHOW {kind}")[0].dicts()
    ]
    assert len(views) == 2
    for id_ in views:
        (reading,) = client.done("acquire_capabilities", WAIT_S, collection=id_)[:1]
        assert refused("drop", collection=id_, capability=reading, whole=True)
        forged = {**writing, "collection": id_, "name": f"{id_}.write"}
        share: dict[str, object] = {
            "capability": forged,
            "updates": None,
            "chunks": [],
            "new_frontier": 1 << 60,
        }
        assert refused("update_and_downgrade", writes=[share])
        assert refused("heartbeat", capability=forged)
        assert refused("drop", collection=id_, capability={**reading, "name": f"{id_}.log"})
    client.done("downgrade", WAIT_S, capability=read, new_frontier=0)
    client.close()
    broker.close()
    assert [*environment.sql("SELECT country FROM revenue")[0].rows] == [("no",)]


@pytest.mark.usefixtures("environment")
def test_who_has_no_right_to_a_group_says_what_to_grant(secured: Secured) -> None:
    member = Ownership(
        secured.client(CLIENT),
        topic=Topic(f"{NAMESPACE}.storage.responses"),
        group="of.others",
        member="r1",
    )
    member.start()
    try:
        eventually(lambda: bool(member.trouble), WAIT_S)
    finally:
        member.close()
    assert member.trouble == "group of.others: grant this client's user READ on the group"
    assert not member.is_owner
