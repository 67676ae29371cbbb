"""The bank's tables in PostgreSQL, read by another process all the while: never wrong."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from connectors import postgres as connector
from connectors.driver import Driver
from connectors.runtime.task import Materialization
from connectors.sql.statements import Table
from connectors.sql.transactor import Counts, SqlTransactor
from connectors.transport.local import Local
from streams.app.materialize.background import BackgroundTask
from streams.bench.consistency.bank import ACCOUNTS
from streams.bench.consistency.reader import TWO_TOTALS, Reader
from streams.bench.consistency.subscription_check import Tally
from streams.bench.consistency.tables import KEYS
from streams.errors import Determinate
from streams.ids import Timestamp
from tests.support.collections import Collections
from tests.support.postgres import Server

pytestmark = pytest.mark.integration

CHECKS = ("total = 0", "balance = credits - debits")


class Bank:
    """Its views as collections; each transfer is at a time of its own."""

    def __init__(self, collections: Collections) -> None:
        self.collections, self.time, self.rng = collections, 11, random.Random(5)
        self.books = {name: Counter[int]() for name in ("credits", "debits", "balance")}
        for name, key in KEYS.items():
            columns = [(key, "BIGINT")] if key == name else [(key, "BIGINT"), (name, "BIGINT")]
            collections.create(name, columns)
        first = [(account, 0, 11, 1) for account in range(ACCOUNTS)]
        for name in KEYS:
            collections.append(name, 12, [(0, 11, 1)] if name == "total" else first)

    def transfer(self) -> None:
        self.time += 1
        source, target = self.rng.sample(range(ACCOUNTS), 2)
        moves: dict[str, list[tuple[int, int]]] = {
            "credits": [(target, 1)],
            "debits": [(source, 1)],
            "balance": [(target, 1), (source, -1)],
        }
        for name in KEYS:
            changes = []
            for account, amount in moves.get(name, []):
                was = self.books[name][account]
                self.books[name][account] += amount
                changes += [
                    (account, was, self.time, -1),
                    (account, was + amount, self.time, 1),
                ]
            self.collections.append(name, self.time + 1, changes)


@pytest.fixture
def bank() -> Iterator[Bank]:
    collections = Collections()
    yield Bank(collections)
    collections.close()


def watched(bank: Bank, server: Server, seconds: float) -> Mapping[str, Tally]:
    """What the reader saw while transfers were written one after another."""
    config = server.config()
    task = {
        "task": "bank",
        "connector": "ours",
        "config": config,
        "bindings": [
            {"collection": name, "key": [key], "resource": {"table": name}}
            for name, key in KEYS.items()
        ],
        "limits": {"every_ms": 0},
    }
    driver = Driver(Local(connector.connector({})))
    beside = BackgroundTask(
        Materialization.model_validate(task), driver, bank.collections.client()
    )
    beside.start()
    beside.reach(Timestamp(11), 180)
    reader = Reader(config, CHECKS)
    try:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends or beside.status.commits < 12:
            bank.transfer()
            time.sleep(0.01)
        beside.reach(Timestamp(bank.time), 180)
        return reader.end()
    finally:
        reader.kill()
        beside.stop()


def test_a_reader_never_sees_the_tables_out_of_step(bank: Bank, postgres: Server) -> None:
    seen = watched(bank, postgres, 2)
    assert set(seen) == {TWO_TOTALS, *CHECKS}
    assert {verdict.wrong for verdict in seen.values()} == {0}
    assert seen[TWO_TOTALS].observations > 12


@pytest.mark.long
def test_a_reader_never_sees_the_tables_out_of_step_for_a_minute(
    bank: Bank, postgres: Server
) -> None:
    seen = watched(bank, postgres, 60)
    assert {verdict.wrong for verdict in seen.values()} == {0}
    assert seen[TWO_TOTALS].observations > 2000


def test_a_commit_for_each_table_is_seen(
    bank: Bank, postgres: Server, monkeypatch: Any
) -> None:
    """The planted defect: the tables of a transaction one after another."""
    write = SqlTransactor._write

    def apart(self: SqlTransactor, table: Table, rows: Counts) -> None:
        write(self, table, rows)
        self.database.execute("COMMIT")
        time.sleep(0.005)
        self.database.execute("BEGIN")

    monkeypatch.setattr(SqlTransactor, "_write", apart)
    seen = watched(bank, postgres, 1)
    assert seen[TWO_TOTALS].wrong > 0
    assert seen["balance = credits - debits"].wrong > 0


def test_a_reader_that_cannot_go_on_says_so(postgres: Server) -> None:
    reader = Reader(postgres.config())
    with pytest.raises(Determinate, match='relation "credits" does not exist'):
        reader.end()
