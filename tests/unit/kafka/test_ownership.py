"""What a member of a group makes of what its client says."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from streams.ids import Topic
from streams.kafka.client import clients, ownership
from streams.kafka.client.ownership import Ownership
from streams.kafka.settings import ClientSettings
from tests.support.processes import eventually

ONE = TopicPartition("commands", 0)


class Client:
    """A consumer that says what a test tells it, at its next poll."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.next: list[Callable[[], Any]] = []
        self.made = 0

    def made_again(self, *_: object) -> "Client":
        self.made += 1
        return self

    def subscribe(self, _: object, **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def poll(self, _: float) -> Any:
        return self.next.pop(0)() if self.next else None

    def assigns(self, *partitions: TopicPartition) -> None:
        self.next.append(lambda: self.callbacks["on_assign"](self, list(partitions)))

    def revokes(self, *partitions: TopicPartition) -> None:
        self.next.append(lambda: self.callbacks["on_revoke"](self, list(partitions)))

    def fails(self, code: int, *, fatal: bool = False) -> None:
        error = KafkaError(code, "reason", fatal=fatal)
        self.next.append(lambda: SimpleNamespace(error=lambda: error))

    def incremental_assign(self, _: object) -> None: ...
    def incremental_unassign(self, _: object) -> None: ...
    def pause(self, _: object) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(clients, "consumer", client.made_again)
    monkeypatch.setattr(ownership, "_RETRY_S", 0.001)
    return client


@pytest.fixture
def member(client: Client) -> Iterator[Ownership]:
    settings = ClientSettings("memory:0")
    member = Ownership(settings, topic=Topic("commands"), group="g", member="r1")
    member.start()
    eventually(lambda: bool(client.callbacks))
    yield member
    member.close()


def test_who_is_assigned_the_partition_is_the_owner(client: Client, member: Ownership) -> None:
    client.assigns()
    eventually(lambda: not client.next and not member.is_owner)
    client.assigns(ONE)
    eventually(lambda: member.is_owner)
    client.assigns()  # as after a rebalance that left it where it was
    client.revokes()
    client.fails(KafkaError._TRANSPORT)
    eventually(lambda: not client.next and member.is_owner)
    client.revokes(ONE)
    eventually(lambda: not member.is_owner)
    assert member.trouble == ""


def test_a_group_that_admits_nobody_is_reported(
    client: Client, member: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the cluster cannot make the topic of groups: clients wait without a word."""
    monkeypatch.setattr(ownership, "ADMISSION_S", 0.0)
    eventually(lambda: "group g: no broker has admitted this member" in member.trouble)
    client.assigns()
    eventually(lambda: member.trouble == "")
    assert not member.is_owner


def test_a_missing_right_is_reported_until_it_is_given(
    client: Client, member: Ownership
) -> None:
    client.fails(KafkaError.GROUP_AUTHORIZATION_FAILED)
    eventually(lambda: "READ on the group" in member.trouble)
    client.assigns(ONE)
    eventually(lambda: member.is_owner)
    assert member.trouble == ""


def test_a_member_that_is_fenced_does_not_come_back(client: Client, member: Ownership) -> None:
    client.assigns(ONE)
    eventually(lambda: member.is_owner)
    client.fails(KafkaError.FENCED_INSTANCE_ID, fatal=True)
    eventually(lambda: not member.is_owner)
    eventually(lambda: 'another process is named "r1"' in member.trouble)
    assert client.made == 1


def test_a_member_outlives_an_internal_error(client: Client, member: Ownership) -> None:
    def defect() -> None:
        raise RuntimeError("a defect of the client")

    client.assigns(ONE)
    eventually(lambda: member.is_owner)
    client.next.append(defect)
    eventually(lambda: client.made > 1 and not member.is_owner)
    client.assigns(ONE)
    eventually(lambda: member.is_owner and member.trouble == "")


def test_a_client_that_is_of_no_more_use_is_made_again(
    client: Client, member: Ownership
) -> None:
    client.fails(KafkaError.UNKNOWN_MEMBER_ID, fatal=True)
    eventually(lambda: client.made > 1)
    client.assigns(ONE)
    eventually(lambda: member.is_owner)
