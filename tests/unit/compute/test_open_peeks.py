"""A controller and replicas that crash, join and lag: each peek has one result."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from streams.compute.open_peeks import OpenPeeks
from streams.compute.peek_session import PeekAction, PeekSession, ReadTarget, TargetBounds
from streams.compute.peeks import (
    CancelPeek,
    Peek,
    PeekCanceled,
    PeekOutcome,
    PeekResponse,
    PeekRows,
    PeekTarget,
)
from streams.compute.protocol import Command, CreateTimely, InitializationComplete
from streams.ids import CollectionId, Timestamp
from streams.progress import frontier

COMPLETE = TargetBounds(frontier(0), frontier(9))


def peek(uuid: str, replica: str = "") -> Peek:
    return Peek(
        uuid=uuid,
        target=PeekTarget(CollectionId("u1"), "u1"),
        time=Timestamp(1),
        plan="",
        project=(),
        most_bytes=1,
        replica=replica,
    )


@dataclass
class Topics:
    """The commands, and the responses with their nonces and processes; None is an Alive."""

    commands: list[Command] = field(default_factory=list)
    responses: list[tuple[str, str, PeekResponse | None]] = field(default_factory=list)


@dataclass
class Process:
    """One process of a replica, which reads from the last CreateTimely that was there."""

    topics: Topics
    name: str
    number: int
    reads: list[ReadTarget] = field(default_factory=list)

    def __post_init__(self) -> None:
        commands = self.topics.commands
        self.started = len(commands)
        starts = [
            at for at, command in enumerate(commands) if isinstance(command, CreateTimely)
        ]
        self.position = starts[-1] if starts else 0
        self.session = PeekSession(self.name)

    def read(self) -> None:
        """Take one command."""
        if self.position < len(self.topics.commands):
            command = self.topics.commands[self.position]
            is_old = self.position < self.started
            self.position += 1
            self.session, actions = self.session.step(command, is_old=is_old)
            self.act(actions)
            self.session, actions = self.session.ready(lambda _: COMPLETE)
            self.act(actions)

    def finish(self) -> None:
        """End the oldest read."""
        if self.reads:
            done = self.reads.pop(0)
            rows = PeekRows(1, self.name.encode())
            self.session, actions = self.session.finished(done.nonce, done.peek.uuid, rows)
            self.act(actions)

    def live(self) -> None:
        """Give a sign of life, as soon as something may be said."""
        if self.session.is_initialized:
            self.say(self.session.nonce, None)

    def act(self, actions: Iterable[PeekAction]) -> None:
        for action in actions:
            if isinstance(action, ReadTarget):
                self.reads.append(action)
            else:
                self.say(action.nonce, action.response)

    def say(self, nonce: str, response: PeekResponse | None) -> None:
        self.topics.responses.append((nonce, f"{self.name}-{self.number}", response))


class World:
    """A controller, two replicas and the topics between them."""

    def __init__(self) -> None:
        self.topics, self.peeks, self.nonce = Topics(), OpenPeeks(), -1
        self.results: dict[str, PeekOutcome] = {}
        self.asked: set[str] = set()
        self.canceled: set[str] = set()
        self.starts = 0
        self.begin()
        self.processes = [self.start("r1"), self.start("r2")]

    def start(self, name: str) -> Process:
        self.starts += 1
        return Process(self.topics, name, self.starts)

    def begin(self) -> None:
        self.nonce += 1
        self.topics.commands += [CreateTimely(str(self.nonce), 1), InitializationComplete()]
        self.peeks, commands = self.peeks.begin()
        self.topics.commands += commands

    def ask(self, number: int) -> None:
        uuid = f"p{len(self.asked)}"
        self.asked.add(uuid)
        asked = peek(uuid, ["", "", "r1", "r2"][number])
        self.peeks = self.peeks.ask(asked)
        self.topics.commands.append(asked)

    def cancel(self, number: int) -> None:
        uuid = f"p{number}"
        self.peeks, commands = self.peeks.cancel(uuid)
        self.topics.commands += commands
        if commands:
            self.canceled.add(uuid)

    def deliver(self) -> None:
        """Let the controller read one response."""
        if not self.topics.responses:
            return
        nonce, process, response = self.topics.responses.pop(0)
        if nonce != str(self.nonce):
            return
        if response is not None:
            self.peeks, results, commands = self.peeks.answered(response)
            self.topics.commands += commands
            assert not results.keys() & self.results.keys()
            self.results |= results
        self.peeks, commands = self.peeks.heard(process)
        self.topics.commands += commands

    def crash(self, number: int) -> None:
        self.processes[number] = self.start(self.processes[number].name)

    def settle(self) -> None:
        for _ in range(200):
            for process in self.processes:
                process.read()
                process.finish()
                process.live()
            self.deliver()
            self.deliver()


moves = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "cancel", "read", "finish", "live", "crash", "deliver", "begin"]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(moves)
def test_each_peek_has_one_result(script: list[tuple[str, int]]) -> None:
    world = World()
    for move, number in script:
        if move in {"ask", "cancel", "crash"}:
            getattr(world, move)(number % 2 if move == "crash" else number)
        elif move in {"deliver", "begin"}:
            getattr(world, move)()
        else:
            getattr(world.processes[number % 2], move)()
    world.settle()
    assert world.results.keys() == world.asked - world.canceled
    assert not world.peeks.peeks


def test_the_others_are_told_to_cancel() -> None:
    peeks = OpenPeeks().ask(peek("p"))
    peeks, again = peeks.heard("r1-1")
    assert again == (peek("p", "r1"),)
    peeks, _ = peeks.heard("r2-1")
    response = PeekResponse("p", PeekRows(1, b""))
    peeks, results, commands = peeks.answered(response)
    assert results == {"p": PeekRows(1, b"")}
    assert commands == (CancelPeek("p"),)
    assert peeks.answered(response)[1:] == ({}, ())


def test_an_iteration_is_sent_what_is_open() -> None:
    peeks, _ = OpenPeeks().ask(peek("p")).heard("r1-1")
    peeks, again = peeks.begin()
    assert again == (peek("p"),)
    assert peeks.heard("r1-1")[1] == (peek("p", "r1"),)


def test_a_lone_replica_is_told_nothing_and_a_cancellation_is_no_result() -> None:
    peeks = OpenPeeks().ask(peek("p"))
    peeks, _ = peeks.heard("r1-1")
    peeks, results, _ = peeks.answered(PeekResponse("p", PeekCanceled()))
    assert not results
    _, results, commands = peeks.answered(PeekResponse("p", PeekRows(1, b"")))
    assert results
    assert commands == ()


def test_a_successor_is_sent_what_its_predecessor_may_have_lost() -> None:
    peeks, _ = OpenPeeks().heard("r1-1")
    peeks = peeks.ask(peek("p"))
    assert peeks.heard("r1-1")[1] == ()
    peeks, again = peeks.heard("r1-2")
    assert again == (peek("p", "r1"),)
    assert peeks.processes == {"r1-2"}
