"""A replica's session of peeks, fed with commands and frontiers line by line."""

from dataclasses import replace

from streams.compute.peek_session import (
    AnswerPeek,
    PeekAction,
    PeekSession,
    TargetBounds,
)
from streams.compute.peeks import (
    CancelPeek,
    Peek,
    PeekCanceled,
    PeekError,
    PeekResponse,
    PeekRows,
    PeekTarget,
)
from streams.compute.protocol import (
    AllowCompaction,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    UpdateConfiguration,
)
from streams.ids import CollectionId, Timestamp
from streams.progress import EMPTY, Antichain, frontier
from tests.support.compute_script import values
from tests.support.datadriven import Case
from tests.unit.compute.commands import INDEX


class PeekScript:
    """`new` starts the replica `r1`; `run` takes lines and says what is done after each."""

    def __init__(self) -> None:
        self.session = PeekSession("r1")
        self.bounds: dict[str, TargetBounds] = {}

    def handle(self, case: Case) -> str:
        if case.directive == "new":
            self.session, self.bounds = PeekSession(case.get("replica", "r1")), {}
            return ""
        lines = []
        for words in case.lines():
            actions = self.take(words[0], words[1:])
            self.session, more = self.session.ready(self.look)
            said = "; ".join(map(shown, (*actions, *more))) or "-"
            lines.append(f"{' '.join(words)}  => {said}")
        return "\n".join(lines)

    def take(self, word: str, words: list[str]) -> tuple[PeekAction, ...]:
        if word == "frontiers":
            name, since, upper = words
            self.bounds[name] = TargetBounds(bound(since), bound(upper))
            return ()
        if word == "missing":
            self.bounds[words[0]] = TargetBounds(problem=f"there is no {words[0]}")
            return ()
        if word == "finished":
            nonce, uuid, what = words
            outcome = PeekError("why") if what == "error" else PeekRows(int(what), b"")
            self.session, actions = self.session.finished(nonce, uuid, outcome)
            return actions
        is_old = words[-1:] == ["old"]
        self.session, actions = self.session.step(command(word, words), is_old=is_old)
        return actions

    def look(self, target: PeekTarget) -> TargetBounds:
        return self.bounds.get(target.index or target.collection, TargetBounds())


def bound(text: str) -> Antichain:
    return EMPTY if text == "empty" else frontier(int(text))


def command(word: str, words: list[str]) -> Command:
    match word:
        case "timely":
            return CreateTimely(words[0], 1, values(words[1:]))
        case "update":
            return UpdateConfiguration(values(words))
        case "instance":
            return CreateInstance("sw", 2)
        case "initialized":
            return InitializationComplete()
        case "index":
            return CreateDataflow(replace(INDEX, export=CollectionId(words[0])))
        case "drop":
            return AllowCompaction(CollectionId(words[0]), EMPTY)
        case "cancel":
            return CancelPeek(words[0])
        case _:
            given = dict(item.partition("=")[::2] for item in words[2:])
            index = CollectionId(given["by"]) if "by" in given else None
            return Peek(
                uuid=words[0],
                target=PeekTarget(CollectionId(words[1]), words[1], index),
                time=Timestamp(int(given["at"])),
                plan="",
                project=(),
                most_bytes=1,
                replica=given.get("replica", ""),
            )


def shown(action: PeekAction) -> str:
    match action:
        case AnswerPeek(nonce, PeekResponse(uuid, PeekRows(count, _))):
            return f"{nonce}: {uuid} {count} rows"
        case AnswerPeek(nonce, PeekResponse(uuid, PeekError(message))):
            return f"{nonce}: {uuid} error: {message}"
        case AnswerPeek(nonce, PeekResponse(uuid, PeekCanceled())):
            return f"{nonce}: {uuid} canceled"
        case _:
            return f"read {action.peek.uuid}"  # type: ignore[union-attr]  # the other action
