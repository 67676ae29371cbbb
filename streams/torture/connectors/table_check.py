"""Checks the tables as one reader sees them at one moment.

The table of checkpoints says up to which time each key is written. Each table must have, for
each key, the contents of its collection just before that time: no row lost, none twice, and no
time earlier than the reader has seen before. If all keys are at one time, the sum of each table
is 0.
"""

import base64
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.consumer_pb2 import Checkpoint
from schemas.flow_hash import key_hash
from schemas.flow_tuple import pack
from streams.ids import CollectionId
from streams.torture.connectors.ledger import (
    ACCOUNTS,
    BIRTH,
    BRANCHES,
    HOLDERS,
    OFFICES,
    Ledger,
    difference,
)

TASK = "bank"
KEYS = {
    ACCOUNTS: [f"a{number}" for number in range(HOLDERS)],
    BRANCHES: [f"b{number}" for number in range(OFFICES)],
}
HASHES = {
    key: int(hashed)
    for keys in KEYS.values()
    for key, hashed in zip(keys, key_hash([pack([key]) for key in keys]), strict=True)
}
PLACES = {"balances": ACCOUNTS, "branches": BRANCHES, "log": ACCOUNTS}
"""Tables, and the collections in them; the log has every change."""
RANGES = (
    "SELECT key_begin, key_end, opened, checkpoint FROM slackwater_checkpoints"
    f" WHERE task = '{TASK}'"
)
TABLES = {
    "balances": "SELECT account, amount FROM balances",
    "branches": "SELECT branch, total FROM branches",
    "log": "SELECT account, amount, slackwater_time, slackwater_diff FROM log",
}
Rows = Sequence[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class TableContents:
    """The rows of `RANGES`, and those of the tables that are there, of one transaction."""

    ranges: Rows
    tables: Mapping[str, Rows]


@dataclass(slots=True)
class TableReader:
    """Compares the tables with the ledger; remembers the time of each key."""

    ledger: Ledger
    before: Counter[tuple[str, str]] = field(default_factory=Counter)
    looks: int = 0
    choosy: int = 0
    """The table of balances refuses multiples of it; 0: it takes all amounts."""

    def look(self, seen: TableContents) -> Iterator[str]:
        """Everything that is wrong."""
        self.looks += 1
        for table, rows in seen.tables.items():
            frontiers = written(seen.ranges, table, KEYS[PLACES[table]])
            for key, reached in frontiers.items():
                before = self.before[table, key]
                if reached < before:
                    yield f"{table}: {key} goes back from {before} to {reached}"
                self.before[table, key] = reached
            if self.choosy and table == "balances":
                continue  # it is written in steps, and what is refused is left out
            check = self._log if table == "log" else self._table
            yield from check(table, rows, frontiers)

    def left_out(self, seen: TableContents, told: Mapping[str, int]) -> Iterator[str]:
        """Everything that is wrong with the table that refuses some, once all is written.

        A key whose last amount is refused keeps what was accepted before, and there is a letter
        of it. The others are as without dead letters.
        """
        expected = self.ledger.at(ACCOUNTS, self.ledger.upper - 1)
        rows = seen.tables["balances"]
        actual = {str(key): int(str(amount)) for key, amount in rows}
        if len(actual) != len(rows):
            yield f"balances: a key twice in {rows}"
        for key in KEYS[ACCOUNTS]:
            amount, kept = expected.get(key), actual.get(key)
            if amount is None or amount % self.choosy:
                if kept != amount:
                    yield f"balances: {key}: expected {amount}, actual {kept}"
                continue
            if told.get(key) != amount:
                yield f"balances: {key}: no letter of {amount}, but of {told.get(key)}"
            if kept is not None and not self._was(key, kept):
                yield f"balances: {key}: it never had {kept}"

    def _was(self, key: str, amount: int) -> bool:
        times = range(BIRTH, self.ledger.upper)
        return any(self.ledger.at(ACCOUNTS, time).get(key) == amount for time in times)

    def _table(self, table: str, rows: Rows, frontiers: Mapping[str, int]) -> Iterator[str]:
        """A table with a key has the contents."""
        actual = Counter((str(key), int(str(amount))) for key, amount in rows)
        expected: Counter[tuple[str, int]] = Counter()
        for key, reached in frontiers.items():
            amount = self._contents(table, reached).get(key)
            if amount is not None:
                expected[key, amount] = 1
        yield from compared(table, expected, actual)
        is_one_time = len(set(frontiers.values())) == 1
        if is_one_time and (total := sum(amount for _, amount in actual.elements())):
            yield f"{table}: the sum is {total}"

    def _log(self, table: str, rows: Rows, frontiers: Mapping[str, int]) -> Iterator[str]:
        """A table of delta updates has every change since the first that a key has."""
        changes: dict[str, Counter[tuple[str, int, int, int]]] = defaultdict(Counter)
        for key, amount, time, diff in rows:
            row = (str(key), int(str(amount)), int(str(time)), int(str(diff)))
            changes[row[0]][row] += 1
        for key, reached in frontiers.items():
            first = min((time for _, _, time, _ in changes[key]), default=reached - 1)
            expected = self._history(PLACES[table], key, first, reached)
            yield from compared(table, expected, changes[key])

    def _history(
        self, collection: CollectionId, key: str, first: int, reached: int
    ) -> Counter[tuple[str, int, int, int]]:
        """The contents at the first time, and the changes after it."""
        if not reached:
            return Counter()
        before: Mapping[str, int] = {}
        counts: Counter[tuple[str, int, int, int]] = Counter()
        for time in range(first, reached):
            after = self.ledger.at(collection, time)
            for changed, amount, diff in difference(before, after):
                if changed == key:
                    counts[key, amount, time, diff] += 1
            before = after
        return counts

    def _contents(self, table: str, reached: int) -> Mapping[str, int]:
        return self.ledger.at(PLACES[table], reached - 1) if reached else {}


def written(ranges: Rows, table: str, keys: Sequence[str]) -> dict[str, int]:
    """For each key, the time before which it is written; 0 if it never was.

    Of the ranges that have the key, the one opened last that has committed counts.
    """
    latest: dict[str, tuple[int, int]] = dict.fromkeys(keys, (0, 0))
    for begin, end, opened, text in ranges:
        for name, source in Checkpoint.FromString(base64.b64decode(str(text))).sources.items():
            source_key, _, place = name.partition(";")
            part = source_key.partition("@")[2]
            low, high = (int(bound, 16) for bound in part.split("-")) if part else (begin, end)
            for key in keys if place == table else ():
                if int(str(low)) <= HASHES[key] <= int(str(high)):
                    latest[key] = max(latest[key], (int(str(opened)), source.read_through))
    return {key: reached for key, (_, reached) in latest.items()}


def compared(table: str, expected: Counter, actual: Counter) -> Iterator[str]:  # type: ignore[type-arg]
    """The differences as text."""
    if expected != actual:
        missing, surplus = expected - actual, actual - expected
        yield f"{table}: missing {sorted(missing)}, too much {sorted(surplus)}"
