"""Topics of a real cluster: created in one request; existing ones are verified."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it re-exports without saying so
    AdminClient,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)

from streams.errors import Determinate, Indeterminate, SlackwaterError
from streams.ids import Offset, Topic
from streams.kafka.client import offsets
from streams.kafka.client.clients import ANSWER_TIMEOUT_S
from streams.kafka.client.error_mapping import GONE, admin_fault, cause_of, read_fault
from streams.kafka.client.reconnecting_client import ReconnectingClient
from streams.kafka.log import Unanswered
from streams.kafka.topic_settings import DEFAULTS, TopicChoices
from streams.kafka.topics import (
    EXCHANGED,
    SINGLE_BROKER,
    Durability,
    Found,
    OffsetRange,
    TopicInfo,
    TopicKind,
    TopicSpec,
    differences,
    exchange_problems,
    refuse,
    settings_of,
)

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_EVERY_S = 0.02
_LOOK_AGAIN_S = 2.0
_TRIES_S = (5.0, 10.0, 15.0)
"""How long each try to describe topics waits; together as long as any other request."""
_REQUEST = {"operation_timeout": ANSWER_TIMEOUT_S, "request_timeout": ANSWER_TIMEOUT_S}


def _renewing(call: Callable[P, T]) -> Callable[P, T]:
    """A call of `KafkaTopics`: after a request without an answer the client is replaced."""

    @wraps(call)
    def renewing(*args: P.args, **kwargs: P.kwargs) -> T:
        topics = args[0]
        assert isinstance(topics, KafkaTopics)
        try:
            return call(*args, **kwargs)
        except SlackwaterError as error:
            topics.admins.failed(error)
            raise

    return renewing


class KafkaTopics:
    """Topics behind one admin client at a time.

    The default durability is three replicas with two in sync; on a single broker it is one
    replica, which is logged.
    """

    def __init__(
        self, admins: ReconnectingClient[AdminClient], choices: TopicChoices = DEFAULTS
    ) -> None:
        self.admins = admins
        self._durability = choices.durability
        self._chosen = choices.settings
        self._lock = threading.Lock()  # one topic change at a time

    @property
    def _admin(self) -> AdminClient:
        return self.admins.get()

    @_renewing
    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create missing topics, verify the others, wait until all can be used."""
        if not specs:
            return
        with self._lock:
            durability = self._settle_durability()
            there = self._leaders([spec.name for spec in specs])
            missing = [spec for spec in specs if spec.name not in there]
            raced = self._make(missing, durability)
            old = [spec for spec in specs if spec.name in there or spec.name in raced]
            self._verify(old, durability)
            self._await({spec.name for spec in specs})
            self._verify_exchange(specs)

    @_renewing
    def grow(self, topic: Topic, partitions: int) -> None:
        """Add missing partitions and wait until they are visible; others may do so too."""
        with self._lock:
            info = self.describe(topic)
            if info is None:
                raise Determinate(f"topic {topic} does not exist")
            if info.partitions >= partitions:
                return
            wanted = [NewPartitions(topic, partitions)]
            for answer in self._admin.create_partitions(wanted, **_REQUEST).values():
                try:
                    self._answer(answer)
                except KafkaException as error:
                    # INVALID_PARTITIONS: another client was faster
                    if cause_of(error).code() != KafkaError.INVALID_PARTITIONS:
                        raise admin_fault(f"grow topic {topic}", error) from error
            self._await_partitions(topic, partitions)

    @_renewing
    def delete(self, topics: Sequence[Topic]) -> None:
        """Delete and wait until the names are free."""
        if not topics:
            return
        with self._lock:
            answers = self._admin.delete_topics(list(topics), **_REQUEST)
            for topic, answer in answers.items():
                try:
                    self._answer(answer)
                except KafkaException as error:
                    if cause_of(error).code() not in GONE:
                        raise admin_fault(f"delete topic {topic}", error) from error
            deadline = time.monotonic() + ANSWER_TIMEOUT_S
            while self._leaders(topics):
                _pause(deadline, "delete topics")

    def describe(self, topic: Topic) -> TopicInfo | None:
        """Return the id and partitions of a topic; None if it does not exist."""
        return self.describe_all([topic]).get(topic)

    @_renewing
    def describe_all(self, topics: Sequence[Topic]) -> Mapping[Topic, TopicInfo]:
        """Return the ids and partitions of the topics that exist.

        Appends wait for this, and a broker that dies with its machine answers nothing: so it is
        asked for with a new client soon, and then with more patience.
        """
        for answer_s in _TRIES_S[:-1] if topics else ():
            try:
                return self._infos(topics, answer_s)
            except Unanswered as error:
                self.admins.failed(error)
        return self._infos(topics, _TRIES_S[-1]) if topics else {}

    def _infos(self, topics: Sequence[Topic], answer_s: float) -> Mapping[Topic, TopicInfo]:
        infos: dict[Topic, TopicInfo] = {}
        for name, answer in self._described(topics, answer_s).items():
            try:
                description = self._answer(answer)
            except KafkaException as error:
                if cause_of(error).code() in GONE:
                    continue
                raise read_fault(f"describe topic {name}", error) from error
            infos[Topic(name)] = TopicInfo(
                str(description.topic_id), len(description.partitions)
            )
        return infos

    @_renewing
    def names(self) -> frozenset[Topic]:
        """Return the names of all topics but Kafka's internal ones."""
        topics = self._metadata().topics
        return frozenset(Topic(name) for name in topics if not name.startswith("__"))

    @_renewing
    def ends(self, topic: Topic) -> Mapping[int, OffsetRange]:
        """Return the readable range of each partition."""
        return offsets.ends(self._admin, topic)

    @_renewing
    def at_time(self, topic: Topic, ms: int) -> Mapping[int, Offset]:
        """Return the offset of the first record of each partition at `ms` or later."""
        return offsets.at_time(self._admin, topic, ms)

    def _leaders(self, topics: Collection[Topic]) -> Mapping[Topic, bool]:
        """Return the existing topics, and whether all their partitions have a leader.

        They are requested by name, so other topics of the cluster cost nothing.
        """
        has_leaders: dict[Topic, bool] = {}
        for name, answer in self._described(topics).items():
            try:
                partitions = self._answer(answer).partitions
                has_leaders[Topic(name)] = all(
                    partition.leader is not None for partition in partitions
                )
            except KafkaException as error:
                code = cause_of(error).code()
                if code == KafkaError.LEADER_NOT_AVAILABLE:
                    has_leaders[Topic(name)] = False
                elif code not in GONE | {KafkaError.TOPIC_EXCEPTION}:
                    # no topic can have this name
                    raise read_fault(f"describe topic {name}", error) from error
        return has_leaders

    def _answer(self, answer: "Future[T]") -> T:
        """Wait for an answer; meanwhile have the client look for a controller again.

        It looks once a request, and a broker that was away for long, which is not in charge
        again yet, says that there is none. Errors: KafkaException.
        """
        while True:
            try:
                return answer.result(_LOOK_AGAIN_S)
            except TimeoutError:
                with suppress(KafkaException):
                    self._admin.describe_cluster(request_timeout=_LOOK_AGAIN_S).result()

    def _described(
        self, topics: Collection[Topic], answer_s: float = ANSWER_TIMEOUT_S
    ) -> Mapping[str, "Future[TopicDescription]"]:
        return self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=answer_s
        )

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise read_fault("list topics", error) from error

    def _settle_durability(self) -> Durability:
        if self._durability is None:
            single = self._count_brokers() == 1
            self._durability = SINGLE_BROKER if single else Durability()
            if single:
                log.info("single broker: records survive kills, but not loss of power or disk")
        return self._durability

    def _count_brokers(self) -> int:
        """Count the brokers, without a request for topics."""
        try:
            answer = self._admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S)
            return len(self._answer(answer).nodes)
        except KafkaException as error:
            raise read_fault("describe the cluster", error) from error

    def _make(self, specs: Sequence[TopicSpec], durability: Durability) -> frozenset[Topic]:
        """Create topics; return those that another client created in the meantime."""
        if not specs:
            return frozenset()
        chosen = self._chosen
        wanted = [_new_topic(spec, durability, chosen.get(spec.kind, {})) for spec in specs]
        raced = set()
        for name, answer in self._admin.create_topics(wanted, **_REQUEST).items():
            try:
                self._answer(answer)
            except KafkaException as error:
                if cause_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise admin_fault(f"create topic {name}", error) from error
                raced.add(Topic(name))
        return frozenset(raced)

    def _verify(self, specs: Sequence[TopicSpec], durability: Durability) -> None:
        ours = [spec for spec in specs if spec.kind is not TopicKind.RAW]
        if not ours:
            return
        described = self.found([spec.name for spec in ours])
        refuse(
            {spec.name: differences(spec, durability, described[spec.name]) for spec in ours}
        )

    def _verify_exchange(self, specs: Sequence[TopicSpec]) -> None:
        """Verify that the settings of commands and responses fit each other."""
        pair = {spec.kind: spec.name for spec in specs if spec.kind in EXCHANGED}
        if pair.keys() != EXCHANGED:
            return
        described = self.found(list(pair.values()))
        wrong = exchange_problems({kind: described[name] for kind, name in pair.items()})
        refuse({pair[kind]: [problem] for kind, problem in wrong.items()})

    @_renewing
    def found(self, names: Sequence[Topic]) -> dict[Topic, Found]:
        """Return partitions, copies and settings of topics that exist. Errors: Determinate."""
        settings, answers = self._settings(names), self._described(names)
        described = {}
        for name in names:
            try:
                partitions = self._answer(answers[name]).partitions
            except KafkaException as error:
                raise read_fault(f"describe topic {name}", error) from error
            copies = min((len(partition.replicas) for partition in partitions), default=0)
            in_sync = min((len(partition.isr) for partition in partitions), default=0)
            described[name] = Found(len(partitions), copies, settings[name], in_sync)
        return described

    def _settings(self, topics: Iterable[Topic]) -> Mapping[str, Mapping[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        answers: Mapping[ConfigResource, Future[Mapping[str, ConfigEntry]]]
        answers = self._admin.describe_configs(resources, request_timeout=ANSWER_TIMEOUT_S)
        try:
            return {
                resource.name: {
                    name: entry.value for name, entry in self._answer(answer).items()
                }
                for resource, answer in answers.items()
            }
        except KafkaException as error:
            raise read_fault("describe topics", error) from error

    def _await(self, names: set[Topic]) -> None:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            ready = self._leaders(names)
            if all(ready.get(name, False) for name in names):
                return
            _pause(deadline, "create topics")

    def _await_partitions(self, topic: Topic, partitions: int) -> None:
        """Wait until the brokers know the partitions: the controller answers earlier."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while (info := self.describe(topic)) is not None and info.partitions < partitions:
            _pause(deadline, f"grow topic {topic}")


def _new_topic(spec: TopicSpec, durability: Durability, chosen: Mapping[str, str]) -> NewTopic:
    return NewTopic(
        spec.name,
        num_partitions=spec.partitions,
        replication_factor=durability.replication,
        config=settings_of(spec.kind, durability, chosen),
    )


def _pause(deadline: float, doing: str) -> None:
    if time.monotonic() > deadline:
        raise Indeterminate(f"{doing}: not done within {ANSWER_TIMEOUT_S} s")
    time.sleep(_LOOK_EVERY_S)
