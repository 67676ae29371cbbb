"""Relations without keys, edges of a graph among them, with few values: many rows match."""

import random

from tests.support.maintained import Tables, history

COLUMNS = {
    "e": {"src": "INTEGER", "dst": "INTEGER"},
    "a": {"id": "INTEGER", "k": "INTEGER", "v": "DOUBLE"},
    "b": {"id": "INTEGER", "k": "BIGINT", "l": "INTEGER", "v": "DOUBLE"},
    "c": {"id": "INTEGER", "l": "INTEGER", "s": "VARCHAR"},
}
_POOL = {
    "INTEGER": ["NULL", "0", "1", "2", "3"],
    "BIGINT": ["NULL", "0", "1", "2"],
    "DOUBLE": ["NULL", "'nan'", "0.0", "'-0.0'", "1.5"],
    "VARCHAR": ["NULL", "'x'", "'1'", "'2'"],
}
HOPS = "e x JOIN e y ON x.dst = y.src JOIN e z ON y.dst = z.src"


def tables(query: str, chance: random.Random) -> Tables:
    """Random histories of what the query reads."""
    read = {name: of for name, of in COLUMNS.items() if f" {name} " in f"{query} "}
    histories = {
        name: list(history(chance, [*of.values()], _POOL, range(8, 24)))
        for name, of in read.items()
    }
    return Tables(read, chance, histories)
