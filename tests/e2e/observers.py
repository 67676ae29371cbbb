"""Four observers of the bank: SUBSCRIBE, SELECT, the output topic, PostgreSQL.

Of each it is known at which time it saw what, so all four are compared with each other.

Each is a thread. None of them fails because a part is away: it notes that, and tries again.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from fdb import tuple as key_codec

from schemas.rows import decode_row, row_schema
from streams.bench.consistency.bank import CHECKS
from tests.e2e.bank import OUTPUT
from tests.e2e.containers import Environment
from tests.e2e.ledger import Balances, Row, Way

PAUSE_S = 0.2
"""Between two looks, and after a failure."""
SILENCE_S = 30.0
"""After so long without a record the topic is read from its beginning by another consumer."""
BACK_MS = 3000
SNAPSHOT = "SELECT account, balance FROM balance"
READ_THROUGH = "SELECT read_through FROM slackwater_checkpoints WHERE task = 'books'"
ASKED = ("total = 0", "balance = credits - debits")
SCHEMA = row_schema(OUTPUT, [("account", "BIGINT"), ("balance", "BIGINT")]).text


class Observers:
    """The four, and what they saw."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._ending = threading.Event()
        self._last: dict[str, Balances] = {}
        looks: Mapping[str, Callable[[Way], None]] = {
            "subscribe": self._subscribe,
            "select": self._select,
            "topic": self._topic,
            "postgres": self._postgres,
        }
        self.ways = {name: Way(name) for name in looks}
        self._threads = [
            threading.Thread(target=self._keep, args=(look, self.ways[name]), daemon=True)
            for name, look in looks.items()
        ]

    @property
    def wrong(self) -> list[str]:
        """All that was wrong until now."""
        return [message for way in self.ways.values() for message in way.wrong]

    def have(self, balances: Balances) -> bool:
        """Whether all four have come to these balances."""
        return all(self._last.get(name) == balances for name in self.ways)

    def last(self) -> Mapping[str, Balances]:
        """The newest balances of each."""
        return dict(self._last)

    def begin(self) -> None:
        """Observe from now on."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Observe no more."""
        self._ending.set()
        for thread in self._threads:
            thread.join(30)

    def _keep(self, look: Callable[[Way], None], way: Way) -> None:
        while not self._ending.is_set():
            try:
                look(way)
            except Exception as failure:  # noqa: BLE001  a part is away, in whatever way
                way.failures[f"{type(failure).__name__}: {str(failure)[:80]}"] += 1
            time.sleep(PAUSE_S)

    def _subscribe(self, way: Way) -> None:
        contents: Counter[Row] = Counter()
        pending: dict[int, Counter[Row]] = {}
        way.begin()
        for message in self.environment.client.stream("SUBSCRIBE balance"):
            if self._ending.is_set():
                return
            match message:
                case {"type": "rows", "rows": list(rows)}:
                    for at, diff, account, balance in rows:
                        pending.setdefault(at, Counter())[account, balance] += diff
                case {"type": "progress", "frontier": int(frontier)}:
                    for at in sorted(moment for moment in pending if moment < frontier):
                        apply(contents, pending.pop(at))
                        self._last["subscribe"] = way.balances(contents, at)
                        way.changed(at, self._last["subscribe"])
                    way.complete(frontier, time.time())
                case {"type": "error", "error": dict(error)}:
                    raise RuntimeError(error["message"])
                case _:
                    pass

    def _select(self, way: Way) -> None:
        for name in ASKED:
            ((holds,),) = self.environment.client.run(CHECKS[name])[0].rows
            way.check(name, holds=holds is True)
        at, self._last["select"] = self._ask(way, SNAPSHOT)
        way.progress.append((time.time(), at))
        if way.moments and at - BACK_MS > min(way.moments):
            self._ask(way, f"{SNAPSHOT} AS OF {at - BACK_MS}")

    def _ask(self, way: Way, query: str) -> tuple[int, Balances]:
        answer = self.environment.client.run(query)[0]
        at = int(str(answer.facts["as_of"]))
        rows = Counter(
            (int(str(account)), int(str(balance))) for account, balance in answer.rows
        )
        balances = way.balances(rows, at)
        way.answered(at, balances)
        return at, balances

    def _topic(self, way: Way) -> None:
        contents: dict[int, int] = {}
        reached = 0
        way.begin()
        for message in committed(self.environment, self._ending):
            if message is None:  # the end: what is there of the last time may be a part
                self._last["topic"] = dict(contents)
                continue
            at = int(dict(message.headers() or [])["slackwater-time"] or b"")
            if at != reached and contents:
                way.check(f"time {at} after {reached}", holds=at > reached)
                way.changed(reached, way.balances(Counter(contents.items()), reached))
                way.complete(at, time.time())
            reached = at
            (account,) = key_codec.unpack(message.key())
            contents.pop(account, None)
            if (value := message.value()) is not None:
                contents[account] = int(str(decode_row(SCHEMA, value)["balance"]))

    def _postgres(self, way: Way) -> None:
        with psycopg.connect(**self.environment.postgres, connect_timeout=5) as database:
            database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            database.read_only = True
            transfers = 0
            while not self._ending.is_set():
                with database.transaction():
                    transfers, balances = look_at_tables(database, way, transfers)
                self._last["postgres"] = balances
                time.sleep(PAUSE_S)


