# ruff: noqa: E501 - a query is easier to read as the benchmark's kin have it
"""A retailer's star schema in the manner of TPC-DS, and the queries that one is asked.

Three channels sell the same items to the same customers; every row comes once, some go, and
some come back changed. Money has NULLs, and so have the foreign keys of sales.

Source: TPC-DS 4.0, chapters 2 (schema) and 5 (its classes of queries: reporting, windows over
channels, roll-ups, set operations between channels); the queries are our own.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.contents import Contents, inserted

TABLES = (
    "date_dim", "item", "store", "customer", "store_sales", "web_sales", "catalog_sales",
)  # fmt: skip
INSERTS, TIMES = 3, 6
DAYS = 730
CLASSES = {"Books": ["fiction", "travel"], "Music": ["rock", "pop"], "Home": ["bedding"]}
MONEY = pa.decimal128(7, 2)
STATES = ["TN", "SD", "GA", None]


def retail(sales: int) -> Contents:
    """All tables with a life; there are `sales` sales in the shops, half as many elsewhere."""
    rng = np.random.default_rng(3)
    tables = {
        "date_dim": _days(),
        "item": _items(40, rng),
        "store": _stores(6, rng),
        "customer": _customers(60, rng),
        "store_sales": _sales("ss", sales, rng),
        "web_sales": _sales("ws", sales // 2, rng),
        "catalog_sales": _sales("cs", sales // 2, rng),
    }
    updates = {name: _lived(table, rng) for name, table in tables.items()}
    return Contents(updates)


def read_by(text: str) -> list[str]:
    """The tables that a query reads."""
    return [name for name in TABLES if re.search(rf"\b{name}\b", text)]


def _lived(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Rows come, a tenth go later, and half of these come back as others: an update."""
    insertions = inserted(table, INSERTS, rng)
    deletions = insertions.take(pa.array(np.flatnonzero(rng.random(insertions.num_rows) < 0.1)))
    at = rng.integers(INSERTS, TIMES, deletions.num_rows)
    deletions = _set(
        _set(deletions, "_time", pa.array(at)), "_diff", pa.array(np.full(len(at), -1))
    )
    parts = [insertions, deletions]
    ticket, price = (
        next((c for c in table.column_names if c.endswith(end)), None)
        for end in ("_ticket", "_sales_price")
    )
    if ticket and price:
        back = _set(
            deletions.slice(0, deletions.num_rows // 2),
            "_diff",
            pa.array(np.ones(deletions.num_rows // 2, np.int64)),
        )
        back = _set(back, ticket, pc.add(back[ticket], 100_000))
        parts.append(_set(back, price, pc.add(back[price], pa.scalar(1, MONEY)).cast(MONEY)))
    return pa.concat_tables(parts)


def _set(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), values)


def _days() -> pa.Table:
    days = np.arange(DAYS)
    dates = np.datetime64("1999-01-01") + days
    months = dates.astype("datetime64[M]").astype(int)
    return pa.table(
        {
            "d_date_sk": days,
            "d_date": pa.array(dates),
            "d_year": 1970 + months // 12,
            "d_moy": months % 12 + 1,
            "d_qoy": months % 12 // 3 + 1,
            "d_week_seq": days // 7,
        }
    )


def _items(count: int, rng: np.random.Generator) -> pa.Table:
    pairs = [(category, kind) for category, kinds in CLASSES.items() for kind in kinds]
    chosen = [pairs[i] for i in rng.integers(0, len(pairs), count)]
    return pa.table(
        {
            "i_item_sk": np.arange(count),
            "i_category": [category for category, _ in chosen],
            "i_class": [kind for _, kind in chosen],
            "i_brand": [f"brand {i}" for i in rng.integers(0, 8, count)],
            "i_current_price": _money(count, rng, 50),
        }
    )


def _stores(count: int, rng: np.random.Generator) -> pa.Table:
    states = [STATES[i] for i in rng.integers(0, len(STATES), count)]
    names = [f"store {i}" for i in range(count)]
    return pa.table({"s_store_sk": np.arange(count), "s_store_name": names, "s_state": states})


def _customers(count: int, rng: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "c_customer_sk": np.arange(count),
            "c_last_name": [f"name {i}" for i in rng.integers(0, 25, count)],
            "c_birth_country": [["PERU", "CHAD", None][i] for i in rng.integers(0, 3, count)],
        }
    )


def _sales(prefix: str, count: int, rng: np.random.Generator) -> pa.Table:
    columns = {
        "ticket": np.arange(count),
        "sold_date_sk": _keys(DAYS, count, rng),
        "item_sk": rng.integers(0, 40, count),
        "customer_sk": _keys(60, count, rng),
        "quantity": rng.integers(1, 20, count),
        "sales_price": _money(count, rng, 100),
        "net_profit": _money(count, rng, 60),
    }
    if prefix == "ss":
        columns["store_sk"] = _keys(6, count, rng)
    return pa.table({f"{prefix}_{name}": values for name, values in columns.items()})


def _keys(most: int, count: int, rng: np.random.Generator) -> pa.Array:
    """Foreign keys, a few of them NULL and a few of nothing that is there."""
    return pa.array(rng.integers(0, most + 2, count), mask=rng.random(count) < 0.03)


def _money(count: int, rng: np.random.Generator, most: int) -> pa.Array:
    cents = rng.integers(-100, most * 100, count)
    there = pa.array(rng.random(count) >= 0.04).buffers()[1]
    values = pa.py_buffer(np.stack((cents, cents >> 63), axis=1).tobytes())  # 128 bits, signed
    return pa.Array.from_buffers(MONEY, count, [there, values])


_DATED = "store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk JOIN item ON ss_item_sk = i_item_sk"
_CHANNELS = (
    "SELECT 'store' AS channel, ss_item_sk AS item_sk, ss_sold_date_sk AS date_sk, ss_customer_sk AS customer_sk, ss_sales_price AS price, ss_net_profit AS profit FROM store_sales "
    "UNION ALL SELECT 'web', ws_item_sk, ws_sold_date_sk, ws_customer_sk, ws_sales_price, ws_net_profit FROM web_sales "
    "UNION ALL SELECT 'catalog', cs_item_sk, cs_sold_date_sk, cs_customer_sk, cs_sales_price, cs_net_profit FROM catalog_sales"
)

QUERIES = {
    "sales of a year by state, rolled up": f"SELECT i_category, i_class, s_state, sum(ss_sales_price) AS total, count(*) AS n, grouping(i_category, i_class, s_state) AS level FROM {_DATED} JOIN store ON ss_store_sk = s_store_sk WHERE d_year = 2000 GROUP BY ROLLUP (i_category, i_class, s_state)",
    "a cube of quantity and price": f"SELECT i_category, d_qoy, avg(ss_quantity) AS quantity, min(ss_sales_price) AS least, max(ss_sales_price) AS most FROM {_DATED} GROUP BY CUBE (i_category, d_qoy)",
    "grouping sets over channels": f"SELECT channel, i_brand, d_year, sum(price) AS total, count(DISTINCT customer_sk) AS customers FROM ({_CHANNELS}) s JOIN item ON item_sk = i_item_sk JOIN date_dim ON date_sk = d_date_sk GROUP BY GROUPING SETS ((channel, i_brand), (channel, d_year), (channel), ())",
    "margin ranked within its parent": f"SELECT i_category, i_class, margin, level, rank() OVER (PARTITION BY level, CASE WHEN level = 0 THEN i_category END ORDER BY margin) AS place FROM (SELECT i_category, i_class, sum(ss_net_profit) * 1.0 / nullif(sum(ss_sales_price), 0) AS margin, grouping(i_category) + grouping(i_class) AS level FROM {_DATED} GROUP BY ROLLUP (i_category, i_class))",
    "the best brands of each class": f"SELECT * FROM (SELECT i_class, i_brand, sum(ss_sales_price) AS total, rank() OVER (PARTITION BY i_class ORDER BY sum(ss_sales_price) DESC NULLS LAST) AS place FROM {_DATED} GROUP BY i_class, i_brand) WHERE place <= 3",
    "year over year by month": f"WITH monthly AS (SELECT i_brand, d_year, d_moy, sum(ss_sales_price) AS total FROM {_DATED} GROUP BY i_brand, d_year, d_moy) SELECT i_brand, d_year, d_moy, total, lag(total) OVER (PARTITION BY i_brand, d_moy ORDER BY d_year) AS before, total - lag(total) OVER (PARTITION BY i_brand, d_moy ORDER BY d_year) AS grown FROM monthly",
    "a month that differs from its year's mean": f"SELECT * FROM (SELECT i_category, d_year, d_moy, sum(ss_sales_price) AS total, avg(sum(ss_sales_price)) OVER (PARTITION BY i_category, d_year) AS mean FROM {_DATED} GROUP BY i_category, d_year, d_moy) WHERE mean > 0 AND abs(total - mean) / mean > 0.3",
    "neighbours in time by a join with itself": f"WITH v AS (SELECT i_category, d_year, d_qoy, sum(ss_sales_price) AS total, dense_rank() OVER (PARTITION BY i_category ORDER BY d_year, d_qoy) AS rn FROM {_DATED} GROUP BY i_category, d_year, d_qoy) SELECT now.i_category, now.d_year, now.d_qoy, now.total, before.total AS last, after.total AS next FROM v now JOIN v before ON now.i_category = before.i_category AND now.rn = before.rn + 1 JOIN v after ON now.i_category = after.i_category AND now.rn = after.rn - 1",
    "a moving sum of weeks": f"SELECT i_category, d_week_seq, sum(sum(ss_quantity)) OVER (PARTITION BY i_category ORDER BY d_week_seq ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS four_weeks FROM {_DATED} GROUP BY i_category, d_week_seq",
    "a moving average over a range of weeks": f"SELECT i_class, d_week_seq, avg(sum(ss_sales_price)) OVER (PARTITION BY i_class ORDER BY d_week_seq RANGE BETWEEN 8 PRECEDING AND 8 FOLLOWING) AS around FROM {_DATED} GROUP BY i_class, d_week_seq",
    "cumulative sums of two channels, side by side": "WITH web AS (SELECT ws_item_sk AS item_sk, d_year, sum(sum(ws_sales_price)) OVER (PARTITION BY ws_item_sk ORDER BY d_year) AS total FROM web_sales JOIN date_dim ON ws_sold_date_sk = d_date_sk GROUP BY ws_item_sk, d_year), shop AS (SELECT ss_item_sk AS item_sk, d_year, sum(sum(ss_sales_price)) OVER (PARTITION BY ss_item_sk ORDER BY d_year) AS total FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk GROUP BY ss_item_sk, d_year) SELECT coalesce(web.item_sk, shop.item_sk) AS item_sk, coalesce(web.d_year, shop.d_year) AS d_year, web.total AS web, shop.total AS shop FROM web FULL OUTER JOIN shop ON web.item_sk = shop.item_sk AND web.d_year = shop.d_year",
    "customers of all channels": "SELECT c_last_name FROM customer JOIN store_sales ON ss_customer_sk = c_customer_sk JOIN item ON ss_item_sk = i_item_sk WHERE i_category = 'Books' INTERSECT SELECT c_last_name FROM customer JOIN web_sales ON ws_customer_sk = c_customer_sk JOIN item ON ws_item_sk = i_item_sk WHERE i_category = 'Music' EXCEPT SELECT c_last_name FROM customer JOIN catalog_sales ON cs_customer_sk = c_customer_sk WHERE cs_quantity > 18",
    "what is sold in one channel more often": "SELECT ss_item_sk, ss_customer_sk FROM store_sales EXCEPT ALL SELECT ws_item_sk, ws_customer_sk FROM web_sales",
    "dearer than its category by a fifth": "SELECT i_item_sk, i_current_price, count(*) AS n FROM item i JOIN store_sales ON ss_item_sk = i_item_sk WHERE i_current_price > 1.2 * (SELECT avg(j.i_current_price) FROM item j WHERE j.i_category = i.i_category) GROUP BY i_item_sk, i_current_price",
    "customers that buy in shops and elsewhere": "SELECT c_birth_country, count(*) AS n FROM customer c WHERE EXISTS (SELECT * FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk WHERE ss_customer_sk = c.c_customer_sk AND d_year = 2000) AND (EXISTS (SELECT * FROM web_sales WHERE ws_customer_sk = c.c_customer_sk AND ws_quantity > 15) OR c.c_customer_sk NOT IN (SELECT cs_customer_sk FROM catalog_sales WHERE cs_customer_sk IS NOT NULL)) GROUP BY c_birth_country",
}
"""By what they ask."""
