"""A controller and replicas that crash, join and lag: a subscribe is delivered without a gap.

The collection has an update at each time. Replicas hear of its upper apart, since follows what
the client has acknowledged at once, and reads are cut anywhere or fail for a while. The oracle
folds the intervals.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from streams.compute.open_subscribes import MOST_INTERRUPTIONS, OpenSubscribes
from streams.compute.peek_session import TargetBounds
from streams.compute.protocol import (
    Command,
    CommandMessage,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    Reconciled,
    Response,
    ResponseMessage,
)
from streams.compute.subscribe_session import (
    MOST_ATTEMPTS,
    AnswerSubscribe,
    ReadChanges,
    SubscribeAction,
    SubscribeSession,
)
from streams.compute.subscribes import (
    CancelSubscribe,
    DroppedAt,
    Subscribe,
    SubscribeBatch,
    SubscribeError,
    SubscribeInterrupted,
    SubscribeOutcome,
    SubscribeResponse,
)
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, END, end_of, frontier
from streams.torture.compute.protocol_rules import check_commands, check_responses

AS_OF, UNTIL, MOST_AHEAD, MOST_UNTAKEN = 3, 30, 40, 50_000
FAILING_TURNS = range(0, 120, 20)


def subscribe(*, snapshot: bool = True, replica: str = "") -> Subscribe:
    return Subscribe(
        uuid="s",
        collection=CollectionId("u1"),
        group="u1",
        as_of=Timestamp(AS_OF),
        plan="",
        project=(0,),
        snapshot=snapshot,
        until=Timestamp(UNTIL),
        replica=replica,
    )


def batch(lower: int, upper: int) -> SubscribeBatch:
    """The updates of [lower, upper): each time has one, which is the time itself."""
    times = list(range(lower, upper))
    text = json.dumps(times).encode()
    reached = EMPTY if upper >= UNTIL else frontier(upper)
    return SubscribeBatch(Timestamp(lower), reached, len(times), text)


@dataclass
class Topics:
    """The messages as they were appended; the controller has read so many responses."""

    commands: list[CommandMessage] = field(default_factory=list)
    responses: list[ResponseMessage] = field(default_factory=list)
    heard: int = 0
    nonce: int = -1

    def command(self, commands: Iterable[Command]) -> None:
        for command in commands:
            message = CommandMessage(str(self.nonce), len(self.commands), command)
            self.commands.append(message)


@dataclass
class Process:
    """One process of a replica, which reads from the last iteration that was there."""

    world: "World"
    name: str
    number: int
    upper: int = AS_OF
    reads: list[ReadChanges] = field(default_factory=list)
    told: str = ""
    sequence: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        commands = self.world.topics.commands
        self.started = len(commands)
        starts = [
            at for at, said in enumerate(commands) if isinstance(said.command, CreateTimely)
        ]
        self.position = starts[-1] if starts else 0
        self.session = SubscribeSession(self.name)

    def read(self, _: int = 0) -> None:
        """Take one command."""
        commands = self.world.topics.commands
        if self.position < len(commands):
            command, is_old = commands[self.position].command, self.position < self.started
            self.position += 1
            self.session, actions = self.session.step(command, is_old=is_old)
            self.act(actions)
            if isinstance(command, InitializationComplete):
                self.say(self.session.nonce, Reconciled(0, 0, 0))
        self.look()

    def follow(self, by: int) -> None:
        """Hear of more of the collection."""
        self.upper = min(self.upper + by, UNTIL + 2)
        self.look()

    def look(self) -> None:
        self.now += 2.0
        bounds = TargetBounds(frontier(self.world.since), frontier(self.upper))
        self.session, actions = self.session.ready(lambda _: bounds, MOST_AHEAD, self.now)
        self.act(actions)

    def finish(self, cut: int = 1) -> None:
        """End the oldest read: of what there is, in one interval or two."""
        if not self.reads:
            return
        done = self.reads.pop(0)
        lower, end = done.lower, min(self.upper, UNTIL)
        if done.is_snapshot:
            end = lower + 1
        ends = sorted({min(lower + 1 + cut, end), end})
        outcomes: list[SubscribeOutcome] = []
        for upper in ends:
            outcomes.append(batch(lower, upper))
            lower = Timestamp(upper)
        self.session, actions = self.session.finished(done, outcomes, self.now)
        self.act(actions)
        self.look()

    def fail(self, times: int = 1) -> None:
        """Fail to read the same, so often that the controller has to hear of it."""
        if self.world.interruptions + times >= MOST_INTERRUPTIONS:
            return
        self.world.interruptions += times
        for _ in range(times * MOST_ATTEMPTS):
            if self.reads:
                done = self.reads.pop(0)
                outcome = SubscribeInterrupted(done.lower, "later")
                self.session, actions = self.session.finished(done, [outcome], self.now)
                self.act(actions)
            for _ in range(4):
                self.look()

    def act(self, actions: Iterable[SubscribeAction]) -> None:
        for action in actions:
            if isinstance(action, AnswerSubscribe):
                self.say(action.nonce, action.response)
            else:
                self.reads.append(action)

    def say(self, nonce: str, response: Response) -> None:
        process = f"{self.name}-{self.number}"
        said = ResponseMessage(nonce, process, self.sequence, response)
        self.world.topics.responses.append(said)
        self.sequence += 1


class World:
    """A controller, its client, two replicas and the topics between them."""

    def __init__(self, asked: Subscribe) -> None:
        self.topics, self.subscribes = Topics(), OpenSubscribes()
        self.asked, self.starts = asked, 0
        self.reached = int(asked.first)
        self.since = AS_OF
        self.taken: list[int] = []
        self.ended: SubscribeOutcome | None = None
        self.interruptions = 0
        self.begin()
        self.processes = [self.start("r1"), self.start("r2")]
        self.subscribes = self.subscribes.ask(asked)
        self.topics.command([asked])

    def start(self, name: str) -> Process:
        self.starts += 1
        return Process(self, name, self.starts)

    def begin(self, _: int = 0) -> None:
        topics = self.topics
        topics.nonce += 1
        first = CreateTimely(str(topics.nonce), 1)
        topics.command([first, CreateInstance("sw", 2), InitializationComplete()])
        self.subscribes, commands = self.subscribes.begin()
        topics.command(commands)

    def deliver(self, _: int = 0) -> None:
        """Let the controller read one response."""
        topics = self.topics
        if topics.heard == len(topics.responses):
            return
        said = topics.responses[topics.heard]
        topics.heard += 1
        if said.nonce != str(topics.nonce):
            return
        if isinstance(said.response, SubscribeResponse):
            self.subscribes, outcome, commands = self.subscribes.delivered(
                said.replica, said.response, MOST_UNTAKEN
            )
            topics.command(commands)
            if outcome is not None:
                self.take(outcome)
        self.subscribes, commands = self.subscribes.heard(said.replica)
        topics.command(commands)

    def take(self, outcome: SubscribeOutcome) -> None:
        """The client's side, and the oracle: intervals are contiguous."""
        assert self.ended is None, "nothing follows the end"
        assert isinstance(outcome, SubscribeBatch), outcome
        assert outcome.lower == self.reached
        self.interruptions = 0
        assert end_of(outcome.upper) > self.reached
        self.taken += [time for time in json.loads(outcome.updates) if time >= self.reached]
        self.reached = end_of(outcome.upper)
        if outcome.upper.is_empty:
            self.ended = outcome

    def acknowledge(self, _: int = 0) -> None:
        """Since follows at once, whoever has not heard of it yet."""
        if self.reached != END and self.reached > AS_OF:
            self.subscribes, commands = self.subscribes.acknowledge(
                "s", Timestamp(self.reached)
            )
            self.topics.command(commands)
            self.since = self.reached - 1

    def crash(self, number: int) -> None:
        self.processes[number % 2] = self.start(self.processes[number % 2].name)

    def settle(self, paces: tuple[int, int]) -> None:
        """Go on to the end, each replica at its pace: one may be far behind, or fail awhile."""
        for turn in range(600):
            for process, pace in zip(self.processes, paces, strict=True):
                if turn % pace == 0:
                    process.read()
                    process.follow(pace)
                    if turn in FAILING_TURNS:
                        process.fail()
                    process.finish(pace)
            self.deliver()
            self.deliver()
            if turn % 3 == 0:
                self.acknowledge()


