"""The parties to a run: an environment, an honest client in it, and an attacker's means."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas import codec
from streams.app.client import Message
from streams.app.environment import Environment, Settings
from streams.errors import Corrupt, Determinate, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.bulk_producer import Publisher
from streams.kafka.client.raw import RawReader
from streams.kafka.topics import TopicKind, TopicSpec
from streams.storage import Storage
from streams.torture.hostile.attacker_knowledge import (
    DESCRIPTION,
    TOPICS,
    AttackerKnowledge,
    Victim,
)
from streams.torture.hostile.command_client import CommandClient, Fields
from streams.torture.hostile.fair_clock import FairClock
from streams.torture.hostile.honest_clients import (
    COLLECTION,
    SOURCE,
    TOPIC,
    VIEW,
    HonestView,
    HonestWriter,
)
from streams.torture.hostile.senders import Senders
from streams.torture.hostile.sessions import Session, definitions, reads
from streams.torture.hostile.statements import STANDING
from streams.torture.hostile.subscription_check import SubscriptionState, follows, reached

VICTIMS = 3
SPOILED = 2
PATIENCE_S = 20.0
START_S = 180.0
COMPACT_EVERY_S = 2.0
MOST_SAMPLES = 200
MOST_STATES = 10
NEWEST = 50
SESSIONS = 3
LOOK_EVERY_S = 0.1


@dataclass(slots=True)
class HostileScene:
    """The parties of a run; `recruited` counts the attacker's collections."""

    environment: Environment
    senders: Senders
    requester: CommandClient
    records: RawReader
    writer: HonestWriter
    view: HonestView
    known: AttackerKnowledge
    clock: FairClock
    sessions: tuple[Session, ...] = ()
    followed: SubscriptionState = field(default_factory=SubscriptionState)
    recruited: int = 0
    refused: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    def prepare(self) -> None:
        """Make the attacker's objects, and wait until the honest view is maintained.

        Errors: Determinate when it is not in time.
        """
        self.requester.heard = self._hear
        self.tidy()
        self.known.victims += [self._recruit() for _ in range(VICTIMS)]
        self.known.spoiled += [self._recruit() for _ in range(SPOILED)]
        self.harvest()
        self.view.publish()
        problem = replace(self.view, patience_s=START_S).check()
        if problem:
            raise Determinate(f"before the first round: {problem}")
        for session, (name, turns) in zip(self.sessions, self._turns().items(), strict=True):
            session.begin(name, turns)

    def _turns(self) -> Mapping[str, Callable[[Session], Iterator[None]]]:
        """The results of the honest sessions."""
        return {
            "definitions": lambda session: definitions(session, TOPIC),
            "reads": lambda session: reads(session, VIEW, SOURCE),
            "subscription": lambda session: follows(session, VIEW, self.followed),
        }

    def told(self) -> str:
        """Wait until the subscription has delivered what the view has; return the problem."""
        return reached(self.sessions[-1], self.followed, self.view.published, self.view.as_of)

    def squatted(self) -> str:
        """The reserved names that a client was given; empty where there are none."""
        squats = self.known.squats
        return f"reserved, and given to a client: {', '.join(sorted(squats))}" if squats else ""

    def replace(self) -> None:
        """Fresh collections instead of the oldest and of spent ones.

        Errors: Determinate when they are not made in time.
        """
        self.known.spoiled = [*self.known.spoiled[1:], self._recruit()]
        usable = [victim for victim in self.known.victims[1:] if not victim.is_spent]
        fresh = [self._recruit() for _ in range(VICTIMS - len(usable))]
        self.known.victims = [*usable, *fresh]

    def _hear(self, response: Fields) -> None:
        """Record all responses of services, including those to unknown clients."""
        error = response["error"]
        code = f" {error['code']}" if isinstance(error, dict) else ""
        self.answers[f"{response['status']}{code}"] += 1
        self.known.heard(response)

    def _recruit(self) -> Victim:
        """One more collection of the attacker's. Errors: Determinate."""
        self.recruited += 1
        id_ = f"victim{self.recruited}"
        read, write = self.requester.done(
            "create", PATIENCE_S, collection=id_, description=DESCRIPTION
        )
        topic = self.known.topic(id_, "log")
        first = self.records.fetch(topic, 0, *self.records.ends(topic)[0], 1)
        _, record = codec.decode(first.column("value")[0].as_py())
        victim = Victim(id_, record["group"], read, write)
        self.known.commands += commands_of(victim)
        del self.known.commands[:-MOST_SAMPLES]
        return victim

    def harvest(self) -> None:
        """Take real records as samples."""
        logs = [victim.collection for victim in self.known.victims] + [self.known.others[-1]]
        for log in logs:
            self.known.events += self._some(self.known.topic(log, "log"))
        del self.known.events[:-MOST_SAMPLES]
        chunks = self._some(self.known.topic(COLLECTION, "data"))
        self.known.states += [record for record in chunks if is_state(record)]
        del self.known.states[:-MOST_STATES]
        self.known.compute = self._some(self.known.topic("compute", "default", "commands"))

    def _some(self, topic: Topic) -> list[bytes]:
        """The newest messages of a log that our schemas know."""
        try:
            low, high = self.records.ends(topic)[0]
            start = Offset(max(low, high - NEWEST))
            records = self.records.fetch(topic, 0, start, high)
        except SlackwaterError:
            return []
        return [value for value in records.column("value").to_pylist() if _is_ours(value)]

    def tidy(self) -> None:
        """Drop what hostile statements made, and make again what they dropped.

        Errors: Determinate when the coordinator does not answer.
        """
        standing = {name for name, _ in STANDING}
        objects = self._objects()
        there = {str(object_["name"]): str(object_["kind"]) for object_ in objects}
        for name, kind in reversed(there.items()):
            if name.startswith("hostile") and name not in standing:
                self._try(f'DROP {kind} "{name}"')
        for name, text in STANDING:
            if name not in there:
                self._try(text)

    def _objects(self) -> Sequence[Message]:
        """The objects there are. Errors: Determinate when there is no answer in time."""
        deadline = self.clock.now_s() + PATIENCE_S
        while True:
            try:
                return self.environment.client.objects()
            except Determinate:
                if self.clock.now_s() > deadline:
                    raise
                time.sleep(LOOK_EVERY_S)

    def _try(self, text: str) -> None:
        try:
            self.environment.sql(text)
        except SlackwaterError:
            self.refused += 1


