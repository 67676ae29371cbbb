"""`slackwater compact`: which groups there are, what it says, and how it ends."""

import json
import logging
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams.app import compact_command as command
from streams.app import signals
from streams.app.commands import app
from streams.app.compact_command import FOLLOW_MS, show
from streams.app.compact_once import named, policy_of
from streams.app.compaction_setup import groups_of
from streams.app.signals import Stop
from streams.compaction.merge_execution import Compacted, LostRace
from streams.compaction.runner import CompactionRequest, RoundResult
from streams.errors import Determinate, InvalidUsage
from streams.ids import CollectionId, Offset, Timestamp, Topic
from streams.kafka.log import ChunkRef
from streams.kafka.memory.logs import MemoryBroker
from streams.progress import frontier
from streams.storage.client.shards import Shards
from streams.storage.policy import LagBehindUpper, Until

DONE = RoundResult(
    compacted=[
        Compacted(
            collection=CollectionId("u1"),
            lower=Timestamp(0),
            upper=frontier(9),
            batches=12,
            bytes_read=3000,
            bytes_written=1000,
            rows_read=20,
            rows_written=7,
        )
    ],
    lost=[LostRace(CollectionId("u2"), "another compactor was faster")],
    rolled_up=["u3"],
    reclaimed=[ChunkRef(0, Offset(1), "k", 0, 1, 500)],
)


def test_groups_have_a_log_and_a_data_topic() -> None:
    names = ["sw.u1.log", "sw.u1.data", "sw.u2.log", "sw.a.b.log", "sw.a.b.data", "sx.u3.log"]
    topics = frozenset(Topic(name) for name in [*names, "sw.catalog", "sx.u3.data"])
    assert groups_of("sw", topics) == ["a.b", "u1"]


def test_what_the_options_say() -> None:
    assert policy_of(None, None) is None
    assert policy_of(7, None) == Until(Timestamp(7))
    assert policy_of(None, 7) == LagBehindUpper(7)
    with pytest.raises(InvalidUsage):
        policy_of(1, 2)


@pytest.mark.parametrize(
    ("failures", "why"),
    [
        ({}, "there is no collection revenu: 'slackwater shard list' has all of them$"),
        ({"u4": "a chunk is missing"}, "all of them; u4 cannot be read: a chunk is missing$"),
    ],
)
def test_a_name_that_nobody_has(failures: dict[str, str], why: str) -> None:
    broker = MemoryBroker(lambda: 0)
    shards = Shards(broker.logs, broker.chunks, broker.topics, now_ms=lambda: 0)
    with pytest.raises(InvalidUsage, match=why):
        named(broker, shards, "sw", "revenu", failures)


def test_a_round_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    show(DONE, {"u4": "chunk [x] is missing"}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "u1: 12 batches merged into one, 3,000 to 1,000 bytes, 20 to 7 updates",
        "u2: another compactor was faster",
        "reclaimed 1 chunks, 500 bytes",
        "u3: log rolled up",
        "u4: chunk [x] is missing",
    ]
    show(RoundResult(), {}, as_json=False)
    assert capsys.readouterr().out == "nothing to do\n"


def test_a_round_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show(DONE, {}, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["compacted"][0]["upper"] == 9
    assert report["compacted"][0]["collection"] == "u1"
    assert report["reclaimed"] == {"chunks": 1, "bytes": 500}
    lost = {"collection": "u2", "reason": "another compactor was faster"}
    assert (report["lost"], report["failed"]) == ([lost], {})


def test_how_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner = CliRunner()
    requests: list[Any] = []

    def run(place, request, collection, master, stopping):
        requests.append((place.kafka.bootstrap, place.namespace, request, collection, master))
        if collection == "ended":
            stopping.set()
        if collection == "broken":
            return RoundResult(), {"u1": "chunk is missing"}
        if collection == "none":
            raise Determinate("no broker answers")
        return DONE, {}

    monkeypatch.setattr(command, "run", run)

    def code(*arguments: str) -> int:
        monkeypatch.setattr(signals, "stopping", Stop())
        return runner.invoke(app, ["compact", *arguments]).exit_code

    assert code("--brokers", "b:9", "--namespace", "n", "u1", "--since", "5", "--whole") == 0
    request = CompactionRequest(policy=Until(Timestamp(5)), whole=True, wait_ms=FOLLOW_MS)
    assert requests[-1] == ("b:9", "n", request, "u1", None)
    assert code("--brokers", "b:9", "--spark") == 0
    assert requests[-1][4] == ""
    assert code("--brokers", "b:9", "--master", "local[2]") == 0
    assert requests[-1][4] == "local[2]"
    assert code("--brokers", "b:9", "ended") == 128 + signal.SIGTERM
    assert code("--brokers", "b:9", "broken") == 1
    assert code("--brokers", "b:9", "none") == 1
    assert code("--since", "1", "--lag", "1") == 2
    assert code("--directory", str(tmp_path)) == 3


def test_no_secret_is_shown(tmp_path: Path) -> None:
    """Not of settings that are refused, from the command line or from a file."""
    secrets = tmp_path / "client.properties"
    secrets.write_text("sasl.password = hunter2\nsecurity.protocol = nonsense\n")
    where = ["compact", "--brokers", "127.0.0.1:1", "--json", "--client", f"@{secrets}"]
    for more in (["--client", "acks=0"], []):
        done = CliRunner().invoke(app, [*where, *more])
        assert done.exit_code in {1, 3}
        assert "error:" in done.output
        assert "hunter2" not in done.output


@pytest.mark.parametrize("command", ["compact", "storage"])
@pytest.mark.parametrize("more", [["--client", "sasl.username=me"], ["--namespace", "shop"]])
def test_what_is_said_of_no_brokers_is_refused(
    command: str, more: list[str], tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, [command, "--directory", str(tmp_path), *more])
    assert done.exit_code == 2
    assert "expected --brokers" in done.output


def test_no_line_is_logged_to_the_output_of_an_earlier_test() -> None:
    """`slackwater storage` above logs to its output, which is closed by now."""
    assert logging.StreamHandler not in map(type, logging.getLogger().handlers)
