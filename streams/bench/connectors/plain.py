"""Beside us: psycopg copies tuples into a temporary table, and one statement upserts them."""

import time
from collections.abc import Mapping, Sequence

import psycopg

from streams.bench.connectors.measure import Spent

TABLE = """(region text, id bigint, amount double precision, "at" timestamptz, note text,
  paid boolean, document json{key})"""
UPSERT = """INSERT INTO plain SELECT * FROM coming ON CONFLICT (region, id) DO UPDATE SET
  amount = excluded.amount, "at" = excluded."at", note = excluded.note, paid = excluded.paid,
  document = excluded.document"""


def upsert(
    config: Mapping[str, object], passes: Sequence[Sequence[Sequence[tuple[object, ...]]]]
) -> list[Spent]:
    """Write rows, a transaction for each part of a pass."""
    reached = " ".join(
        f"{'dbname' if name == 'database' else name}={value}" for name, value in config.items()
    )
    with psycopg.connect(reached, autocommit=True) as connection:
        key = TABLE.format(key=", PRIMARY KEY (region, id)")
        connection.execute(f"CREATE TABLE plain {key}".encode())
        connection.execute(f"CREATE TEMPORARY TABLE coming {TABLE.format(key='')}".encode())
        return [_pass(connection, parts) for parts in passes]


def _pass(
    connection: "psycopg.Connection[tuple[object, ...]]",
    parts: Sequence[Sequence[tuple[object, ...]]],
) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    for rows in parts:
        with connection.transaction(), connection.cursor() as cursor:
            with cursor.copy(b"COPY coming FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(UPSERT.encode())
            cursor.execute(b"TRUNCATE coming")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Spent(sum(map(len, parts)), wall, cpu, {})
