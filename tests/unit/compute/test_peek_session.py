"""Random commands, frontiers and reads: what a replica says of peeks keeps the rules."""

from collections.abc import Callable, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.compute.peek_session import (
    AnswerPeek,
    PeekAction,
    PeekSession,
    ReadTarget,
    TargetBounds,
)
from streams.compute.peeks import CancelPeek, Peek, PeekCanceled, PeekRows, PeekTarget
from streams.compute.protocol import Command, CreateTimely, InitializationComplete
from streams.ids import CollectionId, Timestamp
from streams.progress import frontier

UUIDS = st.sampled_from("pqr")


def peek(uuid: str, time: int, replica: str) -> Peek:
    return Peek(
        uuid=uuid,
        target=PeekTarget(CollectionId("u1"), "u1"),
        time=Timestamp(time),
        plan="",
        project=(),
        most_bytes=1,
        replica=replica,
    )


peeks = st.builds(peek, UUIDS, st.integers(0, 4), st.sampled_from(["", "", "r1", "r2"]))
beginnings = st.sampled_from(
    [CreateTimely("a", 1), CreateTimely("b", 1), InitializationComplete()]
)
commands: st.SearchStrategy[Command] = st.one_of(
    peeks, peeks, peeks, st.builds(CancelPeek, UUIDS), beginnings
)
moves = st.one_of(
    st.tuples(st.just("command"), commands, st.booleans()),
    st.tuples(st.just("upper"), st.integers(0, 5), st.none()),
    st.tuples(st.just("finish"), st.integers(0, 5), st.none()),
)


class Transcript:
    """One life of a replica, and what it may say."""

    def __init__(self) -> None:
        self.session, self.upper = PeekSession("r1"), 0
        self.reads: list[ReadTarget] = []
        self.iteration = 0
        self.asked: dict[str, Peek] = {}
        self.canceled: set[str] = set()
        self.answered: set[str] = set()
        self.is_initialized = False

    def command(self, command: Command, *, is_old: bool) -> None:
        match command:
            case CreateTimely():
                self.asked, self.canceled, self.answered = {}, set(), set()
                self.is_initialized = False
            case InitializationComplete():
                self.is_initialized = True
            case Peek() if not is_old and command.replica in {"", "r1"}:
                self.asked.setdefault(command.uuid, command)
            case CancelPeek(uuid) if uuid in self.asked:
                self.canceled.add(uuid)
            case _:
                pass
        self.go(lambda: self.session.step(command, is_old=is_old))

    def go(self, step: Callable[[], tuple[PeekSession, Iterable[PeekAction]]]) -> None:
        self.session, actions = step()
        for action in actions:
            if isinstance(action, ReadTarget):
                assert self.is_initialized
                assert action.peek.time < self.upper
                self.reads.append(action)
            else:
                self.says(action)

    def says(self, action: AnswerPeek) -> None:
        uuid, outcome = action.response.uuid, action.response.outcome
        assert self.is_initialized
        assert action.nonce == self.session.nonce
        assert uuid in self.asked
        assert uuid not in self.answered
        assert isinstance(outcome, PeekCanceled) <= (uuid in self.canceled)
        self.answered.add(uuid)

    def look(self) -> None:
        bounds = TargetBounds(frontier(0), frontier(self.upper))
        self.go(lambda: self.session.ready(lambda _: bounds))

    def finish(self, number: int) -> None:
        if number < len(self.reads):
            read = self.reads[number]
            rows = PeekRows(1, b"")
            self.go(lambda: self.session.finished(read.nonce, read.peek.uuid, rows))


@settings(max_examples=300)
@given(st.lists(moves, max_size=30), st.booleans())
def test_each_peek_is_answered_once_in_its_iteration(script, begins) -> None:
    transcript = Transcript()
    if begins:
        transcript.command(CreateTimely("a", 1), is_old=False)
        transcript.command(InitializationComplete(), is_old=False)
    for kind, what, flag in script:
        if kind == "command":
            transcript.command(what, is_old=flag)
        elif kind == "upper":
            transcript.upper = max(transcript.upper, what)
        else:
            transcript.finish(what)
        transcript.look()
    transcript.upper = 9
    transcript.look()
    for number in range(len(transcript.reads)):
        transcript.finish(number)
    if transcript.is_initialized:
        assert transcript.answered == transcript.asked.keys()
