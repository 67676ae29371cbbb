"""The bank: transfers between ten accounts, and the invariants of its books at every time.

The workload of Jamie Brandon's "Internal consistency in streaming systems" (2021,
scattered-thoughts.net): every transfer moves 1 from an account to another, so that the sum of
all balances is 0 in any subset of the transfers. Views over views, of which none may ever be
seen beside an older or newer version of another. Here transfers come in two topics that move at
different speeds: a transfer, and some time later its confirmation.

By event time a transfer happens a millisecond after the one before, and its confirmation when
it is sent; the sources have different delays. So the books are right after each transfer, and a
join of both topics waits for the one that lags.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

ACCOUNTS = 10
OPENING = 500
"""Transfers before the first read: an account without a payment has no balance."""
DISORDER = 100
"""A message may be overtaken by so many others."""
DELAYS_MS = (150, 40)
"""Of the sources by event time: transfers come in disorder."""
NOBODY = -1
"""The id of a confirmation of nothing: by event time one comes at the beginning."""

VIEWS: Mapping[str, str] = {
    "accepted": "SELECT * FROM transactions",
    "outer_join": """SELECT t.id, other.id AS other
        FROM transactions t LEFT JOIN transactions other ON t.id = other.id""",
    "credits": """SELECT to_account AS account, sum(amount)::BIGINT AS credits
        FROM accepted GROUP BY to_account""",
    "debits": """SELECT from_account AS account, sum(amount)::BIGINT AS debits
        FROM accepted GROUP BY from_account""",
    "balance": """SELECT account, credits - debits AS balance
        FROM credits JOIN debits USING (account)""",
    "total": "SELECT sum(balance)::BIGINT AS total FROM balance",
    "confirmed": """SELECT t.id, c.id AS confirmation
        FROM transactions t LEFT JOIN confirmations c ON t.id = c.id""",
}
"""The views, each after those it reads. In all of them BIGINT columns, and no nulls but one."""


def sources(
    transactions: str, confirmations: str, *, by_event_time: bool = False
) -> tuple[str, ...]:
    """The statements that make the sources over two topics."""
    times: tuple[str, ...] = ("ts VARCHAR", "ts VARCHAR")
    end = ""
    if by_event_time:
        times = tuple(
            f"ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '{delay_ms} milliseconds'"
            for delay_ms in DELAYS_MS
        )
        end = " WITH (IDLE AFTER '1 second')"
    return (
        f"CREATE SOURCE transactions FROM KAFKA (TOPIC '{transactions}') (id BIGINT,"
        f" from_account BIGINT, to_account BIGINT, amount BIGINT, {times[0]}) FORMAT JSON{end}",
        f"CREATE SOURCE confirmations FROM KAFKA (TOPIC '{confirmations}') (id BIGINT,"
        f" {times[1]}) FORMAT JSON{end}",
    )


def _same(left: str, other: str) -> str:
    return (
        f"SELECT count(*) = 0 FROM (({left} EXCEPT ALL {other})"
        f" UNION ALL ({other} EXCEPT ALL {left}))"
    )


CHECKS: Mapping[str, str] = {
    "total = 0": "SELECT count(*) = 1 AND bool_and(total = 0) FROM total",
    "credits = debits": """SELECT c.n = a.n AND d.n = a.n
        FROM (SELECT sum(credits) AS n FROM credits) c, (SELECT sum(debits) AS n FROM debits) d,
            (SELECT count(*) AS n FROM accepted) a""",
    "balance = credits - debits": _same(
        "(SELECT account, balance FROM balance)",
        "(SELECT account, credits - debits FROM credits JOIN debits USING (account))",
    ),
    "outer join": _same("(SELECT id, other FROM outer_join)", "(SELECT id, id FROM accepted)"),
    "confirmed once": _same(
        "(SELECT id, confirmation FROM confirmed)",
        "(SELECT t.id, c.id FROM accepted t LEFT JOIN confirmations c ON t.id = c.id)",
    ),
}
"""The invariants of every moment: queries of one boolean."""

IN_TIME = "nothing after its progress"
"""A promise of SUBSCRIBE alone: no update comes with a time that was said to be complete."""


@dataclass(slots=True)
class Transfers:
    """Makes messages, the same ones for the same seed.

    Confirmations are of transfers that were sent before, in another order, and never of all.
    """

    rng: random.Random = field(default_factory=lambda: random.Random(42))  # noqa: S311  a workload
    sent: int = 0
    unconfirmed: list[int] = field(default_factory=list)

    def transactions(self, count: int) -> list[str]:
        """The next transfers, slightly out of order."""
        transactions = list(self._transfers(count))
        order = sorted(range(count), key=lambda place: place + self.rng.uniform(0, DISORDER))
        return [transactions[place] for place in order]

    def _transfers(self, count: int) -> Iterator[str]:
        for id_ in range(self.sent, self.sent + count):
            self.unconfirmed.append(id_)
            yield json.dumps(
                {
                    "id": id_,
                    "from_account": self.rng.randrange(ACCOUNTS),
                    "to_account": self.rng.randrange(ACCOUNTS),
                    "amount": 1,
                    "ts": moment(id_),
                }
            )
        self.sent += count

    def confirmations(self, count: int) -> list[str]:
        """Confirmations of some of what was sent."""
        self.rng.shuffle(self.unconfirmed)
        taken = [self.unconfirmed.pop() for _ in range(min(count, len(self.unconfirmed)))]
        return [json.dumps({"id": id_, "ts": moment(self.sent)}) for id_ in taken]

    def nobodys(self) -> list[str]:
        """A confirmation of nothing, as late as the last transfer."""
        return [json.dumps({"id": NOBODY, "ts": moment(self.sent)})]


def moment(id_: int) -> str:
    """When a transfer happens."""
    return f"2021-01-01 00:{id_ // 60_000:02d}:{id_ // 1000 % 60:02d}.{id_ % 1000:03d}"
