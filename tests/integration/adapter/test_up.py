"""`slackwater up` and `slackwater sql` as a user runs them, in processes of their own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.app.reaching import find
from streams.errors import InvalidUsage
from tests.integration.adapter.support import eventually, raw_topic
from tests.integration.replica.producing import Feed
from tests.support.processes import family, kill_all, settled

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


def log_of(directory: Path, service: str) -> str:
    file = directory / "logs" / f"{service}.log"
    return file.read_text() if file.exists() else ""


def compacts(directory: Path, feed: Feed, topic: str) -> bool:
    """Whether compaction has merged something by itself, of which this makes some more."""
    feed.send(topic, [{"id": 0, "amount": 0}])
    time.sleep(1)
    return "compacted collection=" in log_of(directory, "compaction")


def sql(directory: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, "sql", "--directory", str(directory), "-c", text, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rows(directory: Path, text: str) -> list[Any]:
    """The rows of an answer, through the shell and its JSON."""
    done = sql(directory, text, "--json")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout
    return [row for each in messages if each["type"] == "rows" for row in each["rows"]]


def test_an_environment_survives_everything_and_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path) as first:
        bootstrap = json.loads((tmp_path / "environment.json").read_text())["bootstrap"]
        topic = raw_topic(bootstrap)
        Feed(bootstrap).send(topic, [{"id": i, "amount": i} for i in range(100)])
        made = sql(
            tmp_path,
            f"CREATE SOURCE s FROM KAFKA (TOPIC '{topic}') (id BIGINT, amount BIGINT)"
            " FORMAT JSON; CREATE MATERIALIZED VIEW v AS SELECT id % 3 AS k, sum(amount) AS n"
            " FROM s GROUP BY 1",
        )
        assert made.returncode == 0, made.stdout
        eventually(lambda: len(rows(tmp_path, "SELECT * FROM v")) == 3, 180)
        as_of = rows(tmp_path, "SHOW MATERIALIZED VIEWS")[0][3] - 1
        query = f"SELECT k, n FROM v ORDER BY k AS OF {as_of}"
        before = rows(tmp_path, query)
        failed = sql(tmp_path, "SELECT nothing FROM v")
        assert failed.returncode == 1
        assert "error: referenced column" in failed.stdout
        eventually(lambda: compacts(tmp_path, Feed(bootstrap), topic), 180)
        assert rows(tmp_path, query) == before
        everything = family(first.pid)
        assert len(everything) >= 6
        kill_all(everything)
        settled(everything)
    with up(tmp_path) as second:
        assert rows(tmp_path, query) == before
        Feed(json.loads((tmp_path / "environment.json").read_text())["bootstrap"]).send(
            topic, [{"id": 1000, "amount": 7}]
        )
        total = sum(n for _, n in before) + 7
        eventually(lambda: rows(tmp_path, "SELECT sum(n) FROM v") == [[total]], 180)
        everything = family(second.pid)
        second.send_signal(signal.SIGINT)
        assert second.wait(60) == 0
        settled(everything)
    assert sql(tmp_path, "SELECT 1").returncode == 3


def test_kill_9_of_the_supervisor_takes_everything_down(tmp_path: Path) -> None:
    with up(tmp_path) as process:
        time.sleep(5)  # the replica is starting Spark
        everything = family(process.pid)
        process.kill()
        settled(everything)
