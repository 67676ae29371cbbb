from collections.abc import Mapping, Sequence

import pytest

from streams.compute.codec import encode_command
from streams.compute.protocol import (
    AllowWrites,
    Command,
    CommandMessage,
    CreateDataflow,
    CreateTimely,
    Frontiers,
    InitializationComplete,
    ResponseMessage,
    Schedule,
)
from streams.compute.reader import (
    CommandReader,
    CommandReaderState,
    ResponseReader,
    ResponseReaderState,
    UnreadableCommand,
)
from streams.compute.writer import CommandWriter, ResponseWriter
from streams.errors import Corrupt, Determinate, Indeterminate
from streams.ids import CollectionId, Offset, Topic
from streams.kafka.log import Logs, Stored, Tail
from streams.kafka.memory.logs import MemoryBroker
from streams.kafka.topics import TopicKind, TopicSpec
from streams.progress import frontier
from tests.unit.compute.commands import INSTANCE, description

COMMANDS = Topic("sw.compute.default.commands")
RESPONSES = Topic("sw.compute.default.responses")
U1 = CollectionId("u1")


def fold(messages: Sequence[tuple[str, int, Command]]) -> list[Command]:
    reading = CommandReaderState()
    counted: list[Command] = []
    for message in messages:
        reading, command = reading.step(CommandMessage(*message))
        if command is not None:
            counted.append(command)
    return counted


def commands(reader: CommandReader) -> tuple[Command | UnreadableCommand, ...]:
    return tuple(message.command for message in reader.poll(0))


A1, B1, C2 = CreateTimely("a", 1), CreateTimely("b", 1), CreateTimely("c", 2)
START, DONE, WRITES = INSTANCE, InitializationComplete(), AllowWrites()


def test_copies_count_once() -> None:
    twice: list[tuple[str, int, Command]] = [
        ("a", 0, A1),
        ("a", 0, A1),
        ("a", 1, START),
        ("a", 1, START),
        ("a", 2, DONE),
    ]
    assert fold(twice) == [A1, START, DONE]


def test_a_late_copy_of_an_older_iteration_begins_nothing() -> None:
    late: list[tuple[str, int, Command]] = [
        ("a", 0, A1),
        ("a", 1, START),
        ("b", 2, B1),
        ("a", 0, A1),
        ("b", 3, START),
    ]
    assert fold(late) == [A1, START, B1, START]


def test_a_zombie_of_a_lower_epoch_is_not_heard() -> None:
    zombie: list[tuple[str, int, Command]] = [
        ("c", 0, C2),
        ("a", 7, A1),
        ("a", 8, START),
        ("c", 1, START),
    ]
    assert fold(zombie) == [C2, START]


def test_commands_without_an_iteration_are_passed_over() -> None:
    assert fold([("x", 5, START), ("a", 0, A1)]) == [A1]


def test_a_gap_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="expected sequence number 1, actual 2"):
        fold([("a", 0, A1), ("a", 2, START)])


@pytest.fixture
def logs():
    broker = MemoryBroker(lambda: 1000)
    specs = [TopicSpec(topic, 1, TopicKind.LOG) for topic in (COMMANDS, RESPONSES)]
    broker.topics.create(specs)
    return broker.logs


def test_a_reader_begins_with_the_last_iteration_and_follows(logs) -> None:
    first = CommandWriter(logs, COMMANDS, epoch=1)
    first.begin("a", [START, CreateDataflow(description(U1)), DONE, WRITES])
    second = CommandWriter(logs, COMMANDS, epoch=2)
    second.begin("b", [START, DONE])
    first.write([Schedule(U1)])  # the first one does not know yet
    reader = CommandReader(logs, COMMANDS)
    assert commands(reader) == (CreateTimely("b", 2), START, DONE)
    assert reader.nonce == "b"
    second.write([WRITES])
    assert commands(reader) == (WRITES,)
    second.begin("c", [START])
    assert commands(reader) == (CreateTimely("c", 2), START)
    assert commands(reader) == ()


def test_what_an_earlier_version_wrote_is_told_of_and_passed_over(logs) -> None:
    """Its iterations began with a record of another name."""
    hello = bytes.fromhex("c301ec8d9f4e51628ba2026f0002")
    logs.append([(COMMANDS, hello)])
    (told,) = commands(CommandReader(logs, COMMANDS))
    assert isinstance(told, UnreadableCommand)
    assert told.reason.startswith("avro header: expected a known schema, actual 'c301ec8d")
    CommandWriter(logs, COMMANDS, epoch=2).begin("a", [START])
    assert commands(CommandReader(logs, COMMANDS)) == (CreateTimely("a", 2), START)


def test_nobody_asks_when_a_command_was_written(logs) -> None:
    """A topic that took its writers' times used to end every replica that read it."""
    writer = CommandWriter(logs, COMMANDS, epoch=1)
    logs.store.log(COMMANDS).is_append_timed = False
    writer.begin("a", [START])
    assert commands(CommandReader(logs, COMMANDS)) == (CreateTimely("a", 1), START)


