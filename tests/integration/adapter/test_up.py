"""`slackwater up` and `slackwater sql` as a user runs them, in processes of their own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from streams.app.environment import Environment
from streams.app.environment_access import find
from streams.app.top.snapshot import EnvironmentStatus, snapshot
from streams.errors import InvalidUsage
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.json_producer import Feed
from tests.support.processes import family, ignoring_ctrl_c, kill_all, settled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

COMMAND = [sys.executable, "-m", "streams.app.main"]


@contextmanager
def up(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A running `slackwater up`, in a session of its own as a terminal would have it."""
    command = [*COMMAND, "up", "--directory", str(directory)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            eventually(lambda: answers(directory), 180)
            yield process
        finally:
            process.kill()


def answers(directory: Path) -> bool:
    try:
        find(directory)
    except InvalidUsage:
        return False
    return True


def sql(directory: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, "sql", "--directory", str(directory), "-c", text, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def rows(directory: Path, text: str) -> list[Any]:
    """The rows of an answer, through the shell and its JSON."""
    done = sql(directory, text, "--json")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout
    return [row for message in messages if message["type"] == "rows" for row in message["rows"]]


def test_kill_9_of_its_supervisor_leaves_nothing_of_an_environment(tmp_path: Path) -> None:
    """That it comes back with its data is a test of `make test-long`.

    `make test` kills and starts again each process of it: coordinator, replica and storage in
    `test_environment.py`, the broker in `tests/integration/kafka/test_embedded.py`.
    """
    with up(tmp_path) as process:
        _, kafka, _ = find(tmp_path)
        source = f"SOURCE s FROM KAFKA (TOPIC '{raw_topic(kafka.bootstrap)}')"
        created = sql(tmp_path, f"CREATE {source} (id BIGINT) FORMAT JSON")
        assert created.returncode == 0, created.stdout
        assert [row[0] for row in rows(tmp_path, "SHOW SOURCES")] == ["s"]
        failed = sql(tmp_path, "SELECT nothing FROM s")
        assert failed.returncode == 1
        assert "error: referenced column" in failed.stdout
        everything = family(process.pid)
        assert len(everything) >= 6
        process.kill()
        settled(everything)
    assert sql(tmp_path, "SELECT 1").returncode == 3


@pytest.mark.long
def test_an_environment_survives_kill_9_of_its_supervisor(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        client, kafka, _ = find(tmp_path)
        topic = raw_topic(kafka.bootstrap)
        Feed(kafka.bootstrap).send(topic, [{"id": i, "amount": i} for i in range(100)])
        process = sql(
            tmp_path,
            f"CREATE SOURCE s FROM KAFKA (TOPIC '{topic}') (id BIGINT, amount BIGINT)"
            " FORMAT JSON; CREATE MATERIALIZED VIEW v AS SELECT id % 3 AS k, sum(amount) AS n"
            " FROM s GROUP BY 1",
        )
        assert process.returncode == 0, process.stdout
        eventually(lambda: len(client.run("SELECT * FROM v")[0].rows) == 3)
        as_of = rows(tmp_path, "SHOW MATERIALIZED VIEWS")[0][3] - 1
        query = f"SELECT k, n FROM v ORDER BY k AS OF {as_of}"
        before = rows(tmp_path, query)
        everything = family(first.pid)
        first.kill()
        settled(everything)
    with up(tmp_path) as second:
        assert rows(tmp_path, query) == before
        client, kafka, _ = find(tmp_path)
        Feed(kafka.bootstrap).send(topic, [{"id": 1000, "amount": 7}])
        total = sum(n for _, n in before) + 7
        eventually(lambda: client.run("SELECT sum(n) FROM v")[0].rows == ((total,),))
        everything = family(second.pid)
        second.send_signal(signal.SIGINT)
        assert second.wait(60) == 0
        settled(everything)


def test_ctrl_c_ends_a_subscription_and_is_no_failure(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    topic, directory = raw_topic(broker.bootstrap), str(environment.settings.directory)
    environment.sql(
        f"CREATE SOURCE followed FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON"
    )
    command = [*COMMAND, "sql", "--directory", directory, "--json", "-c", "SUBSCRIBE followed"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=ignoring_ctrl_c,  # noqa: PLW1509  one call, made before exec
    ) as process:
        assert process.stdout is not None
        types = {json.loads(process.stdout.readline())["type"] for _ in range(4)}
        assert types <= {"columns", "rows", "progress"}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    eventually(lambda: environment.client.replicas() != [])
    seen = snapshot(cast("EnvironmentStatus", environment.client.status()), at_ms=0)
    assert "followed" in [line.name for line in seen.objects]
    assert [replica["replica"] for replica in seen.replicas] == ["r1"]
    environment.sql("DROP SOURCE followed")


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0, 1, 2, 3, 5, 8])
def test_kill_9_of_the_supervisor_takes_down_what_is_starting(
    tmp_path: Path, seconds: int
) -> None:
    with up(tmp_path) as process:
        time.sleep(seconds)  # Java starts, and Spark
        everything = family(process.pid)
        process.kill()
        settled(everything)


@pytest.mark.long
def test_an_environment_survives_kill_9_of_everything(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        client, kafka, _ = find(tmp_path)
        topic = raw_topic(kafka.bootstrap)
        Feed(kafka.bootstrap).send(topic, [{"id": i} for i in range(100)])
        client.run(f"CREATE SOURCE s FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON")
        eventually(lambda: client.run("SELECT count(*) FROM s")[0].rows == ((100,),), 180)
        everything = family(first.pid)
        kill_all(everything)
        settled(everything)
    with up(tmp_path):
        client, _, _ = find(tmp_path)
        eventually(lambda: client.run("SELECT count(*) FROM s")[0].rows == ((100,),), 180)
