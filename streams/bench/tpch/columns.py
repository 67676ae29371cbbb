"""The columns of TPC-H's tables, of the types in which `tpchgen-cli` writes them.

Source: TPC Benchmark H, revision 3.0.1, chapter 1.4.
"""

from streams.ids import CollectionId
from streams.plan.compile import Relation
from streams.plan.physical import Column

_MONEY = "DECIMAL(15,2)"
_TEXT = "VARCHAR"


def _described(prefix: str, text: str) -> dict[str, str]:
    """`key k, name t` as columns: a key is a BIGINT, t a text, m money, i an INTEGER."""
    kinds = {"k": "BIGINT", "t": _TEXT, "m": _MONEY, "i": "INTEGER", "d": "DATE"}
    pairs = (part.split() for part in text.split(","))
    return {f"{prefix}_{name}": kinds[kind] for name, kind in pairs}


COLUMNS = {
    "region": _described("r", "regionkey k, name t, comment t"),
    "nation": _described("n", "nationkey k, name t, regionkey k, comment t"),
    "supplier": _described(
        "s", "suppkey k, name t, address t, nationkey k, phone t, acctbal m, comment t"
    ),
    "customer": _described(
        "c",
        "custkey k, name t, address t, nationkey k, phone t, acctbal m, mktsegment t,"
        " comment t",
    ),
    "part": _described(
        "p",
        "partkey k, name t, mfgr t, brand t, type t, size i, container t, retailprice m,"
        " comment t",
    ),
    "partsupp": _described("ps", "partkey k, suppkey k, availqty i, supplycost m, comment t"),
    "orders": _described(
        "o",
        "orderkey k, custkey k, orderstatus t, totalprice m, orderdate d, orderpriority t,"
        " clerk t, shippriority i, comment t",
    ),
    "lineitem": _described(
        "l",
        "orderkey k, partkey k, suppkey k, linenumber i, quantity m, extendedprice m,"
        " discount m, tax m, returnflag t, linestatus t, shipdate d, commitdate d,"
        " receiptdate d, shipinstruct t, shipmode t, comment t",
    ),
}


def catalog() -> dict[str, Relation]:
    """The tables as relations, for planning alone."""
    return {
        name: Relation(CollectionId(name), tuple(Column(*pair) for pair in columns.items()))
        for name, columns in COLUMNS.items()
    }