def test_a_reader_bears_the_truncation_of_what_it_has_not_read(logs) -> None:
    writer = CommandWriter(logs, COMMANDS, epoch=1)
    writer.begin("a", [START])
    reader = CommandReader(logs, COMMANDS)
    assert commands(reader) == (CreateTimely("a", 1), START)
    writer.write([DONE, WRITES])
    logs.truncate(COMMANDS, writer.begin("b", [START]))
    received = commands(reader) + commands(reader)
    assert received == (CreateTimely("b", 1), START)


class Flaky:
    """Logs whose appends fail as told: before or after the records are there."""

    def __init__(self, logs: Logs, *failures: Exception | None) -> None:
        self.logs, self.failures = logs, list(failures)

    def append(self, records: Sequence[tuple[Topic, bytes]]) -> tuple[Offset, ...]:
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Determinate):
            raise failure
        offsets = self.logs.append(records)
        if failure:
            raise failure
        return offsets

    def append_each(
        self, records: Sequence[tuple[Topic, bytes]], stragglers_ms: int
    ) -> tuple[Stored, ...]:
        return self.logs.append_each(records, stragglers_ms)

    def bounds(self, topic: Topic) -> tuple[Offset, Offset]:
        return self.logs.bounds(topic)

    def bounds_all(self, topics: Sequence[Topic]) -> Mapping[Topic, tuple[Offset, Offset]]:
        return self.logs.bounds_all(topics)

    def is_bare(self, topic: Topic, start: Offset) -> bool:
        return self.logs.is_bare(topic, start)

    def tail(self, starts: Mapping[Topic, Offset]) -> Tail:
        return self.logs.tail(starts)

    def truncate(self, topic: Topic, before: Offset) -> None:
        self.logs.truncate(topic, before)


def test_an_indeterminate_append_is_repeated_and_counts_once(logs) -> None:
    writer = CommandWriter(Flaky(logs, Indeterminate("timeout")), COMMANDS, epoch=1)
    writer.begin("a", [START])
    writer.write([DONE])
    assert logs.bounds(COMMANDS) == (0, 5)
    assert commands(CommandReader(logs, COMMANDS)) == (CreateTimely("a", 1), START, DONE)


def test_a_determinate_failure_leaves_no_gap(logs) -> None:
    writer = CommandWriter(Flaky(logs, None, Determinate("refused")), COMMANDS, epoch=1)
    writer.begin("a", [START])
    with pytest.raises(Determinate):
        writer.write([DONE])
    writer.write([DONE])
    assert commands(CommandReader(logs, COMMANDS)) == (CreateTimely("a", 1), START, DONE)


def test_what_cannot_be_read_is_told_with_its_offset_and_passed_over(logs) -> None:
    writer = CommandWriter(logs, COMMANDS, epoch=1)
    writer.begin("a", [START])
    logs.append(
        [(COMMANDS, b"noise"), (COMMANDS, encode_command(CommandMessage("a", 2, DONE))[:-1])]
    )
    logs.append([(COMMANDS, encode_command(CommandMessage("a", 3, WRITES)))])
    messages = CommandReader(logs, COMMANDS).poll(0)
    assert [message.offset for message in messages] == [0, 1, 2, 3, 4, 4]
    reasons = [
        message.command.reason
        for message in messages
        if isinstance(message.command, UnreadableCommand)
    ]
    assert "avro header" in reasons[0]
    assert "compute_initialization_complete" in reasons[1]
    assert "expected sequence number 2, actual 3" in reasons[2]
    assert messages[-1].command == WRITES


def test_a_response_that_cannot_be_read_is_passed_over(logs) -> None:
    reader = ResponseReader(logs, RESPONSES, "n")
    of_earlier_form = "c301e0407be77f4db26c026f0872312d610004753102020a0000"
    logs.append([(RESPONSES, b"noise"), (RESPONSES, bytes.fromhex(of_earlier_form))])
    ResponseWriter(logs, RESPONSES, "r").write("n", [Frontiers(U1, frontier(1))])
    assert [message.response for message in reader.poll(0)] == [Frontiers(U1, frontier(1))]


def test_responses_count_once_for_each_process_and_only_to_the_nonce(logs) -> None:
    reader = ResponseReader(logs, RESPONSES, "n")
    one, two = ResponseWriter(logs, RESPONSES, "r1-x"), ResponseWriter(logs, RESPONSES, "r1-y")
    one.write("old", [Frontiers(U1, frontier(9))])
    one.write("n", [Frontiers(U1, frontier(1))])
    two.write("n", [Frontiers(U1, frontier(2))])
    responses = [message.response for message in reader.poll(0)]
    assert responses == [Frontiers(U1, frontier(1)), Frontiers(U1, frontier(2))]


def test_a_copy_of_a_response_is_dropped() -> None:
    message = ResponseMessage("n", "r", 3, Frontiers(U1, frontier(1)))
    hearing, first = ResponseReaderState("n").step(message)
    _, second = hearing.step(message)
    assert first == message
    assert second is None


def test_the_encoding_is_the_single_object_one() -> None:
    assert encode_command(CommandMessage("n", 0, DONE))[:2] == b"\xc3\x01"
