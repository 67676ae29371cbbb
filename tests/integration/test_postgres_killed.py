"""PostgreSQL is killed in the middle of commits: each is there once, whole, or not at all."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from connectors import postgres as connector
from connectors.driver import Driver
from connectors.runtime.runner import Runner
from connectors.runtime.task import Materialization
from connectors.sql.transactor import SqlTransactor
from connectors.transport.local import Local
from tests.conftest import MEMORY
from tests.support.collections import Collections
from tests.support.postgres import Server

pytestmark = pytest.mark.integration

ACCOUNTS = (("account", "VARCHAR"), ("balance", "BIGINT"))
BINDINGS = [
    {"collection": "u1", "resource": {"table": "accounts"}},
    {"collection": "u1", "resource": {"table": "log", "delta_updates": True}},
]
STATE = """SELECT (SELECT read_through FROM slackwater_checkpoints),
  (SELECT json_object_agg(account, balance) FROM accounts),
  (SELECT json_object_agg(account, balance) FROM (
    SELECT account, sum(balance * slackwater_diff) AS balance FROM log
    GROUP BY account HAVING sum(slackwater_diff) <> 0) t),
  (SELECT count(*) FROM log)"""


class Bank:
    """Transfers from a to b, one at each time, and the tables that they are to be in."""

    def __init__(self, server: Server) -> None:
        self.server, self.config = server, server.config()
        self.collections = Collections()
        self.collections.create("u1", ACCOUNTS, keys=("account",))
        self.collections.append("u1", 12, [("a", 0, 11, 1), ("b", 0, 11, 1)])
        self.time = 11

    def transfer(self) -> None:
        was, self.time = self.time - 11, self.time + 1
        changes = [
            (name, sign * amount, self.time, diff)
            for name, sign in (("a", -1), ("b", 1))
            for amount, diff in ((was, -1), (was + 1, 1))
        ]
        self.collections.append("u1", self.time + 1, changes)

    def runner(self, stopping: threading.Event) -> Runner:
        task = {
            "task": "bank",
            "connector": "ours",
            "config": self.config,
            "bindings": BINDINGS,
            "limits": {"every_ms": 0, "idle_ms": 0, "rows": 400},
        }
        return Runner(
            Materialization.model_validate(task),
            Driver(Local(connector.connector({}))),
            self.collections.client(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            stopping=stopping,
        )

    @contextmanager
    def running(self) -> Iterator[Runner]:
        """A runner in a thread; it is told to end when the block does."""
        stopping = threading.Event()
        runner = self.runner(stopping)
        thread = threading.Thread(target=runner.run)
        thread.start()
        yield runner
        stopping.set()
        thread.join()

    def committed(self) -> int:
        """The time that the tables hold. All of them hold it, and each change is in once."""
        ((read_through, accounts, logged, changes),) = self.query(STATE)
        uppers = {
            int(source["readThrough"])
            for source in json.loads(read_through).get("sources", {}).values()
        }
        (at,) = uppers
        moved = at - 12
        assert accounts == {"a": -moved, "b": moved}
        assert logged == accounts
        assert changes == 2 + 4 * moved
        return at - 1

    def query(self, sql: str) -> list[Any]:
        return self.server.query(str(self.config["database"]), sql)

    def execute(self, *statements: str) -> None:
        with self.server.connect(str(self.config["database"])) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    postgres = Server(
        MEMORY if MEMORY.is_dir() else None,
        # there is no such standby: who asks for it waits with a commit that is in the log
        synchronous_standby_names="nobody",
        synchronous_commit="local",
    )
    yield postgres
    postgres.close()


@pytest.fixture
def bank(server: Server) -> Iterator[Bank]:
    new_bank = Bank(server)
    yield new_bank
    new_bank.collections.close()


FUNCTIONS = (
    """CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$""",
    """CREATE FUNCTION remote() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM set_config('synchronous_commit', 'on', true); RETURN NEW; END $$""",
)
STATEMENT = """CREATE TRIGGER waits BEFORE UPDATE ON accounts
  FOR EACH ROW EXECUTE FUNCTION waits()"""
COMMIT = """CREATE CONSTRAINT TRIGGER waits AFTER UPDATE ON accounts DEFERRABLE
  INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION waits()"""
STANDBY = """CREATE TRIGGER waits BEFORE UPDATE ON accounts
  FOR EACH ROW EXECUTE FUNCTION remote()"""
WAITING = """SELECT query FROM pg_stat_activity
  WHERE application_name = 'slackwater' AND wait_event IN ('advisory', 'SyncRep')"""


def killed_while_it_waits(bank: Bank, place: str, query: str) -> None:
    """It waits: for a lock, before and in COMMIT; for a standby, with its record in the log."""
    with bank.running() as runner:
        awaited(lambda: runner.status.commits)
        bank.execute(*FUNCTIONS, place)
        holder = bank.server.connect(str(bank.config["database"]))
        holder.execute(b"SELECT pg_advisory_lock(7)")
        bank.transfer()
        ((waiting,),) = awaited(lambda: bank.query(WAITING))
        assert waiting.startswith(query)
        runner._stopping.set()  # type: ignore[attr-defined] # no session follows
        bank.server.kill()
    holder.close()
    assert (runner.status.state, runner.status.time) == ("stalled", 11)


@pytest.mark.parametrize(
    ("place", "query", "is_there"),
    [(STATEMENT, "UPDATE", False), (COMMIT, "COMMIT", False), (STANDBY, "COMMIT", True)],
    ids=["in a statement", "in COMMIT", "committed, and the answer is lost"],
)
def test_a_commit_is_whole_or_not_at_all(
    bank: Bank, place: str, query: str, is_there: bool
) -> None:
    killed_while_it_waits(bank, place, query)
    bank.server.start()
    bank.execute("DROP TRIGGER waits ON accounts")
    assert bank.committed() == (12 if is_there else 11)
    bank.transfer()
    bank.runner(threading.Event()).run(until_caught_up=True)
    assert bank.committed() == 13


def awaited(poll: Callable[[], Any]) -> Any:
    """What is found, once something is."""
    deadline = time.monotonic() + 60
    while not (answer := poll()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


def test_a_commit_in_parts_is_found(bank: Bank, monkeypatch: Any) -> None:
    """The checkpoint first, then the tables."""
    guard = SqlTransactor._guard

    def hasty(self: SqlTransactor) -> None:
        guard(self)
        self.database.execute("COMMIT")
        self.database.execute("BEGIN")

    monkeypatch.setattr(SqlTransactor, "_guard", hasty)
    killed_while_it_waits(bank, STATEMENT, "UPDATE")
    bank.server.start()
    with pytest.raises(AssertionError, match="'a'"):
        bank.committed()


def soak(bank: Bank, kills: int, most_s: float) -> None:
    """One runner all the while, and transfers; PostgreSQL is killed at any moment."""
    rng = random.Random(kills)
    with bank.running() as runner:
        for _ in range(kills):
            commits = runner.status.commits
            until = time.monotonic() + rng.uniform(0.2, most_s)
            while time.monotonic() < until or runner.status.commits < commits + 3:
                bank.transfer()
                time.sleep(0.01)
            bank.server.kill()
            bank.server.start()
            assert bank.committed() <= bank.time
        awaited(lambda: runner.status.time == bank.time)
    assert bank.committed() == bank.time


def test_a_server_that_is_killed_and_comes_back_is_followed(bank: Bank) -> None:
    soak(bank, 1, 0.3)


@pytest.mark.long
def test_a_server_that_is_killed_again_and_again_is_followed(bank: Bank) -> None:
    soak(bank, 25, 3.0)
