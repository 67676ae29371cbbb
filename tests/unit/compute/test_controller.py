import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from streams.compute import history
from streams.compute.controller import (
    Controller,
    command_topic,
    create_topics,
    response_topic,
)
from streams.compute.iteration_starts import last_start
from streams.compute.protocol import (
    AllowCompaction,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Frontiers,
)
from streams.compute.reader import CommandReader, UnreadableCommand
from streams.compute.session import Compact, Drop, Restart, Session
from streams.compute.writer import ATTEMPTS, ResponseWriter
from streams.errors import Determinate, Indeterminate
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.client.transactions import OutRecord
from streams.kafka.log import Logs
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.memory.records import MemoryTransactions
from streams.progress import EMPTY, frontier
from tests.unit.compute.commands import INGESTION, description

U1, U2 = CollectionId("u1"), CollectionId("u2")


@pytest.fixture
def logs() -> Logs:
    broker = MemoryBroker(lambda: 1000)
    create_topics(broker.topics, "sw", "default")
    return broker.logs


def controller(
    logs: Logs, epoch: int = 1, clock: Callable[[], float] = lambda: 0.0
) -> Controller:
    numbers = itertools.count()
    settings = CreateInstance("sw", 2)
    return Controller(
        logs, settings, "default", epoch, lambda: f"n{epoch}.{next(numbers)}", clock
    )


class Replica:
    """A session over the topics, which answers as it must."""

    def __init__(self, logs: Logs) -> None:
        self.reader = CommandReader(logs, command_topic("sw", "default"))
        self.writer = ResponseWriter(logs, response_topic("sw", "default"), "r")
        self.session = Session()

    def run(self) -> list[object]:
        done: list[object] = []
        while messages := self.reader.poll(0):
            for message in messages:
                assert not isinstance(message.command, UnreadableCommand)
                self.session, actions = self.session.step(message.command)
                done.extend(actions)
                if done and isinstance(done[-1], Restart):
                    return done  # as a process does that ends
        for action in done:
            if isinstance(action, Drop) and not action.silent:
                final = Frontiers(action.export, EMPTY, EMPTY)
                self.writer.write(self.session.nonce, [final])
        return done


def test_a_replica_runs_what_the_controller_says(logs) -> None:
    one = controller(logs)
    one.start([description(U1)], [])
    one.create(description(U2))
    replica = Replica(logs)
    replica.run()
    assert set(replica.session.running) == {U1, U2}
    one.drop(U1)
    replica.run()
    assert set(replica.session.running) == {U2}
    assert one.poll(0)
    assert one.observed.dropped == {U1}


def test_a_new_controller_keeps_what_runs(logs) -> None:
    controller(logs).start([description(U1), description(U2)], [])
    replica = Replica(logs)
    replica.run()
    two = controller(logs, epoch=2)
    two.start([description(U2)], [U1])
    actions = replica.run()
    assert not [action for action in actions if type(action).__name__ == "Create"]
    assert set(replica.session.running) == {U2}
    two.poll(0)
    assert two.observed.dropped == {U1}


def test_an_instance_has_new_settings_in_a_new_iteration(logs) -> None:
    one = controller(logs)
    one.start([description(U1)], [])
    replica = Replica(logs)
    replica.run()
    one.resettle(CreateInstance("sw", 2))
    assert replica.run() == [], "it has them already"
    one.resettle(CreateInstance("sw", 8))
    (restart,) = replica.run()
    assert isinstance(restart, Restart)
    late = Replica(logs)
    late.run()
    assert late.session.instance == CreateInstance("sw", 8)
    assert set(late.session.running) == {U1}


def test_a_long_history_is_reduced_and_its_past_deleted(logs) -> None:
    one = controller(logs)
    one.start([description(U1)], [])
    replica = Replica(logs)
    for number in range(100):
        one.create(description(f"u{number + 10}"))
        one.drop(CollectionId(f"u{number + 10}"))
        replica.run()
        one.poll(0)
    low, end = logs.bounds(command_topic("sw", "default"))
    assert end > 300
    assert end - low < 150
    replica.run()
    assert set(replica.session.running) == {U1}
    late = Replica(logs)
    late.run()
    assert late.session == replica.session