@contextmanager
def scene(environment: Environment, name: str) -> Iterator[HostileScene]:
    """A scene in a running environment. Errors: Determinate, InvalidStatement."""
    kafka, namespace = environment.kafka, environment.settings.namespace
    with ExitStack() as stack:
        broker = KafkaBroker(kafka)
        stack.callback(broker.close)
        topics = [TopicSpec(topic, 1, TopicKind.RAW) for topic in (TOPIC, *TOPICS)]
        broker.topics.create(topics)
        clock = FairClock()
        clock.start()
        stack.callback(clock.close)
        senders = Senders(kafka, environment.client.url, name)
        requester = CommandClient.open(broker, senders.plain, namespace, clock.now_s)
        stack.callback(requester.close)
        storage = stack.enter_context(Storage.kafka(kafka.bootstrap, namespace=namespace))
        records = RawReader(kafka)
        stack.callback(records.close)
        writer = HonestWriter(requester, storage, PATIENCE_S)
        view = HonestView(environment.client, Publisher(kafka), PATIENCE_S, clock.now_s)
        writer.create()
        knowledge = AttackerKnowledge(namespace, (COLLECTION, *view.create()))
        sessions = tuple(
            Session(environment.client, PATIENCE_S, clock.now_s, lambda: view.published)
            for _ in range(SESSIONS)
        )
        for session in sessions:
            stack.callback(session.close)
        scene_ = HostileScene(
            environment, senders, requester, records, writer, view, knowledge, clock, sessions
        )
        scene_.prepare()
        yield scene_


def commands_of(victim: Victim) -> list[bytes]:
    """A real command of every kind, as the holder of the victim's capabilities may send it."""
    share: dict[str, object] = {
        "capability": victim.write,
        "updates": None,
        "chunks": [],
        "new_frontier": 5,
    }
    commands: list[tuple[str, dict[str, object]]] = [
        ("create", {"collection": victim.collection, "description": DESCRIPTION}),
        ("update_and_downgrade", {"writes": [share]}),
        ("acquire_capabilities", {"collection": victim.collection}),
        ("subscribe_at", {"capability": victim.read}),
        ("clone", {"capability": victim.write}),
        ("transfer", {"capability": victim.read}),
        ("downgrade", {"capability": victim.read, "new_frontier": 3}),
        ("heartbeat", {"capability": victim.write}),
        ("stage", {"capability": victim.write, "stage": "load", "chunks": []}),
        ("drop", {"collection": victim.collection, "capability": victim.read}),
    ]
    return [
        codec.encode(f"command_{name}", {"id": f"{victim.collection}-{name}", **fields})
        for name, fields in commands
    ]


def is_state(message: bytes) -> bool:
    """Whether a message is the body of a Rollup."""
    return codec.decode(message)[0] == "shard_state"


def _is_ours(value: bytes | None) -> bool:
    """Whether a schema of ours reads it."""
    try:
        codec.decode(value or b"")
    except Corrupt:
        return False
    except Exception:  # noqa: BLE001  hostile bytes of our own making
        return False
    return True


def settings(directory: Path) -> Settings:
    """An environment that compacts all the time."""
    return Settings(directory=directory, compact_every_s=COMPACT_EVERY_S)
