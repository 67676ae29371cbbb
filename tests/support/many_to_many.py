"""Relations without keys, edges of a graph among them, with few values: many rows match."""

import random
from collections.abc import Iterator

from tests.support.maintained import TIMES, Literals, Tables

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
    read = {each: of for each, of in COLUMNS.items() if f" {each} " in f"{query} "}
    histories = {each: list(_history(chance, [*of.values()])) for each, of in read.items()}
    return Tables(read, chance, histories)


def _history(chance: random.Random, kinds: list[str]) -> Iterator[tuple[Literals, int, int]]:
    """Rows that come and go, some at one time and twice."""
    live: list[Literals] = []
    for at in sorted(chance.choices(range(TIMES), k=chance.randrange(8, 24))):
        if live and chance.random() < 0.4:
            yield live.pop(chance.randrange(len(live))), at, -1
        else:
            row = [chance.choice(_POOL[kind]) for kind in kinds]
            count = chance.choice([1, 1, 2])
            live += [row] * count
            yield row, at, count
