"""A materialization by statements, in an environment whose service is killed, into SQLite."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streams.app.environment import Environment
from streams.errors import InvalidStatement
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ORDERS = 40


class Shop:
    """A source of orders, a view of them, and the file that they are kept in."""

    def __init__(self, environment: Environment, broker: EmbeddedBroker, path: Path) -> None:
        self.environment, self.path = environment, path / "shop.db"
        self.topic = raw_topic(broker.bootstrap)
        self.feed, self.numbers = Feed(broker.bootstrap), itertools.count()
        self.environment.sql(
            f"CREATE SOURCE morders FROM KAFKA (TOPIC '{self.topic}')"
            " (id BIGINT, customer BIGINT, amount BIGINT) FORMAT JSON;"
            "CREATE MATERIALIZED VIEW mtotals AS SELECT customer, count(*) AS orders,"
            " sum(amount)::BIGINT AS total FROM morders GROUP BY customer;"
            "CREATE MATERIALIZED VIEW mlarge AS SELECT * FROM morders WHERE amount > 5"
        )

    def order(self, count: int = ORDERS) -> None:
        ids = itertools.islice(self.numbers, count)
        rows = [{"id": id_, "customer": id_ % 7, "amount": id_ % 11} for id_ in ids]
        self.feed.send(self.topic, rows)

    def rows(self, *queries: str) -> list[Any]:
        """The rows of each query, all at one time; none as long as a table is not there."""
        if not self.path.exists():
            return [[] for _ in queries]
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            try:
                connection.execute("BEGIN")
                return [list(map(list, connection.execute(query))) for query in queries]
            except sqlite3.OperationalError:
                return [[] for _ in queries]

    def is_exact(self, orders: int, *, may_be_empty: bool = False) -> bool:
        """Whether the tables have so many orders, and agree with each other and the view.

        A table that is written again is empty from when it is made to the next commit.
        """
        (answer,) = self.environment.sql("SELECT * FROM mtotals ORDER BY customer")
        totals, changes, count = self.rows(
            "SELECT customer, orders, total FROM totals ORDER BY customer",
            "SELECT customer, sum(slackwater_diff), sum(amount * slackwater_diff) FROM log"
            " GROUP BY customer ORDER BY customer",
            "SELECT count(*), count(DISTINCT id) FROM log",
        )
        if may_be_empty and not totals:
            return False
        assert totals == changes, "both tables are at one time"
        return bool(
            totals == [list(row) for row in answer.rows] and count == [[orders, orders]]
        )

    def shown(self) -> dict[str, Any]:
        (answer,) = self.environment.sql("SHOW MATERIALIZATIONS")
        return {str(row[0]): row for row in answer.rows}


def test_it_is_created_altered_killed_and_dropped(
    environment: Environment, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = Shop(environment, broker, tmp_path)
    shop.order()
    environment.sql(
        f"CREATE MATERIALIZATION shop INTO SQLITE (PATH '{shop.path}')"
        " BIND mtotals (TABLE 'totals'), morders (TABLE 'log', DELTA UPDATES)"
    )
    eventually(lambda: shop.is_exact(ORDERS))
    eventually(lambda: shop.shown()["shop"][4] == "running")

    environment.kill("materializations")
    shop.order()
    eventually(lambda: shop.is_exact(2 * ORDERS))

    environment.sql("ALTER MATERIALIZATION shop PAUSE")
    eventually(lambda: shop.shown()["shop"][4] == "paused")
    shop.order()
    environment.sql("ALTER MATERIALIZATION shop ADD mlarge (TABLE 'large', KEY (id))")
    environment.sql("ALTER MATERIALIZATION shop RESUME")
    eventually(lambda: shop.is_exact(3 * ORDERS))
    (answer,) = environment.sql("SELECT count(*), sum(amount)::BIGINT FROM mlarge")
    large = "SELECT count(*), sum(amount) FROM large"
    eventually(lambda: shop.rows(large) == [[list(answer.rows[0])]])

    shop.path = tmp_path / "moved.db"
    with pytest.raises(InvalidStatement, match="option pathh is not known"):
        environment.sql(f"ALTER MATERIALIZATION shop SET (PATHH = '{shop.path}')")
    environment.sql(f"ALTER MATERIALIZATION shop SET (PATH = '{shop.path}')")
    eventually(lambda: shop.is_exact(3 * ORDERS))
    environment.sql("ALTER MATERIALIZATION shop ALTER BINDING mtotals SET (BACKFILL = 1)")
    shop.order()
    eventually(lambda: shop.is_exact(4 * ORDERS, may_be_empty=True))

    environment.sql("ALTER MATERIALIZATION shop DROP BINDING mlarge")
    environment.sql("DROP MATERIALIZED VIEW mlarge; DROP MATERIALIZATION shop")
    assert "shop" not in shop.shown()
    environment.sql("DROP MATERIALIZED VIEW mtotals; DROP SOURCE morders")
