"""SQL and JSON that are almost valid. Pure. They name only the attacker's own objects."""

import json
from collections.abc import Sequence
from random import Random

from streams.torture.hostile.mutations import INTEGERS, TEXTS, mutated, noise, retold, soup

SOURCE = "hostile_source"
KEYED = "hostile_keyed"
BROKEN = "hostile_broken"
VIEW = "hostile_view"
TIMES = "hostile_times"
"""A view that has functions fail of which DuckDB does not expect it."""

SINK = "hostile_standing"
NESTED = 4_000

STANDING: Sequence[tuple[str, str]] = (
    (
        SOURCE,
        f"CREATE SOURCE {SOURCE} FROM KAFKA (TOPIC 'hostile.rows')"
        " (k BIGINT, v BIGINT, t VARCHAR) FORMAT JSON INCLUDE HEADERS ENVELOPE NONE",
    ),
    (
        KEYED,
        f"CREATE SOURCE {KEYED} FROM KAFKA (TOPIC 'hostile.keyed')"
        " (k BIGINT, v DECIMAL(38,2), t VARCHAR) FORMAT JSON ENVELOPE UPSERT (KEY (k))",
    ),
    (
        BROKEN,
        f"CREATE SOURCE {BROKEN} FROM KAFKA (TOPIC 'hostile.raw')"
        " (k BIGINT, v DECIMAL(12,2), t TIMESTAMP) FORMAT JSON INCLUDE HEADERS"
        " ENVELOPE UPSERT (KEY (k))",
    ),
    (
        VIEW,
        f"CREATE MATERIALIZED VIEW {VIEW} AS SELECT s.k, count(*) AS n, sum(s.v) AS total,"
        f" max(u.v) AS best FROM {SOURCE} s LEFT JOIN {KEYED} u ON s.k = u.k GROUP BY s.k",
    ),
    (
        TIMES,
        f"CREATE MATERIALIZED VIEW {TIMES} AS SELECT k, make_timestamp(v)::VARCHAR AS at,"
        f" json_keys(t::JSON) AS names FROM {SOURCE}",
    ),
    (SINK, f"CREATE SINK {SINK} FROM {VIEW} INTO KAFKA (TOPIC 'hostile.out') KEY (k)"),
)
"""Objects of the attacker's that live as long as the run: (name, statement).

Messages that are no rows go to a source of their own: an error that no later message takes back
would keep what hangs on it from being computed for the rest of the run.
"""

TEXTS_OF_SQL = (
    *(text for _, text in STANDING),
    f"SELECT * FROM {VIEW}",
    f"SELECT * FROM {SOURCE} AS OF 17",
    f"COPY (SELECT k, v FROM {SOURCE} AS OF 17) TO 'file:///nowhere/%2e%2e/x'"
    " WITH (FORMAT PARQUET, MAX FILE SIZE '64 KiB', REPLICA r1)",
    f"SUBSCRIBE {VIEW}",
    f"SELECT k, row_number() OVER (PARTITION BY v ORDER BY t) FROM {SOURCE} WHERE v > 3",
    "CREATE MATERIALIZED VIEW hostile_other AS"
    f" SELECT t, count(DISTINCT k) FROM {SOURCE} GROUP BY t",
    "CREATE MATERIALIZED VIEW hostile_loop AS WITH RECURSIVE r(n) AS"
    " (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 10)"
    f" SELECT n FROM r JOIN {SOURCE} ON n = k",
    f"CREATE SINK hostile_sink FROM {VIEW} INTO KAFKA (TOPIC 'hostile.out') KEY (k)",
    f"EXPLAIN SELECT k, sum(v) FROM {SOURCE} GROUP BY ROLLUP (k)",
    f"EXPLAIN AS SVG SELECT * FROM {VIEW}",
    "DROP MATERIALIZED VIEW hostile_other",
    "DROP SINK hostile_sink",
    "SHOW SOURCES",
    "CREATE FUNCTION hostile_f(x VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS $$\n"
    "def hostile_f(x):\n    return x\n$$",
    f"SELECT hostile_f(t) FROM {SOURCE}",
    "DROP FUNCTION hostile_f",
)
"""Statements that are answered, as samples."""

