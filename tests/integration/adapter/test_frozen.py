"""Services that stand still for a while (SIGSTOP), and successors that take over meanwhile.

Whoever comes back to life finds out that another one has taken over before anything of it
counts; where nobody has, it goes on. The view holds (n, 1 + .. + n) after n messages, so that
every answer says by itself whether it is right.
"""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from streams.app.client import Client
from streams.app.environment import Environment
from streams.app.service_config import read_service
from streams.errors import InvalidStatement, SlackwaterError
from streams.kafka.embedded import EmbeddedBroker
from streams.torture.hostile.sessions import wrong
from tests.integration.adapter.support import eventually, open_environment, raw_topic
from tests.integration.replica.json_producer import Feed
from tests.stranger.client import Client as Stranger
from tests.stranger.reader import Reader
from tests.support.command_place import TABLE, rows
from tests.support.processes import service, signal_group

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

PATIENCE_S = 180


class Frozen:
    """An environment with a view over a topic of numbers, whose services can be frozen."""

    def __init__(self, environment: Environment, scratch: Path) -> None:
        self.environment, self.scratch = environment, scratch
        self.bootstrap = environment.kafka.bootstrap
        self.topic, self.sent = raw_topic(self.bootstrap, 1), 0
        environment.sql(
            f"CREATE SOURCE s FROM KAFKA (TOPIC '{self.topic}') (v BIGINT) FORMAT JSON;"
            " CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(v) AS total FROM s"
        )
        self.send()

    def send(self, messages: int = 50) -> None:
        numbers = range(self.sent + 1, self.sent + messages + 1)
        Feed(self.bootstrap).send(self.topic, [{"v": number} for number in numbers])
        self.sent += messages

    def pid(self, name: str) -> int:
        pid = self.environment.children[name].pid
        assert pid is not None
        return pid

    @contextmanager
    def frozen(self, name: str) -> Iterator[int]:
        """The service and all it has started stand still."""
        pid = self.pid(name)
        signal_group(pid, signal.SIGSTOP)
        try:
            yield pid
        finally:
            signal_group(pid, signal.SIGCONT)

    @contextmanager
    def another(self, name: str, **changes: object) -> Iterator["subprocess.Popen[bytes]"]:
        """One more process of a service, told the same but for the changes."""
        settings = read_service(self.environment.settings.directory / f"{name}.json")
        config = self.scratch / f"{name}.json"
        replace(settings, **changes).write(config)  # type: ignore[arg-type]  # of their types
        with service(name, config, self.log(name), supervised=True) as process:
            yield process

    def log(self, name: str) -> Path:
        """What another process of the service has to say."""
        return self.scratch / f"{name}.log"


@pytest.fixture(scope="module")
def running(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Frozen]:
    directory = tmp_path_factory.mktemp("frozen")
    environment = open_environment(broker.bootstrap, directory)
    try:
        frozen = Frozen(environment, tmp_path_factory.mktemp("another"))
        eventually(lambda: seen(environment.client) == frozen.sent, PATIENCE_S)
        yield frozen
    finally:
        environment.stop()


def seen(client: Client) -> int:
    """How many messages the view has seen; what it shows of them is right."""
    (answer,) = client.run("SELECT n, total FROM v")
    assert wrong(answer.rows, 0) == ""
    return int(str(answer.rows[0][0]))


def status(environment: Environment) -> str:
    (answer,) = environment.client.run("SHOW MATERIALIZED VIEWS")
    return next(str(row["status"]) for row in answer.dicts() if row["name"] == "v")


def test_a_replica_that_stands_still_and_its_successor(running: Frozen) -> None:
    environment, client = running.environment, running.environment.client
    state = running.scratch / "r2"
    (before,) = client.run("SELECT n, total FROM v")
    with running.frozen("replica") as pid:
        running.send()
        eventually(lambda: status(environment) == "no replica", PATIENCE_S)
        at = before.facts["as_of"]
        assert client.run(f"SELECT n, total FROM v AS OF {at}")[0].rows == before.rows
        with running.another("replica") as second:  # as another host would, by the same files
            assert second.wait(PATIENCE_S) == 1
        assert "another replica uses" in running.log("replica").read_text()
        with running.another("replica", replica="r2", directory=str(state)):
            eventually(lambda: seen(client) == running.sent, PATIENCE_S)
            signal_group(pid, signal.SIGCONT)  # both write now
            for _ in range(20):
                running.send(10)
                eventually(lambda: seen(client) == running.sent, PATIENCE_S)
    running.send()
    eventually(lambda: seen(client) == running.sent, PATIENCE_S)
    eventually(lambda: status(environment) == "running", PATIENCE_S)
    assert environment.children["replica"].starts == 1
    check_history(client)


