"""The ledger that is materialized: transfers between accounts and branches, with sums of 0.

It writes two collections and records their contents at every time. An account with a balance of
zero has no row, so rows are inserted and deleted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pyarrow as pa

from streams.ids import CollectionId, Timestamp
from streams.progress import frontier
from streams.storage.client.shards import Shards, write_capability
from streams.storage.description import Description
from streams.storage.log.events import Append, Part
from streams.storage.log.outcomes import Appended
from streams.trace.kernel.kernel import arrow_schema

BIRTH = Timestamp(10)
ACCOUNTS, BRANCHES = CollectionId("u1"), CollectionId("u2")
COLUMNS = {
    ACCOUNTS: Description((("account", "VARCHAR"), ("amount", "BIGINT")), ("account",)),
    BRANCHES: Description((("branch", "VARCHAR"), ("total", "BIGINT")), ("branch",)),
}
HOLDERS, OFFICES = 12, 4
Contents = Mapping[str, int]
"""The contents of a collection at one time: the amount of each key."""
Change = tuple[str, int, int]
"""Key, amount, diff."""


class Ledger:
    """Both collections. One thread."""

    def __init__(self, shards: Shards, rng: Random) -> None:
        self._shards, self._rng = shards, rng
        self.upper = Timestamp(BIRTH + 1)
        self._contents: dict[CollectionId, list[Contents]] = {id_: [{}] for id_ in COLUMNS}
        """The collection from the time before `BIRTH` + 1 on."""
        for id_, description in COLUMNS.items():
            shards.create(id_, id_, description, self.upper)

    def at(self, collection: CollectionId, time: int) -> Contents:
        """The contents at a time."""
        return self._contents[collection][time - BIRTH]

    def changes(self, collection: CollectionId, time: int) -> Sequence[Change]:
        """The changes at a time."""
        return difference(self.at(collection, time - 1), self.at(collection, time))

    def transfer(self, times: int) -> None:
        """Move money, some at each of so many times."""
        for _ in range(times):
            accounts = Counter(self.at(ACCOUNTS, self.upper - 1))
            for _ in range(self._rng.randint(1, 3)):
                giver, taker = self._rng.sample(range(HOLDERS), 2)
                amount = self._rng.randint(1, 3)
                accounts[f"a{giver}"] -= amount
                accounts[f"a{taker}"] += amount
            branches: Counter[str] = Counter()
            for account, amount in accounts.items():
                branches[f"b{int(account[1:]) % OFFICES}"] += amount
            self._contents[ACCOUNTS].append(alive(accounts))
            self._contents[BRANCHES].append(alive(branches))
            self.upper = Timestamp(self.upper + 1)
        for id_ in COLUMNS:
            self._append(id_, Timestamp(self.upper - times))

    def _append(self, id_: CollectionId, lower: Timestamp) -> None:
        """All changes since `lower`."""
        rows = [
            (key, amount, time, diff)
            for time in range(lower, self.upper)
            for key, amount, diff in self.changes(id_, time)
        ]
        schema = arrow_schema(COLUMNS[id_].types)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        part = Part(
            collection=id_,
            capability=write_capability(id_),
            lower=frontier(lower),
            upper=frontier(self.upper),
            chunks=self._shards.write(id_, pa.table(arrays, schema=schema)),
        )
        (outcome,) = self._shards.submit([(self._shards.group_of(id_), Append((part,)))])
        assert isinstance(outcome, Appended), f"the ledger writes alone: {outcome}"


def alive(amounts: Counter[str]) -> Contents:
    """The entries other than zero."""
    return {key: amount for key, amount in amounts.items() if amount}


def difference(before: Contents, after: Contents) -> list[Change]:
    """The changes from one time to the next."""
    gone = [(key, amount, -1) for key, amount in before.items() if after.get(key) != amount]
    new = [(key, amount, 1) for key, amount in after.items() if before.get(key) != amount]
    return [*gone, *new]
