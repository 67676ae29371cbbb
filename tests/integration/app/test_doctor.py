"""`slackwater doctor` on a real broker: what it reads there, and that it leaves nothing."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app.commands import app
from streams.app.doctor.collect import machine_facts, of_machine
from streams.errors import Determinate, InvalidUsage
from streams.ids import Topic
from streams.kafka.client import inspection
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

pytestmark = pytest.mark.integration


def checked(*options: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", *options, "--json"])
    lines = [json.loads(line) for line in done.output.splitlines()]
    return done.exit_code, {line["check"]: line for line in lines}


def test_brokers_and_topics_are_read_and_nothing_is_left(broker: EmbeddedBroker) -> None:
    kafka = KafkaBroker(ClientSettings(broker.bootstrap))
    try:
        kafka.topics.create([TopicSpec(Topic("doc.u1.log"), 1, TopicKind.LOG)])
        kafka.topics.create([TopicSpec(Topic("doc.u1.data"), 3, TopicKind.DATA)])
        before = kafka.topics.names()
        options = ("--brokers", broker.bootstrap, "--namespace")
        code, checks = checked(*options, "doc")
        assert code == 0, checks
        assert checks["brokers"]["found"] == f"all answer: {broker.bootstrap}"
        assert checks["broker version"]["found"] == "Kafka 4.1 or newer"
        assert checks["clock"]["status"] == "ok"
        assert checks["topics"]["found"].startswith("2 of namespace doc")
        assert checks["copies in sync"]["status"] == "ok"
        assert kafka.topics.names() == before

        names = (Topic("doc2.u1.log"), Topic("doc2.u1.data"))
        kafka.topics.create([TopicSpec(name, 1, TopicKind.RAW) for name in names])
        code, checks = checked(*options, "doc2", "--read-only")
        assert code == 1
        assert "doc2.u1.data: cleanup.policy: expected compact" in checks["topics"]["found"]
        assert checks["clock"]["status"] == "unknown"
    finally:
        kafka.close()


def test_why_no_broker_answers_is_said() -> None:
    with pytest.raises(Determinate, match="refused"):
        inspection.cluster(ClientSettings("127.0.0.1:1"))
    code, checks = checked("--brokers", "127.0.0.1:1")
    assert (code, "brokers" in checks, "topics" in checks) == (1, True, False)


def test_settings_that_are_none_are_refused_and_no_secret_is_shown() -> None:
    secret = (("sasl.password", "hunter2"), ("security.protocol", "hunter2"))
    with pytest.raises(InvalidUsage) as caught:
        inspection.cluster(ClientSettings("127.0.0.1:1", secret))
    assert "hunter2" not in str(caught.value)


def test_this_machine_can_run_it(tmp_path: Path) -> None:
    assert {verdict.status for verdict in of_machine(machine_facts(tmp_path))} == {"ok"}
