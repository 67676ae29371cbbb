"""`EMIT ON CLOSE` is told from tables, aliases and columns of these names."""

import pytest

from streams.plan.sql.emit import Emit, emits, split


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM a",
        "SELECT * FROM a CROSS JOIN b",
        "SELECT * FROM a NATURAL LEFT OUTER JOIN b",
        "SELECT * FROM a JOIN b USING (k)",
        "SELECT * FROM a JOIN b JOIN c ON c.k = b.k ON a.k = b.k",
        "SELECT DISTINCT ON (k) * FROM a LEFT JOIN b ON a.k = b.k",
        "SELECT * FROM a JOIN b ON b.k = a.k USING SAMPLE 10",
        "SELECT * FROM (SELECT * FROM a JOIN emit ON close) JOIN emit ON close",
        "SELECT * FROM a JOIN emit ON close",
        "SELECT * FROM emit UNION ALL SELECT * FROM a POSITIONAL JOIN b",
    ],
)
@pytest.mark.parametrize(("clause", "end"), [("", ""), (" (w + 1)", "w + 1")])
def test_the_clause_at_the_end_is_cut_off(query: str, clause: str, end: str) -> None:
    assert split(f"{query} emit ON close{clause}") == (f"{query} ", Emit(end))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM a JOIN emit ON close",
        "SELECT * FROM a LEFT JOIN emit ON close;",
        "SELECT * FROM a JOIN b emit ON close",
        "SELECT * FROM a JOIN b AS emit ON close (1)",
        "SELECT * FROM a JOIN main.emit ON close",
        "SELECT DISTINCT ON (k) * FROM a JOIN emit ON close",
        "SELECT * FROM a CROSS JOIN b JOIN emit ON close",
        "SELECT * FROM a JOIN b ON a.k = b.k ASOF JOIN emit ON close",
        "SELECT * FROM a JOIN (SELECT * FROM c JOIN d USING (k)) emit ON close",
        'SELECT * FROM a "EMIT" ON CLOSE',
    ],
)
def test_a_table_or_an_alias_of_its_name_is_none(query: str) -> None:
    assert split(query) == (query, None)
    assert not emits(query)
