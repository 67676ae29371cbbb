"""TPC-H's schema, small random tables, and its 22 queries to ask of them.

The values are few, so that every predicate meets some of them.

Source: TPC Benchmark H, revision 3.0.1, chapter 1.4.
"""

import random
from collections.abc import Iterator

from streams.bench.tpch import queries

_MONEY, _DATES = "DECIMAL(15,2)", "DATE"
_KEY = ["1", "2", "3"]
_DAY = [
    "'1993-08-01'",
    "'1994-02-01'",
    "'1994-09-01'",
    "'1995-03-20'",
    "'1995-09-10'",
    "'1996-02-01'",
]
_PHONE = ["'13-1'", "'31-2'", "'29-3'", "'55-1'"]
_PRICE = ["900.00", "1500.50", "20.25"]

POOLS: dict[str, dict[str, tuple[str, list[str]]]] = {
    "region": {
        "r_regionkey": ("INTEGER", _KEY),
        "r_name": ("VARCHAR", ["'EUROPE'", "'ASIA'", "'AMERICA'"]),
    },
    "nation": {
        "n_nationkey": ("INTEGER", _KEY),
        "n_name": (
            "VARCHAR",
            ["'GERMANY'", "'FRANCE'", "'BRAZIL'", "'CANADA'", "'SAUDI ARABIA'"],
        ),
        "n_regionkey": ("INTEGER", _KEY),
    },
    "supplier": {
        "s_suppkey": ("INTEGER", _KEY),
        "s_name": ("VARCHAR", ["'S1'", "'S2'"]),
        "s_address": ("VARCHAR", ["'A'"]),
        "s_nationkey": ("INTEGER", _KEY),
        "s_phone": ("VARCHAR", _PHONE),
        "s_acctbal": (_MONEY, _PRICE),
        "s_comment": ("VARCHAR", ["'fine'", "'Customer has Complaints'"]),
    },
    "customer": {
        "c_custkey": ("INTEGER", _KEY),
        "c_name": ("VARCHAR", ["'C1'", "'C2'"]),
        "c_address": ("VARCHAR", ["'A'"]),
        "c_nationkey": ("INTEGER", _KEY),
        "c_phone": ("VARCHAR", _PHONE),
        "c_acctbal": (_MONEY, ["-5.00", *_PRICE]),
        "c_mktsegment": ("VARCHAR", ["'BUILDING'", "'AUTOMOBILE'"]),
        "c_comment": ("VARCHAR", ["'fine'"]),
    },
    "part": {
        "p_partkey": ("INTEGER", _KEY),
        "p_name": ("VARCHAR", ["'forest green'", "'red'"]),
        "p_mfgr": ("VARCHAR", ["'M1'"]),
        "p_brand": ("VARCHAR", ["'Brand#12'", "'Brand#23'", "'Brand#45'"]),
        "p_type": (
            "VARCHAR",
            ["'ECONOMY ANODIZED STEEL'", "'PROMO BRASS'", "'MEDIUM POLISHED TIN'"],
        ),
        "p_size": ("INTEGER", ["3", "15"]),
        "p_container": ("VARCHAR", ["'SM CASE'", "'MED BOX'"]),
    },
    "partsupp": {
        "ps_partkey": ("INTEGER", _KEY),
        "ps_suppkey": ("INTEGER", _KEY),
        "ps_availqty": ("INTEGER", ["1", "50", "100"]),
        "ps_supplycost": (_MONEY, _PRICE),
    },
    "orders": {
        "o_orderkey": ("BIGINT", _KEY),
        "o_custkey": ("INTEGER", [*_KEY, "4"]),
        "o_orderstatus": ("VARCHAR", ["'F'", "'F'", "'O'"]),
        "o_totalprice": (_MONEY, _PRICE),
        "o_orderdate": (_DATES, _DAY),
        "o_orderpriority": ("VARCHAR", ["'1-URGENT'", "'5-LOW'"]),
        "o_shippriority": ("INTEGER", ["0"]),
        "o_comment": ("VARCHAR", ["'fine'", "'special requests'"]),
    },
    "lineitem": {
        "l_orderkey": ("BIGINT", _KEY),
        "l_partkey": ("INTEGER", _KEY),
        "l_suppkey": ("INTEGER", _KEY),
        "l_linenumber": ("INTEGER", ["1", "2"]),
        "l_quantity": (_MONEY, ["1.00", "10.00", "300.00"]),
        "l_extendedprice": (_MONEY, _PRICE),
        "l_discount": (_MONEY, ["0.05", "0.06", "0.10"]),
        "l_tax": (_MONEY, ["0.02"]),
        "l_returnflag": ("VARCHAR", ["'R'", "'N'"]),
        "l_linestatus": ("VARCHAR", ["'O'", "'F'"]),
        "l_shipdate": (_DATES, _DAY),
        "l_commitdate": (_DATES, _DAY),
        "l_receiptdate": (_DATES, _DAY),
        "l_shipinstruct": ("VARCHAR", ["'DELIVER IN PERSON'", "'NONE'"]),
        "l_shipmode": ("VARCHAR", ["'AIR'", "'MAIL'", "'SHIP'"]),
    },
}
COLUMNS = {name: {c: kind for c, (kind, _) in of.items()} for name, of in POOLS.items()}


def changes(
    chance: random.Random, table: str, times: int
) -> Iterator[tuple[list[str], int, int]]:
    """Rows of a table that are inserted, replaced and deleted, with time and diff."""
    pools = [pool for _, pool in POOLS[table].values()]
    live: list[list[str]] = []
    count = 24 if table in {"lineitem", "orders"} else 8
    for at in sorted(chance.choices(range(times), k=count)):
        if live and chance.random() < 0.25:
            yield live.pop(chance.randrange(len(live))), at, -1
        live.append([chance.choice(pool) for pool in pools])
        yield live[-1], at, 1


_WIDER = {
    # predicates that a few rows meet
    10: ("< DATE '1994-01-01'", "< DATE '1994-10-01'"),
    11: ("$FRACTION", "0.4"),
    12: ("< DATE '1995-01-01'", "< DATE '1997-01-01'"),
}
QUERIES = {
    number: text.replace(*_WIDER.get(number, ("", "")))
    for number, text in queries.QUERIES.items()
}
