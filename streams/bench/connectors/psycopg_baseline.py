"""Baseline: psycopg copies tuples into a temporary table, and one statement upserts them."""

import time
from collections.abc import Mapping, Sequence

import psycopg

from streams.bench.connectors.measure import RowCost
from streams.bench.connectors.rows import Parts

TABLE = """(region text, id bigint, amount double precision, "at" timestamptz, note text,
  paid boolean, document json{key})"""
UPSERT = """INSERT INTO plain SELECT * FROM coming ON CONFLICT (region, id) DO UPDATE SET
  amount = excluded.amount, "at" = excluded."at", note = excluded.note, paid = excluded.paid,
  document = excluded.document"""


def upsert(config: Mapping[str, object], passes: Sequence[Parts]) -> list[RowCost]:
    """Write rows, a transaction for each part of a pass."""
    reached = " ".join(
        f"{'dbname' if name == 'database' else name}={value}" for name, value in config.items()
    )
    with psycopg.connect(reached, autocommit=True) as connection:
        key = TABLE.format(key=", PRIMARY KEY (region, id)")
        connection.execute(f"CREATE TABLE plain {key}".encode())
        connection.execute(f"CREATE TEMPORARY TABLE coming {TABLE.format(key='')}".encode())
        return [_pass(connection, parts) for parts in passes]


def _pass(connection: "psycopg.Connection[tuple[object, ...]]", parts: Parts) -> RowCost:
    wall = cpu = 0.0
    for rows in parts:
        tuples = rows.tuples()
        began, began_cpu = time.perf_counter(), time.process_time()
        with connection.transaction(), connection.cursor() as cursor:
            with cursor.copy(b"COPY coming FROM STDIN") as copy:
                for row in tuples:
                    copy.write_row(row)
            cursor.execute(UPSERT.encode())
            cursor.execute(b"TRUNCATE coming")
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu
    return RowCost(parts.rows, wall, cpu, {})
