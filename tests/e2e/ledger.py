"""What each observer of the bank has seen, and whether the ways agree. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Balances = Mapping[int, int]
Row = tuple[int, int]
"""An account and its balance."""


@dataclass
class Stretch:
    """Changes seen without a gap: from the first time on, and before `until`."""

    times: list[int] = field(default_factory=list)
    contents: list[Balances] = field(default_factory=list)
    until: int = 0

    def at(self, time: int) -> Balances | None:
        """The balances at a time; None where it is beyond what was seen."""
        place = bisect_right(self.times, time)
        return self.contents[place - 1] if place and time < self.until else None


@dataclass
class Way:
    """One way to observe: what was wrong, and how far it came when."""

    name: str
    observations: int = 0
    wrong: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    progress: list[tuple[float, int]] = field(default_factory=list)
    """By this machine's clock, in seconds: what it had reached then, in milliseconds."""
    stretches: list[Stretch] = field(default_factory=list)
    moments: dict[int, Balances] = field(default_factory=dict)
    """Answers at single times."""

    def check(self, what: str, *, holds: bool) -> None:
        """An invariant."""
        self.observations += 1
        if not holds:
            self.wrong.append(f"{self.name}: {what}")

    def balances(self, rows: Counter[Row], at: int) -> Balances:
        """Of rows by multiplicity: each account has one, and all are zero together."""
        balances = dict(rows.keys())
        self.check(f"{dict(rows)} at {at}", holds=rows.total() == len(balances) == len(rows))
        self.check(f"the sum of {balances} at {at}", holds=not sum(balances.values()))
        return balances

    def begin(self) -> None:
        """What follows may have a gap before it."""
        self.stretches.append(Stretch())

    def changed(self, at: int, balances: Balances) -> None:
        """These are the balances from a time on."""
        self.stretches[-1].times.append(at)
        self.stretches[-1].contents.append(balances)

    def complete(self, until: int, now: float) -> None:
        """All changes before a time were seen."""
        stretch = self.stretches[-1]
        self.check(f"{until} after {stretch.until}", holds=until >= stretch.until)
        stretch.until = until
        self.progress.append((now, until))

    def answered(self, at: int, balances: Balances) -> None:
        """These are the balances at a time: the same whenever they are asked for."""
        earlier = self.moments.setdefault(at, balances)
        self.check(f"{balances} at {at}, and before {earlier}", holds=earlier == balances)

    def at(self, time: int) -> Iterable[Balances]:
        """What it saw at a time."""
        seen = (stretch.at(time) for stretch in self.stretches)
        yield from (balances for balances in seen if balances is not None)
        if time in self.moments:
            yield self.moments[time]

    @property
    def times(self) -> set[int]:
        """The times of its changes and answers."""
        return {
            time for stretch in self.stretches for time in stretch.times
        } | self.moments.keys()


def disagreements(ways: Iterable[Way]) -> tuple[int, list[str]]:
    """How often two ways saw the same time, and where they saw another thing."""
    ways, compared, wrong = list(ways), 0, []
    for time in sorted(set[int]().union(*(way.times for way in ways))):
        seen = [(way.name, balances) for way in ways for balances in way.at(time)]
        compared += len(seen) - 1
        if any(balances != seen[0][1] for _, balances in seen[1:]):
            wrong.append(f"at {time}: {seen}")
    return compared, wrong