def test_an_unconfirmed_drop_outlives_the_reduction(logs) -> None:
    one = controller(logs)
    one.start([description(U1)], [])
    replica = Replica(logs)
    replica.run()
    one.drop(U1)
    for number in range(40):
        one.create(description(f"u{number + 10}"))
    replica.run()
    while one.poll(0):
        pass
    assert U1 in one.observed.dropped


def test_the_history_before_the_last_iteration_but_one_is_deleted(logs) -> None:
    topic = command_topic("sw", "default")
    for epoch in (1, 2, 3):
        controller(logs, epoch).start([description(U1)], [])
    low, _ = logs.bounds(topic)
    assert low == 6  # the first of three iterations with five commands after their CreateTimely
    commands = [message.command for message in CommandReader(logs, topic).poll(0)]
    assert commands[0] == CreateTimely("n3.0", 3)
    assert CreateDataflow(description(U1)) in commands


def test_noise_on_both_topics_ends_no_controller(logs) -> None:
    logs.append([(command_topic("sw", "default"), b"noise")])
    logs.append([(response_topic("sw", "default"), b"noise")])
    one = controller(logs)
    one.start([description(U1)], [])
    Replica(logs).run()
    logs.append([(response_topic("sw", "default"), b"noise")])
    ResponseWriter(logs, response_topic("sw", "default"), "s").write(
        "n1.0", [Frontiers(U1, frontier(5))]
    )
    assert one.poll(0)
    assert one.observed.conditions[U1].write == frontier(5)
    controller(logs, 2).start([], [])


def test_responses_that_were_heard_are_deleted_in_time(logs, monkeypatch) -> None:
    monkeypatch.setattr("streams.compute.controller.HEARD", 10)
    one = controller(logs)
    one.start([description(U1)], [])
    replica = Replica(logs)
    replica.run()
    for number in range(25):
        replica.writer.write(replica.session.nonce, [Frontiers(U1, frontier(number))])
        one.poll(0)
    low, end = logs.bounds(response_topic("sw", "default"))
    assert (low, end) == (20, 25)
    assert one.observed.conditions[U1].write == frontier(24)


