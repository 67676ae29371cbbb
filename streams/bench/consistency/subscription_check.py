"""Checks subscriptions: rebuilds the bank's books from the changes of each view.

Changes of all views are entered in the order of their times, as far as every subscription has
promised to be complete; after each time the books must be right. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streams.bench.consistency.bank import CHECKS, IN_TIME

Row = tuple[int | None, ...]


@dataclass(slots=True)
class Tally:
    """The number of observations, and of wrong ones."""

    observations: int = 0
    wrong: int = 0

    def note(self, *, holds: bool) -> None:
        """Count an observation."""
        self.observations += 1
        self.wrong += not holds


def tallies(names: Iterable[str]) -> dict[str, Tally]:
    """A tally for each name."""
    return {name: Tally() for name in names}


@dataclass(slots=True)
class SubscriptionState:
    """The state of one view's subscription.

    `frontier` is how far it is complete; `entries` are changes not entered yet, by time.
    """

    frontier: int = 0
    began: int | None = None
    entries: dict[int, list[tuple[Row, int]]] = field(default_factory=dict)
    contents: Counter[Row] = field(default_factory=Counter)

    def enter(self, time: int) -> None:
        """Enter the changes of a time; rows that are there no times are gone."""
        for row, diff in self.entries.pop(time, ()):
            self.contents[row] += diff
            if not self.contents[row]:
                del self.contents[row]


@dataclass(slots=True)
class SubscriptionStates:
    """The books of all views, and what was found wrong with them.

    The views are those of `bank.VIEWS`, and `confirmations`, the source.
    """

    books: Mapping[str, SubscriptionState]
    tallies: dict[str, Tally] = field(default_factory=lambda: tallies([*CHECKS, IN_TIME]))
    entered: int = 0

    def heard(self, view: str, time: int, diff: int, row: Row) -> None:
        """A subscription says a change."""
        book = self.books[view]
        self.tallies[IN_TIME].note(holds=time >= book.frontier)
        book.entries.setdefault(time, []).append((row, diff))

    def complete(self, view: str, frontier: int) -> None:
        """A subscription says that it is complete before a time: first its snapshot."""
        book = self.books[view]
        book.began = frontier - 1 if book.began is None else book.began
        book.frontier = max(book.frontier, frontier)

    def judge(self) -> None:
        """Look at the books at every time of a change that is complete in all of them."""
        began = [book.began for book in self.books.values()]
        known_starts = [time for time in began if time is not None]
        if len(known_starts) < len(began):
            return
        first, until = max(known_starts), min(book.frontier for book in self.books.values())
        times = {time for book in self.books.values() for time in book.entries if time < until}
        for time in sorted(times):
            for book in self.books.values():
                book.enter(time)
            if time >= first:  # before, some book is not open yet
                self._look()
            self.entered = time

    def _look(self) -> None:
        contents = {name: book.contents for name, book in self.books.items()}
        for name, holds in right(contents).items():
            self.tallies[name].note(holds=holds)


def right(books: Mapping[str, Counter[Row]]) -> dict[str, bool]:
    """The bank's checks that hold, given the rows of each view by multiplicity."""
    credit, debit = _by_account(books["credits"]), _by_account(books["debits"])
    accepted = Counter(row[0] for row in books["accepted"].elements())
    confirmed = {row[0] for row in books["confirmations"]}
    settled = Counter(
        {(id_, id_ if id_ in confirmed else None): n for id_, n in accepted.items()}
    )
    balance = {
        (account, credit[account] - debit[account]): 1
        for account in credit.keys() & debit.keys()
    }
    checks = (
        books["total"] == {(0,): 1},
        sum(credit.values()) == sum(debit.values()) == accepted.total(),
        books["balance"] == balance,
        books["outer_join"] == {(id_, id_): n for id_, n in accepted.items()},
        books["confirmed"] == settled,
    )
    return dict(zip(CHECKS, checks, strict=True))


def _by_account(rows: Counter[Row]) -> Counter[int]:
    """The amounts of rows (account, amount), added up: there should be one of each account."""
    sums: Counter[int] = Counter()
    for (account, amount), count in rows.items():
        assert account is not None
        assert amount is not None
        sums[account] += amount * count
    return sums
