"""`slackwater topic` on a real broker with nobody else running."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from schemas import rows
from streams.app.topic import command
from streams.ids import Topic
from streams.kafka.client import admin
from streams.kafka.client.broker import KafkaBroker
from streams.kafka.client.raw_producer import ForeignProducer
from streams.kafka.embedded import EmbeddedBroker
from streams.kafka.settings import ClientSettings
from streams.kafka.topics import TopicKind, TopicSpec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def name() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def run(broker: EmbeddedBroker):
    def call(*arguments: str, text: str = "", code: int = 0) -> list[dict[str, object]]:
        options = ["--brokers", broker.bootstrap, "--json"]
        done = CliRunner().invoke(command.app, [*arguments, *options], input=text)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    return call


def error_of(answer: list[dict[str, object]]) -> str:
    error = answer[-1]["error"]
    assert isinstance(error, dict)
    return str(error["message"])


def test_a_topic_from_its_creation_to_its_end(run, name: str, tmp_path: Path) -> None:
    assert run("create", name, "--partitions", "2") == [{"topic": name, "partitions": 2}]
    assert "exists, with 2 partitions" in error_of(run("create", name, code=1))
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 1, "amount": 12.50}\n{"id": 2, "amount": 7.50}\n')
    assert run("produce", name, str(file), "--key", "id") == [{"topic": name, "messages": 2}]
    run("produce", name, "--key", "id", "--delete", text='{"id": 1}')
    consumed = [(record["key"], record["value"]) for record in run("consume", name)]
    assert sorted(consumed, key=str) == [
        ("1", '{"id": 1, "amount": 12.50}'),
        ("1", None),
        ("2", '{"id": 2, "amount": 7.50}'),
    ]
    assert len(run("consume", name, "--limit", "2")) == 2
    assert {"topic": name, "partitions": 2, "offsets": 3} in run("list")
    assert "confirm with --yes" in error_of(run("delete", name, code=1))
    assert run("delete", name, "--yes") == [{"topic": name, "deleted": True}]
    assert f"no topic '{name}'" in error_of(run("consume", name, code=1))


def test_produce_makes_the_topic_and_stops_at_a_bad_line(run, name: str) -> None:
    answer = run("produce", name, text='{"id": 1}\n\n{"id": \n', code=1)
    assert error_of(answer).startswith("line 3: expected JSON")
    run("produce", name, text='{"id": 1}\n')
    assert {"topic": name, "partitions": 4, "offsets": 1} in run("list")


def test_settings_go_to_the_broker_which_may_refuse_them(run, name: str) -> None:
    assert run("create", name, "--set", "cleanup.policy=compact")[0]["topic"] == name
    message = error_of(run("create", f"{name}-2", "--set", "retention.ms=soon", code=1))
    assert "retention.ms" in message


def test_rows_of_an_output_topic_are_decoded(run, broker: EmbeddedBroker, name: str) -> None:
    settings, namespace = ClientSettings(broker.bootstrap), f"ns{uuid.uuid4().hex[:8]}"
    schema = rows.row_schema("out", [("country", "VARCHAR")])
    kafka, producer = KafkaBroker(settings), ForeignProducer(settings)
    schemas = Topic(f"{namespace}.schemas")
    kafka.topics.create(
        [TopicSpec(topic, 1, TopicKind.RAW) for topic in (schemas, Topic(name))]
    )
    kafka.close()
    producer.send(schemas, schema.text.encode(), key=schema.fingerprint)
    producer.send(Topic(name), rows.encode_rows(schema, [pa.array(["NL"])])[0].as_py())
    (shown,) = run("consume", name, "--namespace", namespace)
    assert shown["value"] == {"country": "NL"}
    assert "belongs to the environment" in error_of(
        run("delete", schemas, "--namespace", namespace, "--yes", code=1)
    )
    assert schemas not in {topic["topic"] for topic in run("list", "--namespace", namespace)}


def test_no_broker_is_code_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 2.0)
    options = ["--brokers", "127.0.0.1:1", "--client", "socket.timeout.ms=500"]
    done = CliRunner().invoke(command.app, ["list", *options])
    assert done.exit_code == 3
    assert "no broker answers at 127.0.0.1:1" in done.stderr