class Doubtful:
    """Logs that take a number of appends and do not say so, or do not take them."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.left, self.is_taken = 0, True

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        if self.left:
            self.left -= 1
            if self.is_taken:
                self.logs.append(records)
            raise Indeterminate("no answer")
        return self.logs.append(records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logs, name)


@pytest.mark.parametrize("is_taken", [True, False])
def test_settings_that_came_while_an_answer_was_missing_can_be_taken_back(
    logs: Logs, is_taken: bool
) -> None:
    doubtful = Doubtful(logs)
    one = controller(doubtful)
    one.start([description(U1)], [])
    doubtful.left, doubtful.is_taken = ATTEMPTS, is_taken
    with pytest.raises(Indeterminate):
        one.resettle(CreateInstance("sw", 8))
    one.resettle(CreateInstance("sw", 2))
    one.create(description(U2))
    replica = Replica(logs)
    replica.run()
    assert replica.session.instance == CreateInstance("sw", 2)
    assert set(replica.session.running) == {U1, U2}


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_command_in_doubt_swallows_no_later_one(
    logs: Logs, is_taken: bool, rounds: int
) -> None:
    """The next one used to take the same number, and replicas passed it over as a copy."""
    doubtful = Doubtful(logs)
    one = controller(doubtful)
    one.start([description(U1)], [])
    replica = Replica(logs)
    replica.run()
    doubtful.left, doubtful.is_taken = ATTEMPTS * rounds, is_taken
    for _ in range(rounds):
        with pytest.raises(Indeterminate):
            one.create(description(U2))
    one.drop(U1)
    replica.run()
    assert set(replica.session.running) == {U2}
    one.create(description(U2))  # whoever was told of the doubt repeats it
    one.poll(0)
    replica.run()
    assert set(replica.session.running) == {U2}
    assert one.observed.dropped == {U1}


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_drop_in_doubt_is_said_again_by_itself(logs: Logs, is_taken: bool) -> None:
    doubtful = Doubtful(logs)
    one = controller(doubtful)
    one.start([description(U1), description(U2)], [])
    replica = Replica(logs)
    replica.run()
    doubtful.left, doubtful.is_taken = ATTEMPTS, is_taken
    with pytest.raises(Indeterminate):
        one.drop(U1)
    one.poll(0)
    replica.run()
    assert set(replica.session.running) == {U2}
    one.poll(0)
    assert one.observed.dropped == {U1}


def test_an_iteration_in_doubt_is_begun_again(logs: Logs) -> None:
    doubtful = Doubtful(logs)
    one = controller(doubtful)
    doubtful.left, doubtful.is_taken = ATTEMPTS, False
    with pytest.raises(Indeterminate):
        one.start([description(U1)], [])
    one.start([description(U1)], [])
    one.create(description(U2))
    replica = Replica(logs)
    replica.run()
    assert set(replica.session.running) == {U1, U2}


def test_a_response_in_doubt_swallows_no_later_one(logs: Logs) -> None:
    doubtful = Doubtful(logs)
    one = controller(logs)
    one.start([description(U1)], [])
    topic = response_topic("sw", "default")
    writer = ResponseWriter(doubtful, topic, "r")
    replica = Replica(logs)
    replica.run()
    doubtful.left = ATTEMPTS
    with pytest.raises(Indeterminate):
        writer.write(replica.session.nonce, [Frontiers(U1, frontier(1), frontier(1))])
    writer.write(replica.session.nonce, [Frontiers(U2, EMPTY, EMPTY)])
    one.poll(0)
    assert one.observed.dropped == {U2}


def test_the_last_iteration_is_found_before_marks_of_others_transactions() -> None:
    broker = MemoryBroker(lambda: 1000)
    create_topics(broker.topics, "sw", "default")
    controller(broker.logs).start([], [])
    commands = command_topic("sw", "default")
    before = last_start(broker.logs, commands)
    others = MemoryTransactions(broker.store, "others", lambda: 1000)
    others.init()
    others.commit([OutRecord(commands, None, b"from a transaction")])
    assert before is not None
    assert last_start(broker.logs, commands) == before


def test_a_create_does_not_look_through_all_that_was_created(logs, monkeypatch) -> None:
    looked, reduce = [0], history.reduce

    def counted(commands: Sequence[Command]) -> tuple[Command, ...]:
        looked[0] += len(commands)
        return reduce(commands)

    for module in ("history", "controller"):
        monkeypatch.setattr(f"streams.compute.{module}.reduce", counted)
    one = controller(logs)
    one.start([], [])
    flows = [description(CollectionId(f"u{number}")) for number in range(400)]
    for flow in flows:
        one.create(flow)
        one.create(flow)
    assert looked[0] <= 10 * len(flows), "a reduction each time that the history has doubled"
    replica = Replica(logs)
    replica.run()
    assert set(replica.session.running) == {flow.export for flow in flows}


def test_a_dataflow_that_is_described_anew_replaces_the_one_before(logs) -> None:
    one = controller(logs)
    one.start([description(U1), description(U2)], [])
    replica = Replica(logs)
    replica.run()
    changed = description(U1, plan="changed")
    one.create(changed)
    actions = [type(action).__name__ for action in replica.run()]
    assert actions.count("Drop") == actions.count("Create") == 1
    assert actions.index("Drop") < actions.index("Create")
    assert replica.session.running == {U1: changed, U2: description(U2)}
    one.poll(0)
    assert not one.observed.dropped
    later = Replica(logs)
    later.run()
    assert list(later.session.running) == [U1, U2]  # imports before those who import them


def test_a_dataflow_is_not_described_anew_by_the_as_of_of_its_birth(logs) -> None:
    one = controller(logs)
    grown = description(U1).compacted(frontier(9))
    one.start([grown], [])
    _, end = logs.bounds(command_topic("sw", "default"))
    one.create(description(U1))
    assert logs.bounds(command_topic("sw", "default"))[1] == end
    one.create(replace(description(U1), name="changed"))
    replica = Replica(logs)
    replica.run()
    assert replica.session.running == {U1: replace(grown, name="changed")}


def test_the_since_of_a_view_travels_once_and_becomes_its_as_of(logs) -> None:
    topic = command_topic("sw", "default")
    one = controller(logs)
    one.start([INGESTION, description(U1)], [])
    replica = Replica(logs)
    replica.run()
    for since in (3, 5, 7, 7, 6):
        one.allow_compaction({U1: frontier(since), U2: frontier(9), INGESTION.export: EMPTY})
    one.allow_compaction({INGESTION.export: frontier(INGESTION.as_of + 1)})
    heard = [message.command for message in CommandReader(logs, topic).poll(0)]
    assert [command for command in heard if isinstance(command, AllowCompaction)] == [
        AllowCompaction(U1, frontier(7))
    ]
    assert replica.run() == [Compact(U1, frontier(7))]
    for number in range(40):
        one.create(description(f"u{number + 10}"))
    late = Replica(logs)
    late.run()
    replica.run()
    assert late.session == replica.session
    assert late.session.running[U1].as_of == 7


def test_time_that_passes_begins_no_iteration(logs) -> None:
    one = controller(logs)
    one.start([description(U1)], [])
    replica = Replica(logs)
    for since in range(6, 1006):
        one.allow_compaction({U1: frontier(since)})
    replica.run()
    assert replica.session.nonce == "n1.0"
    for since in range(1006, 1106):
        one.allow_compaction({U1: frontier(since)})
    replica.run()
    assert replica.session.nonce == "n1.1"
    for since in range(1106, 2206):
        one.allow_compaction({U1: frontier(since)})
    low, _ = logs.bounds(command_topic("sw", "default"))
    assert low > 0, "the topic does not grow for ever either"


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_since_in_doubt_is_sent_again(logs: Logs, is_taken: bool) -> None:
    doubtful = Doubtful(logs)
    one = controller(doubtful)
    one.start([description(U1)], [])
    replica = Replica(logs)
    replica.run()
    doubtful.left, doubtful.is_taken = ATTEMPTS, is_taken
    with pytest.raises(Indeterminate):
        one.allow_compaction({U1: frontier(8)})
    one.poll(0)
    replica.run()
    assert replica.session.running[U1].as_of == 8


def test_a_zombie_does_not_delete_what_its_successor_has_begun(logs) -> None:
    zombie = controller(logs)
    zombie.start([], [])
    two = controller(logs, epoch=2)
    two.start([description(U1)], [])
    for _ in range(3):
        zombie.start([description(U2)], [])
    late = Replica(logs)
    late.run()
    assert set(late.session.running) == {U1}
    two.create(description(U2))
    late.run()
    assert set(late.session.running) == {U1, U2}


def test_a_drop_is_in_the_one_append_of_its_iteration(logs: Logs) -> None:
    """In an append of its own it may be refused, and then nobody would send it again."""
    refusing = Refusing(logs, number=3)
    one = controller(refusing)
    one.start([description(U1)], [])
    replica = Replica(logs)
    replica.run()
    one.drop(U1)
    for number in range(20):
        refusing.appends = 0
        with suppress(Determinate):
            one.create(description(f"u{number + 10}"))
    replica.run()
    assert replica.session.nonce == "n1.1"
    one.poll(0)
    assert one.observed.dropped == {U1}


class Refusing:
    """Logs that refuse the append of a number."""

    def __init__(self, logs: Logs, number: int) -> None:
        self.logs, self.number, self.appends = logs, number, 0

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        self.appends += 1
        if self.appends == self.number:
            raise Determinate("refused")
        return self.logs.append(records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.logs, name)