def check_history(client: Client) -> None:
    """The view was right at every time that is kept: some of them are looked at."""
    (facts,) = [
        row for row in client.run("SHOW MATERIALIZED VIEWS")[0].dicts() if row["name"] == "v"
    ]
    since, upper = int(str(facts["since"])), int(str(facts["upper"]))
    last = 0
    for at in range(since, upper, max(1, (upper - since) // 40)):
        (answer,) = client.run(f"SELECT n, total FROM v AS OF {at}")
        assert wrong(answer.rows, last) == "", at
        last = int(str(answer.rows[0][0]))


def test_a_storage_service_that_stands_still_goes_on(running: Frozen) -> None:
    stranger = Stranger(running.bootstrap, running.environment.settings.namespace)
    _, write = stranger.done("create", collection="t1", description=TABLE, group="x1")
    with running.frozen("storage"):
        id_ = stranger.send("heartbeat", capability=write)
        with pytest.raises(TimeoutError):
            stranger.outcome(id_, 12)
    assert stranger.outcome(id_, PATIENCE_S)["status"] == "DONE"
    write = stranger.write(write, 5, rows(("a", 1, 3, 1)))
    assert running.environment.children["storage"].starts == 1
    stranger.close()


def test_a_storage_service_that_was_followed_writes_nothing_more(running: Frozen) -> None:
    namespace = running.environment.settings.namespace
    stranger, reader = (
        Stranger(running.bootstrap, namespace),
        Reader(running.bootstrap, namespace),
    )
    _, write = stranger.done("create", collection="t2", description=TABLE, group="x2")
    write = stranger.write(write, 5, rows(("a", 1, 3, 1)))
    with running.frozen("storage") as pid, running.another("storage"):
        write = stranger.write(write, 10, rows(("b", 2, 7, 1)))  # the second one answers
        signal_group(pid, signal.SIGCONT)
        for upper in range(11, 31):
            write = stranger.write(write, upper, rows(("c", upper, upper - 1, 1)))
        child = running.environment.children["storage"]
        eventually(lambda: child.is_over and child.pid is None, PATIENCE_S)
        assert "another service has taken over" in child.log_file.read_text()
    expected = {("a", 1): 1, ("b", 2): 1, **{("c", upper): 1 for upper in range(11, 31)}}
    assert reader.snapshot("x2", "t2", 29) == expected
    stranger.close()
    reader.close()


def test_a_coordinator_that_was_followed_decides_nothing_more(running: Frozen) -> None:
    """The last test: an environment ends with its coordinator."""
    environment = running.environment
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    files = running.scratch / "coordinator2"
    with (
        running.frozen("coordinator") as pid,
        running.another("coordinator", listen=f"127.0.0.1:{port}", directory=str(files)),
    ):
        client = Client(f"http://127.0.0.1:{port}")
        eventually(client.is_ready, PATIENCE_S)
        running.send()
        eventually(lambda: seen(client) == running.sent, PATIENCE_S)
        client.run("CREATE MATERIALIZED VIEW w AS SELECT max(v) AS most FROM s")
        signal_group(pid, signal.SIGCONT)
        try:
            seen(environment.client)
            environment.client.run("CREATE MATERIALIZED VIEW zombie AS SELECT 1 AS one")
        except SlackwaterError:
            pass  # it may not answer; if it does, it is right
        child = environment.children["coordinator"]
        eventually(lambda: child.is_over and child.pid is None, PATIENCE_S)
        assert {description["name"] for description in client.objects()} == {"s", "v", "w"}
        running.send()
        eventually(lambda: seen(client) == running.sent, PATIENCE_S)
        most = "SELECT most FROM w"
        eventually(lambda: client.run(most)[0].rows == ((running.sent,),), PATIENCE_S)
        with pytest.raises(InvalidStatement, match="zombie"):
            client.run("DROP MATERIALIZED VIEW zombie")
