"""A replica's and a controller's subscribes, fed line by line."""

from dataclasses import replace

from streams.compute.open_subscribes import OpenSubscribes
from streams.compute.peek_session import TargetBounds
from streams.compute.protocol import Command, CreateTimely, InitializationComplete
from streams.compute.subscribe_session import (
    AnswerSubscribe,
    ReadChanges,
    SubscribeAction,
    SubscribeSession,
)
from streams.compute.subscribes import (
    AcknowledgeSubscribe,
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
from streams.progress import EMPTY, Antichain, frontier
from tests.support.datadriven import Case

NOTHING = "-"
MOST_UNTAKEN = 20_000


class SubscribeScript:
    """`new` begins anew; `replica` and `controller` take lines and say what is done.

    The replica is `r1`, and delivers `most_ahead` bytes ahead. An interval is `lower-upper`,
    with the bytes of its updates; its upper is `end` if nothing follows. `wait` lets seconds
    pass.
    """

    def __init__(self) -> None:
        self.begin(10)

    def begin(self, most_ahead: int) -> None:
        self.session, self.open = SubscribeSession("r1"), OpenSubscribes()
        self.bounds: dict[str, TargetBounds] = {}
        self.reads: dict[str, ReadChanges] = {}
        self.most_ahead, self.now = most_ahead, 0.0

    def handle(self, case: Case) -> str:
        if case.directive == "new":
            self.begin(int(case.get("most_ahead", "10")))
            return ""
        take = self._replica if case.directive == "replica" else self._controller
        return "\n".join(f"{' '.join(words)}  => {take(*words)}" for words in case.lines())

    def _replica(self, word: str, *words: str) -> str:
        actions: tuple[SubscribeAction, ...] = ()
        if word == "frontiers":
            name, since, upper = words
            self.bounds[name] = TargetBounds(bound(since), bound(upper))
        elif word == "missing":
            self.bounds[words[0]] = TargetBounds(problem=f"there is no {words[0]}")
        elif word == "unreachable":
            problem = f"{words[0]} does not answer"
            self.bounds[words[0]] = TargetBounds(problem=problem, may_pass=True)
        elif word == "wait":
            self.now += float(words[0])
        elif word == "finished":
            uuid, *said = words
            outcomes = [outcome(one) for one in said]
            read = self.reads.pop(uuid)
            self.session, actions = self.session.finished(read, outcomes, self.now)
        else:
            given, is_old = command(word, words), words[-1:] == ("old",)
            self.session, actions = self.session.step(given, is_old=is_old)
        look = lambda subscribe: self.bounds.get(subscribe.collection, TargetBounds())  # noqa: E731  short
        self.session, more = self.session.ready(look, self.most_ahead, self.now)
        return "; ".join(map(self._done, (*actions, *more))) or NOTHING

    def _done(self, action: SubscribeAction) -> str:
        if isinstance(action, AnswerSubscribe):
            uuid = action.response.uuid
            return f"{action.nonce}: {uuid} {shown(action.response.outcome)}"
        self.reads[action.subscribe.uuid] = action
        what = "snapshot at" if action.is_snapshot else "changes from"
        return f"read {action.subscribe.uuid}, {what} {action.lower}, {action.allowance} bytes"

    def _controller(self, word: str, *words: str) -> str:
        new: SubscribeOutcome | None = None
        commands: tuple[Command, ...] = ()
        match word, words:
            case "subscribe", _:
                asked = command(word, words)
                assert isinstance(asked, Subscribe)
                self.open = self.open.ask(asked)
            case "heard", (process,):
                self.open, more = self.open.heard(process)
                commands = tuple(more)
            case "begin", _:
                self.open, more = self.open.begin()
                commands = tuple(more)
            case "cancel", (uuid,):
                self.open, more = self.open.cancel(uuid)
                commands = tuple(more)
            case "acknowledge", (uuid, upper):
                self.open, more = self.open.acknowledge(uuid, Timestamp(int(upper)))
                commands = tuple(more)
            case _:
                uuid, said = words
                response = SubscribeResponse(uuid, outcome(said))
                self.open, new, more = self.open.delivered(word, response, MOST_UNTAKEN)
                commands = tuple(more)
        delivered = [] if new is None else [f"delivers {shown(new)}"]
        sent = [f"sends {told(one)}" for one in commands]
        return "; ".join([*delivered, *sent]) or NOTHING


def bound(text: str) -> Antichain:
    return EMPTY if text == "end" else frontier(int(text))


def outcome(text: str) -> SubscribeOutcome:
    """`3-7:5` is an interval with 5 bytes, `!7` an error, `?7` an interruption, `x7` a drop."""
    if text[0] in "!?x":
        lower = Timestamp(int(text[1:]))
        said: dict[str, SubscribeOutcome] = {
            "!": SubscribeError(lower, "why"),
            "?": SubscribeInterrupted(lower, "later"),
            "x": DroppedAt(lower),
        }
        return said[text[0]]
    interval, _, size = text.partition(":")
    lower_text, _, upper = interval.partition("-")
    return SubscribeBatch(Timestamp(int(lower_text)), bound(upper), 0, b"u" * int(size or 1))


def shown(said: SubscribeOutcome) -> str:
    match said:
        case SubscribeBatch(lower, upper, _, updates):
            end = "end" if upper.is_empty else str(upper.time)
            return f"[{lower}, {end}) {len(updates)} bytes"
        case SubscribeError(lower, message):
            return f"error at {lower}: {message}"
        case SubscribeInterrupted(lower, message):
            return f"interrupted at {lower}: {message}"
        case DroppedAt(lower):
            return f"dropped at {lower}"


def command(word: str, words: tuple[str, ...]) -> Command:
    match word:
        case "timely":
            return CreateTimely(words[0], 1)
        case "initialized":
            return InitializationComplete()
        case "acknowledge":
            return AcknowledgeSubscribe(words[0], Timestamp(int(words[1])))
        case "cancel":
            return CancelSubscribe(words[0])
        case _:
            given = dict(item.partition("=")[::2] for item in words[2:])
            asked = Subscribe(
                uuid=words[0],
                collection=CollectionId(words[1]),
                group=words[1],
                as_of=Timestamp(int(given["at"])),
                plan="",
                project=(),
                snapshot="changes" not in given,
                replica=given.get("replica", ""),
            )
            until = given.get("until")
            return asked if until is None else replace(asked, until=Timestamp(int(until)))


def told(said: Command) -> str:
    match said:
        case Subscribe():
            what = "snapshot at" if said.snapshot else "changes behind"
            whom = said.replica or "all"
            return f"subscribe {said.uuid} to {whom}, {what} {said.as_of}"
        case AcknowledgeSubscribe(uuid, upper):
            return f"acknowledge {uuid} {upper}"
        case CancelSubscribe(uuid):
            return f"cancel {uuid}"
        case _:
            raise AssertionError(said)
