"""Combines the journals of all actors, and reports entries that cannot be true. Pure.

Each write either took effect or did not: its writer's outcome says so, or the presence of its
witness row in the final contents. The effective writes determine the contents at every time and
the changes in every interval; each read is compared with these.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from streams.torture.journal import (
    Answer,
    Entry,
    Event,
    Followed,
    ReadResult,
    Row,
    Share,
    Update,
    Wrong,
    Wrote,
)

K = TypeVar("K", bound=Hashable)

MOST_ROWS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict: figures, and every violation, in the order found."""

    figures: dict[str, int]
    wrong: tuple[str, ...]


@dataclass(slots=True)
class CountedWrites:
    """The writes that counted, by collection."""

    shares: dict[str, list[Share]] = field(default_factory=lambda: defaultdict(list))
    updates: dict[str, list[Update]] = field(default_factory=lambda: defaultdict(list))

    def add(self, wrote: Wrote) -> None:
        """A write that counted."""
        for share in wrote.shares:
            self.shares[share.collection].append(share)
            self.updates[share.collection].extend(share.updates)

    def contents(self, looked: ReadResult) -> Counter[Row]:
        """The expected contents."""
        counts: Counter[Row] = Counter()
        for row, time, diff in self.updates[looked.collection]:
            if time <= looked.as_of and (looked.below is None or row[1] < looked.below):
                counts[row] += diff
        return alive(counts)

    def changes(self, followed: Followed) -> Counter[tuple[Row, int]]:
        """The expected changes."""
        counts: Counter[tuple[Row, int]] = Counter()
        for row, time, diff in self.updates[followed.collection]:
            is_inside = followed.lower <= time < followed.upper
            if is_inside and (followed.below is None or row[1] < followed.below):
                counts[row, time] += diff
        return alive(counts)


def judge(entries: Sequence[Entry]) -> Verdict:
    """Compare everything with everything."""
    wrong = [f"{entry.who}: {entry.what}" for entry in entries if isinstance(entry, Wrong)]
    outcomes = {entry.id: entry.counted for entry in entries if isinstance(entry, Answer)}
    last = {
        entry.collection: {row for row, _ in entry.contents}
        for entry in entries
        if isinstance(entry, ReadResult) and entry.is_last
    }
    truth = CountedWrites()
    doubts = 0
    for entry in entries:
        if not isinstance(entry, Wrote):
            continue
        witnessed = {share.witness in last.get(share.collection, ()) for share in entry.shares}
        if len(witnessed) > 1:
            wrong.append(f"write {entry.id}: half of it is there: {entry.shares}")
        counted = outcomes.get(entry.id)
        doubts += counted is None
        if counted is not None and witnessed != {counted}:
            wrong.append(contradiction(entry, counted=counted))
        if counted or (counted is None and witnessed == {True}):
            truth.add(entry)
    wrong.extend(overlaps(truth))
    wrong.extend(misread(truth, entries))
    return Verdict(figures(entries, outcomes, doubts), tuple(wrong))


def contradiction(wrote: Wrote, *, counted: bool) -> str:
    """A write that exists and should not, or that is missing."""
    places = ", ".join(f"{s.collection} [{s.lower}, {s.upper})" for s in wrote.shares)
    said, is_there = ("counted", "not there") if counted else ("did not count", "there")
    return f"write {wrote.id} of {places}: told that it {said}, and it is {is_there}"


def overlaps(truth: CountedWrites) -> Iterator[str]:
    """Two writes of one capability that both counted for the same time."""
    for collection, shares in truth.shares.items():
        by_capability: dict[str, list[Share]] = defaultdict(list)
        for share in shares:
            by_capability[share.capability].append(share)
        for mine in by_capability.values():
            mine.sort(key=lambda share: (share.lower, share.upper))
            for share, next_ in pairwise(mine):
                if next_.lower < share.upper:
                    yield (
                        f"collection {collection}: {share.witness} has"
                        f" [{share.lower}, {share.upper}) and {next_.witness} has"
                        f" [{next_.lower}, {next_.upper}) as well"
                    )


def misread(truth: CountedWrites, entries: Iterable[Entry]) -> Iterator[str]:
    """The reads that differ from the truth."""
    for entry in entries:
        match entry:
            case ReadResult():
                place = f"{entry.reader} read {entry.collection} as of {entry.as_of}"
                yield from difference(place, truth.contents(entry), total(entry.contents))
            case Followed():
                interval = f"[{entry.lower}, {entry.upper})"
                place = f"{entry.reader} followed {entry.collection} in {interval}"
                contents = total(((row, time), diff) for row, time, diff in entry.updates)
                yield from difference(place, truth.changes(entry), contents)
            case Wrote() | Answer() | Wrong() | Event():
                pass


def difference(place: str, expected: Counter[K], actual: Counter[K]) -> Iterator[str]:
    """The differences as text."""
    if expected == actual:
        return
    missing = {k: n for k in expected if (n := expected[k] - actual[k])}
    surplus = {k: n for k in actual if (n := actual[k] - expected[k]) and k not in expected}
    yield f"{place}: missing {few(missing)}, too much {few(surplus)}"


def few(differences: dict[K, int]) -> str:
    """The first of many."""
    first = sorted(differences.items(), key=str)[:MOST_ROWS_SHOWN]
    shown = ", ".join(f"{key} x {count}" for key, count in first)
    more = len(differences) - MOST_ROWS_SHOWN
    return (shown or "nothing") + (f" and {more} more" if more > 0 else "")


def total(pairs: Iterable[tuple[K, int]]) -> Counter[K]:
    """The multiplicity of each; zeros are left out."""
    counts: Counter[K] = Counter()
    for key, count in pairs:
        counts[key] += count
    return alive(counts)


def alive(rows: Counter[K]) -> Counter[K]:
    """The entries of nonzero multiplicity."""
    return Counter({key: count for key, count in rows.items() if count})


def figures(entries: Sequence[Entry], outcomes: dict[str, bool], doubts: int) -> dict[str, int]:
    """The figures of a summary."""
    counts: Counter[str] = Counter()
    for entry in entries:
        match entry:
            case Event(_, what, times):
                counts[what] += times
            case ReadResult() | Followed():
                counts["reads checked"] += 1
            case Wrote() | Answer() | Wrong():
                pass
    counted = sum(outcomes.values())
    return {
        "appends": counted,
        "races lost": counts.pop("races lost", 0),
        "in doubt": doubts,
        "reads checked": counts.pop("reads checked", 0),
        **dict(sorted(counts.items())),
    }