def look_at_tables(
    database: psycopg.Connection[Any], way: Way, transfers: int
) -> tuple[int, Balances]:
    """One snapshot: all tables are of one time and agree, none has fewer transfers than before.

    Returns the transfers and the balances.
    """
    credit = dict(database.execute("SELECT account, credits FROM credits").fetchall())
    debit = dict(database.execute("SELECT account, debits FROM debits").fetchall())
    rows = Counter[Row](database.execute(SNAPSHOT).fetchall())
    total = database.execute("SELECT total FROM total").fetchall()
    frontiers = read_through(database)
    now = sum(credit.values())
    balances = way.balances(rows, now)
    if now:  # before, nothing is committed
        way.check(f"tables at {frontiers}", holds=len(frontiers) == 1)
        way.check(f"{total} in total", holds=total == [(0,)])
        way.check(f"{now} credits, {debit}", holds=now == sum(debit.values()))
        expected = {account: credit[account] - debit[account] for account in balances}
        way.check(f"{balances}, not {expected}", holds=balances == expected)
        way.answered(max(frontiers) - 1, balances)
        way.progress.append((time.time(), max(frontiers)))
    way.check(f"{now} transfers after {transfers}", holds=now >= transfers)
    return now, balances


def read_through(database: psycopg.Connection[Any]) -> set[int]:
    """Before which times all changes are in the tables: one, if they are of one time."""
    rows = database.execute(READ_THROUGH).fetchall()
    sources = (json.loads(text).get("sources", {}) for (text,) in rows)
    return {int(source["readThrough"]) for of_row in sources for source in of_row.values()}


def committed(environment: Environment, ending: threading.Event) -> Iterator[Message | None]:
    """Records of the output topic as a read_committed consumer has them; None at its end.

    Errors: TimeoutError when nothing comes any more: this consumer may have lost the brokers
    for good, as librdkafka's sometimes do.
    """
    consumer = Consumer(
        {
            **environment.kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "socket.timeout.ms": 10_000,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(OUTPUT, 0, OFFSET_BEGINNING)])
        came = time.monotonic()
        while not ending.is_set():
            message = consumer.poll(0.5)
            if message is not None:
                came = time.monotonic()
            elif time.monotonic() > came + SILENCE_S:
                raise TimeoutError("nothing comes")
            if message is not None and message.error() is None:
                yield message
            elif message is not None:
                yield None
    finally:
        consumer.close()


def apply(contents: Counter[Row], changes: Counter[Row]) -> None:
    """Rows that are there no times are gone."""
    for row, diff in changes.items():
        contents[row] += diff
        if not contents[row]:
            del contents[row]
