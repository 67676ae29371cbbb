"""The queries that are run side by side, each with the columns it reads."""

from dataclasses import dataclass

from streams.ids import CollectionId
from streams.plan.compile import Relation
from streams.plan.physical import Column

_TYPES = {
    "id": "BIGINT", "name": "VARCHAR", "city": "VARCHAR", "state": "VARCHAR",
    "seller": "BIGINT", "category": "BIGINT", "expires": "TIMESTAMP", "dateTime": "TIMESTAMP",
    "auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A query, and the columns of each relation that it reads.

    With an end `closes` its windows are over the event time, `dateTime`, and each row comes
    once, when its window ends.
    """

    name: str
    reads: dict[str, tuple[str, ...]]
    query: str
    closes: str = ""

    @property
    def view(self) -> str:
        """The query of the view that keeps it."""
        return f"{self.query} EMIT ON CLOSE ({self.closes})" if self.closes else self.query

    @property
    def catalog(self) -> dict[str, Relation]:
        """The relations with just the columns that are read, as every system declares them."""
        return {kind: Relation(CollectionId(kind), self.columns(kind)) for kind in self.reads}

    def columns(self, kind: str) -> tuple[Column, ...]:
        """The columns of one relation that are read."""
        return tuple(Column(name, _TYPES[name]) for name in self.reads[kind])


_AUCTION_TIMES = ("id", "category", "dateTime", "expires")

CASES = {
    case.name: case
    for case in (
        Case(
            "aggregate",
            {"bid": ("auction", "price")},
            """SELECT auction, count(*) AS bids, sum(price)::BIGINT AS total,
                max(price) AS best FROM bid GROUP BY auction""",
        ),
        Case(
            "q3",
            {
                "auction": ("id", "seller", "category"),
                "person": ("id", "name", "city", "state"),
            },
            """SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p
                ON a.seller = p.id
                WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        ),
        Case(
            "q4",
            {"auction": _AUCTION_TIMES, "bid": ("auction", "price", "dateTime")},
            """SELECT category, avg(final) AS average FROM (
                    SELECT max(b.price) AS final, a.category
                    FROM auction a JOIN bid b ON a.id = b.auction
                    WHERE b.dateTime BETWEEN a.dateTime AND a.expires
                    GROUP BY a.id, a.category) best
                GROUP BY category""",
        ),
        Case(
            "q5",
            {"bid": ("auction", "dateTime")},
            """WITH hops AS (
                    SELECT auction, start, count(*) AS num FROM (
                        SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime)
                            - INTERVAL 2 SECOND * unnest(generate_series(0, 4)) AS start
                        FROM bid) hop
                    GROUP BY auction, start)
                SELECT hops.auction, hops.num FROM hops
                JOIN (SELECT start, max(num) AS most FROM hops GROUP BY start) hottest
                ON hops.start = hottest.start AND hops.num = hottest.most""",
        ),
        Case(
            "hop",
            {"bid": ("auction", "dateTime")},
            """SELECT auction, start, count(*) AS num FROM (
                    SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime)
                        - INTERVAL 2 SECOND * unnest(generate_series(0, 4)) AS start
                    FROM bid) hop
                GROUP BY auction, start""",
            "start + INTERVAL 10 SECOND",
        ),
        Case(
            "topk",
            {"bid": ("auction", "bidder", "price", "dateTime")},
            """SELECT auction, bidder, price, dateTime FROM bid QUALIFY row_number() OVER (
                PARTITION BY auction ORDER BY price DESC, dateTime, bidder) <= 10""",
        ),
    )
}
"""The cases by name; the names are the same in the peers' scripts."""