MOVES = (
    *("read", "read", "follow", "finish", "fail", "crash"),
    *("deliver", "deliver", "begin", "acknowledge"),
)
moves = st.lists(
    st.tuples(
        st.sampled_from(MOVES),
        st.integers(0, 3),
    ),
    max_size=80,
)
asked = st.builds(subscribe, snapshot=st.booleans(), replica=st.sampled_from(["", "", "r1"]))


paces = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(asked, moves, paces)
def test_each_interval_is_delivered_once(
    wanted: Subscribe, script: list[tuple[str, int]], paces: tuple[int, int]
) -> None:
    world = World(wanted)
    for move, number in script:
        if move in {"read", "follow", "finish", "fail"}:
            getattr(world.processes[number % 2], move)(number)
        else:
            getattr(world, move)(number)
    world.settle(paces)
    assert world.taken == list(range(wanted.first, UNTIL))
    assert isinstance(world.ended, SubscribeBatch)
    assert not world.subscribes.subscribes
    check_responses(world.topics.responses, check_commands(world.topics.commands))


def answer(outcome: SubscribeOutcome) -> SubscribeResponse:
    return SubscribeResponse("s", outcome)


def test_a_batch_is_cut_to_what_lies_beyond() -> None:
    open_ = OpenSubscribes().ask(subscribe())
    open_, new, _ = open_.delivered("r1-1", answer(batch(3, 6)), MOST_UNTAKEN)
    assert new == batch(3, 6)
    assert open_.delivered("r2-1", answer(batch(3, 5)), MOST_UNTAKEN)[1] is None
    open_, new, _ = open_.delivered("r2-1", answer(batch(5, 8)), MOST_UNTAKEN)
    assert isinstance(new, SubscribeBatch)
    assert (new.lower, new.upper, new.updates) == (6, frontier(8), batch(5, 8).updates)
    assert open_.delivered("r1-1", answer(batch(9, 10)), MOST_UNTAKEN)[1] is None, "a gap"