WORDS = (
    *sorted({word for text in TEXTS_OF_SQL for word in text.split()}),
    *("(", ")", ",", "'", '"', ";", "--", "/*", "*/", "$$", "NULL", "1e400", "-1"),
    *("UNION ALL", "EXCEPT", "OVER ()", "LATERAL", "VALUES (1)", "INTERVAL '1 month'"),
    *("mz_now()", "99999999999999999999"),
)


def statement(rng: Random) -> bytes:
    """A request for the coordinator."""
    roll = rng.random()
    sample = rng.choice(TEXTS_OF_SQL)
    if roll < 0.2:  # noqa: PLR2004  a fifth, or nothing would ever come to be
        return sample.encode()
    if roll < 0.55:  # noqa: PLR2004  a third
        return retold(rng, sample, WORDS).encode()
    if roll < 0.7:  # noqa: PLR2004  now and then any words
        return soup(rng, WORDS).encode()
    if roll < 0.85:  # noqa: PLR2004  or broken UTF-8
        return mutated(rng, sample.encode())
    return rng.choice(MONSTERS)


MONSTERS: Sequence[bytes] = (
    b"SELECT " + b"(" * NESTED + b"1" + b")" * NESTED,
    b"SELECT " + b"-" * 1_000 + b"1",
    b"SELECT " + b" + ".join([b"1"] * NESTED),
    b"SELECT 1" + b" UNION ALL SELECT 1" * 1_000,
    b"SELECT '" + b"x" * 1_000_000 + b"'",
    b";" * 10_000,
    b"SELECT 1;" * 500,
    b"SELECT \x00",
    b"\xff\xfe\x00",
    b"SELECT " + b"CASE WHEN true THEN " * 500 + b"1" + b" END" * 500,
    b"SELECT " + b"[" * NESTED,
    b'SELECT * FROM "' + b"n" * 100_000 + b'"',
    b"SELECT * FROM range(1000000000)",
    b"SELECT repeat('x', 1000000000)",
)


def row_message(rng: Random) -> tuple[bytes | None, bytes | None]:
    """A key and a row that every source takes, of values at the ends of their types."""
    number = rng.choice((rng.randrange(20), rng.choice(INTEGERS)))
    row = {"k": number, "v": rng.choice(INTEGERS), "t": rng.choice(TEXTS)}
    return json.dumps({"k": number}).encode(), json.dumps(row).encode()


def message(rng: Random) -> tuple[bytes | None, bytes | None]:
    """A key and a value for a raw topic."""
    number = rng.choice((rng.randrange(20), rng.choice(INTEGERS)))
    row: dict[str, object] = {"k": number, "v": rng.choice(INTEGERS), "t": rng.choice(TEXTS)}
    key = json.dumps({"k": number}).encode()
    value = json.dumps(row).encode()
    roll = rng.random()
    if roll < 0.4:  # noqa: PLR2004  often a proper one
        return key, value
    if roll < 0.7:  # noqa: PLR2004  often almost proper
        return mutated(rng, key), mutated(rng, value)
    odd = (
        None,
        b"",
        noise(rng),
        b"[" * 20_000,
        b'{"k":' * 5_000,
        b'{"k": 1e999, "v": NaN, "t": "\\ud800"}',
        b'{"k": 1, "k": 2, "v": 1' + b"0" * 5_000 + b"}",
        b'{"k": 1.5, "v": "12", "t": {"a": [1]}}',
        b"null",
        b"\xef\xbb\xbf{}",
    )
    return rng.choice((key, None, noise(rng))), rng.choice(odd)
