"""The kit of checks, over every connector of ours."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors import duckdb, postgres, sqlite, testing
from connectors.driver import Driver
from connectors.sql import fence, transactor
from connectors.sql.fence import Fenced, FencedRange
from connectors.sql.file_database import FileDatabase
from connectors.sql.transactor import SqlTransactor
from connectors.transport.errors import ConnectorFailed
from connectors.transport.local import Local
from streams.errors import InvalidUsage
from tests.support.file_connector import FileConnector

CHECK = pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)


def on_sqlite(memory_path: Path) -> testing.Subject:
    return testing.Subject(
        driver=Driver(Local(sqlite.CONNECTOR)),
        endpoint={"path": str(memory_path / "test.db")},
        resource=lambda table: {"table": table},
    )


def on_sqlite_that_keeps(memory_path: Path) -> testing.Subject:
    return testing.Subject(
        driver=Driver(Local(sqlite.CONNECTOR)),
        endpoint={"path": str(memory_path / "test.db")},
        resource=lambda table: {"table": table, "soft_delete": True},
    )


def on_duckdb(memory_path: Path) -> testing.Subject:
    return testing.Subject(
        driver=Driver(Local(duckdb.CONNECTOR)),
        endpoint={"path": str(memory_path / "test.duckdb")},
        resource=lambda table: {"table": table},
    )


@CHECK
@pytest.mark.parametrize("subject", [on_sqlite, on_sqlite_that_keeps, on_duckdb])
def test_a_connector_keeps_the_protocol(
    check: Callable[[testing.Subject], None], subject: Any, memory_path: Path
) -> None:
    check(subject(memory_path))


@CHECK
def test_postgres_keeps_the_protocol(
    check: Callable[[testing.Subject], None], postgres_config: Any
) -> None:
    subject = testing.Subject(
        driver=Driver(Local(postgres.connector({}))),
        endpoint=postgres_config,
        resource=lambda table: {"table": table, "schema_name": "public"},
    )
    check(subject)


@pytest.fixture(scope="module")
def postgres_config(request: Any) -> Any:
    return request.getfixturevalue("postgres").config()


def test_the_checks_find_a_connector_that_does_not(memory_path: Path) -> None:
    """The connector of the transports' tests has no versions, fences or counts."""
    failed = []
    for check in testing.CHECKS:
        path = memory_path / check.__name__
        subject = testing.Subject(
            driver=Driver(Local(FileConnector())),
            endpoint={"path": str(path)},
            resource=lambda table: {"table": table},
        )
        try:
            check(subject)
        except Exception:  # noqa: BLE001 whatever it finds
            failed.append(check.__name__)
    expected = {"check_versions", "check_wrong_flags", "check_exact_fence", "check_merge"}
    assert expected <= set(failed)
    assert "check_pipelining" not in failed


def unguarded(monkeypatch: Any) -> None:
    monkeypatch.setattr(SqlTransactor, "_guard", lambda _: None)


def without_fence(monkeypatch: Any) -> None:
    """The checkpoint moves whoever has the range."""
    guard = SqlTransactor._guard

    def careless(self: SqlTransactor) -> None:
        with contextlib.suppress(Fenced):
            guard(self)

    monkeypatch.setattr(SqlTransactor, "_guard", careless)


def exact_row_wins(monkeypatch: Any) -> None:
    """A range goes on where its own row is, though its parts went further."""
    monkeypatch.setattr(fence, "parts_of", lambda rows, begin, end: [exact(rows, begin, end)])


def exact(rows: Any, begin: int, end: int) -> Any:
    covering = [row for row in rows if row.key_begin <= begin and row.key_end >= end]
    narrowest = min(covering, key=lambda row: row.key_end - row.key_begin, default=None)
    checkpoint = narrowest.checkpoint if narrowest else fence.ZERO
    return FencedRange(key_begin=begin, key_end=end, fence=0, opened=0, checkpoint=checkpoint)


def from_zero(monkeypatch: Any) -> None:
    """A range without a row of its own begins at zero, as the prose of the protocol says."""
    monkeypatch.setattr(fence, "counting", lambda *_: None)


def forgetful(monkeypatch: Any) -> None:
    """A merged range counts before it has committed, so its parts are forgotten."""
    counting = fence.counting

    def careless(rows: Any, key: int) -> Any:
        marked = [dataclasses.replace(row, checkpoint=row.checkpoint or b"\0") for row in rows]
        return counting(marked, key)

    monkeypatch.setattr(fence, "counting", careless)


def uncounted(monkeypatch: Any) -> None:
    monkeypatch.setattr(transactor, "expect", lambda *_: None)


def two_commits(monkeypatch: Any) -> None:
    """The checkpoint first, then the tables, each by itself."""
    monkeypatch.setattr(FileDatabase, "transaction", contextlib.nullcontext)


def any_version(monkeypatch: Any) -> None:
    monkeypatch.setattr(transactor, "check_applied", lambda *_: None)


@pytest.mark.parametrize(
    ("defect", "found_by"),
    [
        (unguarded, testing.check_exact_fence),
        (without_fence, testing.check_exact_fence),
        (without_fence, testing.check_split_fence),
        (exact_row_wins, testing.check_merge),
        (from_zero, testing.check_split_fence),
        (forgetful, testing.check_subranges),
        (from_zero, testing.check_lifecycle),
        (uncounted, testing.check_wrong_flags),
        (two_commits, testing.check_wrong_flags),
        (any_version, testing.check_versions),
    ],
    ids=range(10),
)
def test_the_checks_find_planted_defects(
    defect: Any, found_by: Any, memory_path: Path, monkeypatch: Any
) -> None:
    defect(monkeypatch)
    with pytest.raises((AssertionError, ConnectorFailed, InvalidUsage)):
        found_by(on_sqlite(memory_path))
