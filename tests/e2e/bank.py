"""The bank in an environment: its objects, and a producer of transfers."""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams.bench.consistency.bank import OPENING, VIEWS, Transfers, sources
from tests.e2e.containers import SECRETS, Environment
from tests.e2e.parts import eventually

TOPIC, OUTPUT = "transactions", "balances"
KEPT = ("accepted", "credits", "debits", "balance", "total")
"""The views, of those of the benchmark."""
TABLES = ("credits", "debits", "balance", "total")
LOT_S = 0.2


def statements() -> list[str]:
    """All that is created, in order."""
    tables = ", ".join(
        f"{view} (TABLE '{view}', KEY ({'total' if view == 'total' else 'account'}))"
        for view in TABLES
    )
    return [
        sources(TOPIC, "unused")[0],
        *(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}" for name in KEPT),
        f"CREATE SINK out FROM balance INTO KAFKA (TOPIC '{OUTPUT}') KEY (account)",
        f"CREATE MATERIALIZATION books INTO POSTGRES (HOST 'postgres', DATABASE 'bank',"
        f" USER 'bank', PASSWORD 'file:{SECRETS}/password') BIND {tables}",
    ]


@dataclass
class Sender:
    """Sends transfers, each once, whatever becomes of the broker; knows the right end."""

    environment: Environment
    rate: int = 50
    transfers: Transfers = field(default_factory=Transfers)
    acknowledged: int = 0
    balance: Counter[int] = field(default_factory=Counter)
    failures: list[KafkaError] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._producer = Producer(
            {
                **self.environment.kafka,
                "enable.idempotence": True,
                "message.timeout.ms": 0,  # it never gives up
                "log_level": 0,
            }
        )

    def open(self) -> None:
        """The topic, and so many transfers that every account has had one of each kind."""
        admin, copies = AdminClient(self.environment.kafka), len(self.environment.brokers)
        for future in admin.create_topics([NewTopic(TOPIC, 1, copies)]).values():
            future.result(30)
        self.send(OPENING)
        self.flush()

    def send(self, count: int) -> None:
        """The next transfers."""
        for text in self.transfers.transactions(count):
            move = json.loads(text)
            self.balance[move["to_account"]] += 1
            self.balance[move["from_account"]] -= 1
            self._producer.produce(TOPIC, text, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged += 1

    def flush(self) -> None:
        """Wait until the broker has all. Errors: AssertionError."""
        eventually("the broker has all transfers", lambda: self._producer.flush(1) == 0)
        assert not self.failures
        assert self.acknowledged == self.transfers.sent

    def begin(self) -> None:
        """Send from now on, in a thread."""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._ending.is_set():
            self.send(max(1, int(self.rate * LOT_S)))
            time.sleep(LOT_S)

    def end(self) -> None:
        """Send no more; all are acknowledged."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()


def create(environment: Environment) -> None:
    """The bank's objects; they have contents."""
    client = environment.client
    eventually("the coordinator answers", lambda: answers(environment))
    for statement in statements():
        client.run(statement)
    eventually("the views have the opening", lambda: accepted(environment) >= OPENING)


def answers(environment: Environment) -> bool:
    """Whether a statement is answered."""
    try:
        environment.client.run("SHOW SOURCES")
    except Exception:  # noqa: BLE001  it starts, in whatever way it does
        return False
    return True


def accepted(environment: Environment) -> int:
    """How many transfers the views have; -1 while nobody says."""
    try:
        ((count,),) = environment.client.run("SELECT sum(credits)::BIGINT FROM credits")[0].rows
    except Exception:  # noqa: BLE001  services are away while they are broken
        return -1
    return int(str(count)) if count is not None else 0
