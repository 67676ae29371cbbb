"""Each rule of peeks broken, one at a time: some run of the protocol's model shows it."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest

from streams.compute.controller import Controller
from streams.compute.open_peeks import OpenPeeks
from streams.compute.peek_session import AnswerPeek, PeekSession
from streams.compute.peeks import PeekResponse, PeekRows
from streams.compute.protocol import CreateTimely
from streams.compute.writer import ResponseWriter
from streams.torture.compute.protocol_rules import Breach
from tests.model.test_compute_protocol import STEPS, Run

MOST_RUNS = 40
NOTHING = PeekRows(0, b"")
LOST = 0.3


def answers_what_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = PeekSession._answered

    def forgetful(self: PeekSession, uuid: str, outcome: Any) -> Any:
        session, actions = answered(self, uuid, outcome)
        return replace(session, seen=session.seen.remove(uuid)), actions

    monkeypatch.setattr(PeekSession, "_answered", forgetful)


def answers_peeks_of_the_old_life(monkeypatch: pytest.MonkeyPatch) -> None:
    step = PeekSession.step

    def mixing(self: PeekSession, command: Any, **facts: Any) -> Any:
        if isinstance(command, CreateTimely):
            return replace(self, nonce=command.nonce, is_initialized=False), ()
        return step(self, command, **facts)

    monkeypatch.setattr(PeekSession, "step", mixing)


def keeps_peeks_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Controller._begin

    def whole(self: Controller, commands: Any) -> None:
        first, *others = commands
        begin(self, [first, *self.open_peeks, *others])

    monkeypatch.setattr(Controller, "_begin", whole)


def sends_again_what_was_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel = Controller.cancel_peek

    def half(self: Controller, uuid: str) -> None:
        peek = self._peeks.peeks.get(uuid)
        cancel(self, uuid)
        if peek is not None:
            self._peeks, self._results[uuid] = self._peeks.ask(peek), Future()

    monkeypatch.setattr(Controller, "cancel_peek", half)


def answers_a_copy_as_a_peek(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = PeekSession.finished

    def plain(self: PeekSession, *facts: Any) -> Any:
        session, actions = finished(self, *facts)
        return session, tuple(
            AnswerPeek(action.nonce, PeekResponse(action.response.uuid, NOTHING))
            for action in actions
            if isinstance(action, AnswerPeek)
        )

    monkeypatch.setattr(PeekSession, "finished", plain)


def goes_on_without_what_it_could_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    write = ResponseWriter.write

    def lossy(self: ResponseWriter, nonce: str, responses: Any) -> None:
        is_lost = any(isinstance(response, PeekResponse) for response in responses)
        if not is_lost or not self._logs.rng.random() < LOST:  # type: ignore[attr-defined]
            write(self, nonce, responses)

    monkeypatch.setattr(ResponseWriter, "write", lossy)


def asks_nobody_who_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = OpenPeeks.heard
    monkeypatch.setattr(OpenPeeks, "heard", lambda self, process: (heard(self, process)[0], ()))


@dataclass(frozen=True)
class Broken:
    """A mutation, what its breach says, and the first run that shows it, if it is not run 0."""

    mutate: Callable[[pytest.MonkeyPatch], None]
    rule: str
    found: int = 0


BROKEN = (
    Broken(answers_what_is_sent_again, "a peek has one answer", found=10),
    Broken(answers_peeks_of_the_old_life, "an answer is to a peek of the iteration"),
    Broken(keeps_peeks_in_the_history, "a peek is not in the reduced history"),
    Broken(sends_again_what_was_canceled, "a canceled peek is not sent again"),
    Broken(answers_a_copy_as_a_peek, "an answer is to a peek of the iteration"),
    Broken(goes_on_without_what_it_could_not_answer, "Peek(uuid=", found=1),
    Broken(asks_nobody_who_joins, "Peek(uuid=", found=1),
)


@pytest.mark.parametrize(
    "broken", BROKEN, ids=[mutation.mutate.__name__ for mutation in BROKEN]
)
def test_a_broken_rule_of_peeks_shows(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    broken.mutate(monkeypatch)
    seeds = range(broken.found, broken.found + MOST_RUNS)
    breaches = (breach(Run(seed, monkeypatch)) for seed in seeds)
    said = next(filter(None, breaches), "no run shows it")
    assert broken.rule in said


def breach(run: Run) -> str:
    """What was wrong in a run; empty if nothing was."""
    try:
        for _ in range(STEPS):
            run.step()
        run.calm()
        run.check()
    except (AssertionError, Breach) as wrong:
        return str(wrong)
    return ""
