"""The process of a Spark job: its answer, and how it ends. The child is a stand-in."""

import pickle
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from connectors.backfill.outcome import Outcome
from streams.app.materialize import spark_process
from streams.app.materialize.spark_process import JobAnswer, Work, run
from streams.errors import Determinate, InvalidUsage

WORK = Work("local[1]", lambda: None, None, ())  # type: ignore[arg-type,return-value]  # unread
ANSWER = """
import pickle, sys
assert sys.stdin.buffer.read() == b"work"
for message in ({}):
    sys.stdout.buffer.write(pickle.dumps(message))
"""


def ignored(*_: int) -> None: ...


def child(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    def stand_in(_: Sequence[str]) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", program]

    monkeypatch.setattr(spark_process, "guarded", stand_in)
    monkeypatch.setattr(spark_process, "LOOK_S", 0.02)
    monkeypatch.setattr(pickle, "dump", lambda _, file: file.write(b"work"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (JobAnswer(7, {1: "key is not unique"}), Outcome(7, {1: "key is not unique"})),
        (JobAnswer(failure="no such master", can_pass=True), Determinate),
        (JobAnswer(failure="key is not unique"), InvalidUsage),
    ],
)
def test_its_answer_is_returned_or_raised(
    monkeypatch: pytest.MonkeyPatch, answer: JobAnswer, expected: Any
) -> None:
    child(monkeypatch, ANSWER.format([(1, 3), (2, 7), tuple(answer)]))
    told = list[tuple[int, int]]()
    if not answer.failure:
        assert run(WORK, threading.Event(), lambda *pair: told.append(pair)) == expected
        assert told == [(1, 3), (2, 7)]
        return
    with pytest.raises(expected, match=answer.failure):
        run(WORK, threading.Event(), ignored)


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import sys; sys.stdout.buffer.write(b'\\x80\\x05'); sys.exit(3)",
    ],
)
def test_a_death_without_an_answer_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    child(monkeypatch, program)
    with pytest.raises(Determinate, match=r"has ended with (-9|3) and no answer"):
        run(WORK, threading.Event(), ignored)


def test_progress_is_told_while_the_child_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    saying = "sys.stdout.buffer.write(pickle.dumps((1, 3))); sys.stdout.flush()"
    child(monkeypatch, f"import pickle, sys, time; {saying}; time.sleep(60)")
    stopping = threading.Event()
    with pytest.raises(Determinate, match="the job was stopped"):
        run(WORK, stopping, lambda *_: stopping.set())


@pytest.mark.parametrize("handler", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN);"])
def test_it_ends_once_nobody_wants_it(monkeypatch: pytest.MonkeyPatch, handler: str) -> None:
    child(monkeypatch, f"import signal, time; {handler} time.sleep(60)")
    monkeypatch.setattr(spark_process, "PATIENCE_S", 0.2)
    stopping = threading.Event()
    threading.Timer(0.3, stopping.set).start()
    began = time.monotonic()
    with pytest.raises(Determinate, match="the job was stopped"):
        run(WORK, stopping, lambda *_: None)
    assert time.monotonic() - began < 20


def test_what_fails_in_it_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        error: Exception = InvalidUsage("key is not unique")

        def session(self, *_: str) -> None: ...

        def run_in(self, *_: object) -> Outcome:
            raise self.error

    monkeypatch.setattr(spark_process, "module", lambda _: Failing())
    assert spark_process.attempt(WORK, ignored) == JobAnswer(
        failure="key is not unique", can_pass=False
    )
    monkeypatch.setattr(Failing, "error", Determinate("spark: no executor"))
    assert spark_process.attempt(WORK, ignored) == JobAnswer(
        failure="spark: no executor", can_pass=True
    )
