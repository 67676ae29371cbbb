"""`slackwater materialize` on a real broker, killed in the middle, into a file of SQLite."""

import json
import socket
import sqlite3
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.app.materialize.dead_letters import KafkaLetters
from streams.ids import Topic
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw import RawReader
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from tests.support.collections import Collections

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

TASK = """
task: shop
connector: sqlite
config: {path: %s}
bindings:
  - collection: totals
    resource: {table: totals}
  - collection: totals
    resource: {table: log, delta_updates: true}
limits: {rows: 1, every_ms: 20}
"""


@pytest.fixture
def collections(broker: EmbeddedBroker) -> Iterator[Collections]:
    kafka = KafkaBroker(ClientSettings(broker.bootstrap))
    fixture = Collections(kafka, f"mat{uuid.uuid4().hex[:8]}")
    yield fixture
    fixture.close()
    kafka.close()


def write(collections: Collections, times: range) -> None:
    """A row a time: key n % 5 goes from n - 5 to n."""
    updates = [(time % 5, time, time, 1) for time in times]
    went = [(time % 5, time - 5, time, -1) for time in times if time >= 15]
    collections.append("u1", times[-1] + 1, [*updates, *went])


def test_it_goes_on_where_it_was_killed(
    broker: EmbeddedBroker, collections: Collections, tmp_path: Path
) -> None:
    collections.create("u1", (("key", "BIGINT"), ("total", "BIGINT")), keys=("key",))
    write(collections, range(10, 40))
    file, database = tmp_path / "shop.yaml", tmp_path / "shop.db"
    file.write_text((TASK % database).replace("totals\n    res", "u1\n    res"))
    where = ["--brokers", broker.bootstrap, "--namespace", collections.namespace, "--json"]
    command = [sys.executable, "-m", "streams.app.main", "materialize", "run", str(file)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
    with subprocess.Popen(
        [*command, *where, "--listen", at], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["state"] == "running":
                break
        while not rows_of(database, "SELECT 1 FROM sqlite_master WHERE name = 'log'") or (
            rows_of(database, "SELECT count(*) FROM log")[0][0] < 4
        ):
            assert process.poll() is None
        with urllib.request.urlopen(f"http://{at}/metrics", timeout=10) as response:
            metrics = response.read().decode()
        process.kill()
    assert (
        'slackwater_materialization_state{materialization="shop",state="running"} 1' in metrics
    )
    assert float(metrics.partition('commits_total{materialization="shop"} ')[2].split()[0]) > 0
    times = rows_of(database, "SELECT max(slackwater_time), count(*) FROM log")
    totals = rows_of(database, "SELECT sum(total) FROM totals")
    summed = rows_of(database, "SELECT sum(total * slackwater_diff) FROM log")
    assert totals == summed, f"both tables are at one time: {times}"
    write(collections, range(40, 45))
    done = subprocess.run(
        [*command, *where, "--until-caught-up"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["state"], last["time"], last["behind_ms"]) == ("done", 44, 0)
    assert rows_of(database, "SELECT key, total FROM totals ORDER BY key") == [
        (time % 5, time) for time in range(40, 45)
    ]
    changes = rows_of(database, "SELECT count(*), sum(slackwater_diff) FROM log")
    assert changes == [(65, 5)]
    drop = [word if word != "run" else "drop" for word in command]
    dropped = subprocess.run([*drop, *where], capture_output=True, text=True, check=False)
    assert json.loads(dropped.stdout)["collections"] == ["u1"], dropped.stderr


def test_dead_letters_are_in_a_topic_once(broker: EmbeddedBroker) -> None:
    """Also if another process tells of the same document."""
    settings, topic = ClientSettings(broker.bootstrap), Topic(f"dead{uuid.uuid4().hex[:8]}")
    kafka = KafkaBroker(settings)
    for _ in range(2):
        letters = KafkaLetters(kafka, "sw", "shop")
        letters.write(topic, b"1", b"one")
        letters.write(topic, b"2", b"two")
        letters.close()
    reader = RawReader(settings)
    low, high = reader.ends(topic)[0]
    assert reader.fetch(topic, 0, low, high)["value"].to_pylist() == [b"one", b"two"]
    reader.close()
    kafka.close()


def rows_of(path: Path, sql: str) -> list[Any]:
    if not path.exists():
        return []
    connection = sqlite3.connect(path, timeout=30)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
