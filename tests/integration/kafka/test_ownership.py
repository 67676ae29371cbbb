"""Of the processes of a group one is the owner, on a real broker."""

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.ids import Topic
from streams.kafka.client import ownership
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.ownership import SESSION_MS, Ownership
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec
from tests.support.processes import eventually

pytestmark = pytest.mark.integration

MEMBER = """
import sys, threading, time
from streams.kafka.client.ownership import Ownership
from streams.kafka.settings import ClientSettings
bootstrap, topic, member = sys.argv[1:]
ownership = Ownership(ClientSettings(bootstrap), topic=topic, group=topic, member=member)
ownership.start()
while not ownership.is_owner:
    time.sleep(0.02)
print(ownership.is_owner, flush=True)
threading.Event().wait()
"""

_names = itertools.count()


class Group:
    """Members of one group, in this process and in others."""

    def __init__(self, bootstrap: str, topic: Topic) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.members: list[Ownership] = []

    def join(self, name: str) -> Ownership:
        settings = ClientSettings(self.bootstrap)
        member = Ownership(settings, topic=self.topic, group=self.topic, member=name)
        self.members.append(member)
        member.start()
        return member

    @contextmanager
    def owner(self, name: str) -> Iterator[None]:
        """Another process that is the owner, until it is killed."""
        command = [sys.executable, "-c", MEMBER, self.bootstrap, self.topic, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"True\n"
                yield
            finally:
                process.kill()


@pytest.fixture
def group(broker: EmbeddedBroker) -> Iterator[Group]:
    topic = Topic(f"owners.{next(_names)}")
    client = KafkaBroker(ClientSettings(broker.bootstrap))
    client.topics.create([TopicSpec(topic, 1, TopicKind.LOG)])
    group = Group(broker.bootstrap, topic)
    yield group
    for member in group.members:
        member.close()
    client.close()


def test_the_owner_stays_until_it_dies_and_then_another_takes_over(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "ADMISSION_S", 0.0)
    with group.owner("first"):
        second = group.join("second")
        time.sleep(2)  # in which it joins: the owner's heartbeats take a second
        eventually(lambda: not second.trouble)
        assert not second.is_owner
    killed = time.monotonic()
    eventually(lambda: second.is_owner)
    assert time.monotonic() - killed > SESSION_MS / 2_000, "it had not joined before"


def test_a_process_that_starts_again_is_the_owner_at_once(group: Group) -> None:
    with group.owner("first"):
        other = group.join("other")
    killed = time.monotonic()
    again = group.join("first")
    eventually(lambda: again.is_owner)
    assert time.monotonic() - killed < SESSION_MS / 1_000
    assert not other.is_owner


def test_of_two_processes_of_one_name_the_newer_is_the_owner(group: Group) -> None:
    older = group.join("first")
    eventually(lambda: older.is_owner)
    newer = group.join("first")
    eventually(lambda: newer.is_owner)
    eventually(lambda: 'another process is named "first"' in older.trouble)
    assert not older.is_owner
    assert newer.trouble == ""
