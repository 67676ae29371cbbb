"""Honest sessions during the attack: reads, DDL statements, a subscription.

What they read is the honest view, and others like it that they make and drop. After n messages
its row is (n, 1 + .. + n): so every answer says by itself whether it is right, whatever was
published meanwhile. Each session has a thread, and says in `problem` what was wrong or late;
the subscription's is in `streams.torture.hostile.subscription_check`.

A statement that is refused or cut off is asked again until patience is over: on a machine that
others load it may meet its limit of time. Patience is counted by a fair clock.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle

from streams.app.client import Client, StatementResult
from streams.errors import SlackwaterError

Row = tuple[object, ...]
PAUSE_S = 0.2
DDL_PAUSE_S = 1.0
ASK_AGAIN_S = 0.1


class Ended(Exception):
    """The session is over: there are no more requests."""


def total(messages: int) -> int:
    """The expected sum of the first messages."""
    return messages * (messages + 1) // 2


def wrong(rows: Sequence[Row], least: int) -> str:
    """The errors in the contents of a view that saw `least` messages before."""
    if len(rows) != 1:
        return f"expected one row, actual {list(rows)[:3]}"
    ((seen, actual),) = rows
    if not isinstance(seen, int) or int(str(actual or 0)) != total(seen):
        return f"expected the sum of the first {seen} messages, actual {actual}"
    return f"it went back from {least} messages to {seen}" if seen < least else ""


@dataclass(slots=True)
class Session:
    """Shared code of sessions: a client, patience, and an end.

    `published` tells how many messages were flushed so far.
    """

    client: Client
    patience_s: float
    now_s: Callable[[], float]
    published: Callable[[], int]
    problem: str = ""
    figures: Counter[str] = field(default_factory=Counter)
    _ended: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()

    def begin(self, name: str, turns: Callable[["Session"], Iterator[None]]) -> None:
        """Take turns in a thread until something is wrong, or the end."""

        def run() -> None:
            try:
                for _ in turns(self):
                    if self.problem or self._ended.is_set():
                        return
            except Ended:
                return
            except SlackwaterError as error:
                self.problem = f"{type(error).__name__}: {error}"
            if not self._ended.is_set():
                self.problem = f"{name}: {self.problem or 'it ended'}"

        threading.Thread(target=run, name=name, daemon=True).start()

    def pause(self, seconds: float) -> None:
        """Wait. Errors: Ended."""
        if self._ended.wait(seconds):
            raise Ended

    def until(self, done: Callable[[], str]) -> str:
        """Try until nothing is missing; what is missing when patience is over, else empty.

        Errors: Ended.
        """
        began = self.now_s()
        while True:
            try:
                missing = done()
            except SlackwaterError as error:
                missing = f"{type(error).__name__}: {error}"
            late = self.now_s() - began > self.patience_s
            if not missing or late:
                return missing and f"not within {self.patience_s:g} s: {missing}"
            self.figures["asked again"] += 1
            self.pause(ASK_AGAIN_S)


def reads(session: Session, view: str, source: str) -> Iterator[None]:
    """The view, and what it means over its source, at times that never decrease."""
    client, seen, at = session.client.in_session(), 0, 0
    texts = (
        f"SELECT n, total FROM {view}",
        f"SELECT count(*) AS n, sum(v) AS total FROM {source}",
    )
    for text in cycle(texts):
        answers: list[StatementResult] = []
        late = session.until(partial(ask, client, text, answers))
        if not late:
            (answer,) = answers
            before, at = at, int(str(answer.facts["as_of"]))
            late = wrong(answer.rows, seen)
            if at < before:
                late = f"the time of a session went back from {before} to {at}"
            seen = max(seen, *(int(str(row[0])) for row in answer.rows), 0)
        session.problem = late and f"{text}: {late}"
        session.figures["honest selects"] += 1
        yield
        session.pause(PAUSE_S)


def ask(client: Client, text: str, answers: list[StatementResult]) -> str:
    """Put the answers to a text into the list."""
    answers[:] = client.run(text)
    return ""


def definitions(session: Session, topic: str) -> Iterator[None]:
    """A source and a view over it, made, read and dropped, again and again."""
    there = partial(made, session.client, wanted=True)
    gone = partial(made, session.client, wanted=False)
    for number in count(1):
        source, view = f"honest_source_{number}", f"honest_view_{number}"
        steps = (
            partial(there, source, create_source(source, topic)),
            partial(there, view, create_view(view, source)),
            partial(complete, session.client, view, session.published()),
            partial(gone, view, f"DROP MATERIALIZED VIEW {view}"),
            partial(gone, source, f"DROP SOURCE {source}"),
        )
        for step in steps:
            late = session.until(step)
            session.problem = late and f"{view}: {late}"
            yield
        session.figures["honest views made and dropped"] += 1
        session.pause(DDL_PAUSE_S)


def create_source(name: str, topic: str) -> str:
    """The statement for a source of numbers."""
    return (
        f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') (v BIGINT)"
        " FORMAT JSON ENVELOPE NONE"
    )


def create_view(name: str, source: str) -> str:
    """The statement for a view that `wrong` knows."""
    return (
        f"CREATE MATERIALIZED VIEW {name} AS"
        f" SELECT count(*) AS n, sum(v) AS total FROM {source}"
    )


def made(client: Client, name: str, text: str, *, wanted: bool) -> str:
    """Make or drop an object, unless that is done: an answer that was cut off tells nothing."""
    if (name in names(client)) is not wanted:
        client.run(text)
    return "" if (name in names(client)) is wanted else f"{text}: it is as before"


def names(client: Client) -> frozenset[str]:
    """The objects there are. Errors: Determinate."""
    return frozenset(str(object_["name"]) for object_ in client.objects())


def complete(client: Client, view: str, least: int) -> str:
    """Return what is wrong or missing in a view of so many messages; empty for nothing."""
    (answer,) = client.run(f"SELECT n, total FROM {view}")
    said = wrong(answer.rows, 0)
    if said:
        return said
    seen = int(str(answer.rows[0][0]))
    return "" if seen >= least else f"{seen} of {least} messages seen"
