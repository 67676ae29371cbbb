"""Observes the running bank: subscriptions to all views, and repeated queries."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streams.app.client import Client, Message
from streams.bench.consistency.bank import CHECKS, OPENING, VIEWS, Transfers
from streams.bench.consistency.subscription_check import (
    Row,
    SubscriptionState,
    SubscriptionStates,
    Tally,
    tallies,
)
from streams.errors import Determinate, SlackwaterError

FOLLOWED = (*VIEWS, "confirmations")
LOT_S = 0.1
EVERY_S = 3
PATIENCE_S = 300.0
JUDGE_EVERY_S = 0.5

Publish = Callable[[list[str]], None]
Tell = Callable[[str, float], None]
"""Called with the current action, and the seconds that the bank has worked."""


@dataclass(slots=True)
class Watch:
    """Observations by check: through SUBSCRIBE and through SELECT.

    Messages of subscriptions come in threads of their own, and are entered by `judge`.
    """

    client: Client
    books: SubscriptionStates = field(
        default_factory=lambda: SubscriptionStates(
            {name: SubscriptionState() for name in FOLLOWED}
        )
    )
    selected: dict[str, Tally] = field(default_factory=lambda: tallies(CHECKS))
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False

    @property
    def subscribed(self) -> Mapping[str, Tally]:
        """Observations through SUBSCRIBE."""
        return self.books.tallies

    @property
    def wrong(self) -> int:
        """The number of wrong observations."""
        return sum(
            tally.wrong for tally in [*self.subscribed.values(), *self.selected.values()]
        )

    def begin(self) -> None:
        """Subscribe to everything, and ask from now on."""
        for name in FOLLOWED:
            threading.Thread(target=self._subscribe, args=(name,), daemon=True).start()
        threading.Thread(target=self._select, daemon=True).start()

    def judge(self) -> None:
        """Look at the books as far as they are complete."""
        with self.lock:
            self.books.judge()

    def end(self) -> None:
        """Look no more. Errors: Determinate when an observer could not go on."""
        self.ended = True
        self.judge()
        if self.failures:
            raise Determinate(f"an observer could not go on: {self.failures[0]}")

    def _subscribe(self, view: str) -> None:
        # the columns that the books need are the first two: of a transfer, who it was
        width = 1 if view == "accepted" else 2
        try:
            for message in self.client.stream(f"SUBSCRIBE {view}"):
                if self.ended:
                    return
                with self.lock:
                    self._hear(view, width, message)
        except SlackwaterError as failure:
            self._failed(f"SUBSCRIBE {view}: {failure}")

    def _hear(self, view: str, width: int, message: Message) -> None:
        match message:
            case {"type": "rows", "rows": list(rows)}:
                for at, diff, *row in rows:
                    data: Row = tuple(row[:width])
                    self.books.heard(view, at, diff, data)
            case {"type": "progress", "frontier": int(frontier)}:
                self.books.complete(view, frontier)
            case {"type": "error", "error": dict(error)}:
                self._failed(f"SUBSCRIBE {view}: {error['message']}")
            case _:
                pass

    def _select(self) -> None:
        try:
            for name, query in itertools.cycle(CHECKS.items()):
                if self.ended:
                    return
                ((holds,),) = self.client.run(query)[0].rows
                self.selected[name].note(holds=holds is True)
        except SlackwaterError as failure:
            self._failed(f"SELECT: {failure}")

    def _failed(self, what: str) -> None:
        if not self.ended:
            self.failures.append(what)


@dataclass(slots=True)
class Bank:
    """The bank at work: `rate` transfers a second, and confirmations that lag behind.

    Confirmations come for one second in every `EVERY_S`, at the pace of the transfers: so they
    fall behind more and more, and their topic often stands still.
    """

    transactions: Publish
    confirmations: Publish
    rate: int
    transfers: Transfers = field(default_factory=Transfers)
    by_event_time: bool = False

    def open(self) -> int:
        """Publish the first transfers; return the number that will be readable at least.

        By event time the last ones wait for later ones.
        """
        self.transactions(self.transfers.transactions(OPENING))
        if not self.by_event_time:
            return OPENING
        self.confirmations(self.transfers.nobodys())
        return OPENING // 2

    def work(self, is_done: Callable[[float], bool]) -> None:
        """Publish until `is_done`, asked after each lot with the seconds elapsed, says so."""
        began = time.monotonic()
        lot = max(1, int(self.rate * LOT_S))
        for number in itertools.count(1):
            self.transactions(self.transfers.transactions(lot))
            gone = time.monotonic() - began
            if int(gone) % EVERY_S == EVERY_S - 1:
                self.confirmations(self.transfers.confirmations(lot))
            if is_done(gone):
                return
            time.sleep(max(0.0, began + number * LOT_S - time.monotonic()))


class Companion(Protocol):
    """Another reader of the bank."""

    def begin(self, at_least: int) -> None:
        """The views are made, and have contents at this time."""

    def end(self, until: int) -> None:
        """The bank works no more; its last transfer is in the views at this time."""


def observe(
    client: Client,
    bank: Bank,
    seconds: float,
    tell: Tell,
    companion: Companion | None = None,
    is_enough: Callable[[Watch], bool] = lambda _: True,
) -> Watch:
    """Make the views, let the bank work, and read them continuously.

    The sources exist already. The bank works for so many seconds, and on until what was
    observed is enough.

    Errors: Determinate, Indeterminate, InvalidStatement when something cannot go on.
    """
    tell("the views are made", 0.0)
    opening = bank.open()
    for name, query in VIEWS.items():
        client.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    _await(lambda: _accepted(client) >= opening)
    watch, next_judged = Watch(client), [0.0]
    if companion is not None:
        companion.begin(_newest(client))
    watch.begin()

    def look(gone: float) -> bool:
        tell(f"{bank.rate:,} transfers a second", gone)
        if gone >= next_judged[0]:
            next_judged[0] = gone + JUDGE_EVERY_S
            watch.judge()
        return gone >= seconds and (is_enough(watch) or bool(watch.failures))

    bank.work(look)
    tell("the last ones are awaited", seconds)
    last = _newest(client)
    _await(lambda: _reached(watch, last) or bool(watch.failures))
    watch.end()
    if companion is not None:
        companion.end(last)
    return watch


def _accepted(client: Client) -> int:
    """The transfers at a time at which every view is read, and none ever before it again."""
    counts = ", ".join(f"(SELECT count(*) FROM {name}) AS {name}" for name in VIEWS)
    accepted = client.run(f"SELECT {counts}")[0].dicts()[0]["accepted"]
    assert isinstance(accepted, int)
    return accepted


def _newest(client: Client) -> int:
    """The newest time at which all views are readable."""
    as_of = client.run("SELECT count(*) FROM total, confirmed")[0].facts["as_of"]
    assert isinstance(as_of, int)
    return as_of


def _reached(watch: Watch, time_: int) -> bool:
    with watch.lock:
        return all(book.frontier > time_ for book in watch.books.books.values())


def _await(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise Determinate(f"the views did not finish in {PATIENCE_S:.0f} s")
        time.sleep(LOT_S)