def test_an_error_ends_it_unless_the_replica_is_behind() -> None:
    open_, _ = OpenSubscribes().ask(subscribe()).heard("r1-1")
    open_, _ = open_.heard("r2-1")
    open_, _, _ = open_.delivered("r1-1", answer(batch(3, 6)), MOST_UNTAKEN)
    late = answer(SubscribeError(Timestamp(4), "compacted"))
    open_, new, again = open_.delivered("r2-1", late, MOST_UNTAKEN)
    assert new is None
    (rest,) = again
    assert isinstance(rest, Subscribe)
    assert (rest.replica, rest.first, rest.snapshot) == ("r2", 6, False)
    wrong = SubscribeError(Timestamp(6), "bad")
    open_, new, commands = open_.delivered("r2-1", answer(wrong), MOST_UNTAKEN)
    assert new == wrong
    assert commands == (CancelSubscribe("s"),)
    assert not open_.subscribes


def test_an_interruption_is_an_error_only_when_it_lasts() -> None:
    open_, _ = OpenSubscribes().ask(subscribe()).heard("r1-1")
    open_, _ = open_.heard("r2-1")
    late = answer(SubscribeInterrupted(Timestamp(3), "later"))
    for _ in range(2):
        open_, new, again = open_.delivered("r1-1", late, MOST_UNTAKEN)
        (rest,) = again
        assert isinstance(rest, Subscribe)
        assert (new, rest) == (None, replace(subscribe(), replica="r1"))
    open_, _, _ = open_.delivered("r2-1", answer(batch(3, 6)), MOST_UNTAKEN)
    for at in (3, *[6] * (MOST_INTERRUPTIONS - 1)):
        late = answer(SubscribeInterrupted(Timestamp(at), "later"))
        open_, new, again = open_.delivered("r1-1", late, MOST_UNTAKEN)
        (rest,) = again
        assert isinstance(rest, Subscribe)
        assert (new, rest.replica, rest.first) == (None, "r1", 6)
    open_, new, commands = open_.delivered("r2-1", late, MOST_UNTAKEN)
    assert new == SubscribeError(Timestamp(6), "later")
    assert commands == (CancelSubscribe("s"),)
    assert not open_.subscribes


def test_a_drop_that_nobody_asked_for_is_no_end() -> None:
    open_ = OpenSubscribes().ask(subscribe())
    open_, new, commands = open_.delivered(
        "r1-1", answer(DroppedAt(Timestamp(3))), MOST_UNTAKEN
    )
    assert (new, commands) == (None, ())
    assert open_.subscribes
    open_, commands = open_.cancel("s")
    assert commands == (CancelSubscribe("s"),)
    assert open_.acknowledge("s", Timestamp(5)) == (open_, ())


def test_what_nobody_takes_ends_it_before_memory_does() -> None:
    open_ = OpenSubscribes().ask(subscribe())
    large = replace(batch(3, 4), updates=bytes(MOST_UNTAKEN // 2))
    open_, _, _ = open_.delivered("r1-1", answer(large), MOST_UNTAKEN)
    open_, _ = open_.acknowledge("s", Timestamp(4))
    open_, new, _ = open_.delivered(
        "r1-1", answer(replace(large, upper=frontier(5))), MOST_UNTAKEN
    )
    assert isinstance(new, SubscribeBatch)
    open_, new, _ = open_.delivered(
        "r1-1", answer(replace(large, upper=frontier(6))), MOST_UNTAKEN
    )
    assert isinstance(new, SubscribeError)
    assert new.message == "expected at most 50000 bytes that are not taken, actual 50512"
    assert not open_.subscribes
