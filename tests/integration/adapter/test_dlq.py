"""`slackwater dlq` on a running environment, with a real replica and a real broker."""

import json
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.app.dlq import command
from streams.app.environment import Environment
from streams.kafka.embedded import EmbeddedBroker
from tests.integration.adapter.support import eventually, raw_topic, read_all
from tests.integration.replica.json_producer import Feed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def run(directory: Path, *arguments: str, code: int = 0) -> list[dict[str, object]]:
    options = ["--directory", str(directory), "--json"]
    done = CliRunner().invoke(command.app, [*arguments, *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_of(answer: list[dict[str, object]]) -> str:
    error = answer[-1]["error"]
    assert isinstance(error, dict)
    return str(error["message"])


def test_letters_are_listed_shown_and_replayed(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    directory, name = environment.settings.directory, f"bad{uuid.uuid4().hex[:8]}"
    topic, to = raw_topic(broker.bootstrap, 1), raw_topic(broker.bootstrap, 1)
    good, quiet = f"{name}_good", f"{name}_quiet"
    Feed(broker.bootstrap).put(
        topic, [({"a": 1}, b"{"), ({}, b'{"id": 1}'), ({}, b"\xff"), ({}, b"[]")]
    )
    create = "CREATE SOURCE {} FROM KAFKA (TOPIC '{}') (id BIGINT) FORMAT JSON {};"
    environment.sql(
        create.format(name, topic, "")
        + create.format(good, to, "")
        + create.format(quiet, topic, "ON ERROR SKIP")
    )

    def listed() -> dict[object, object]:
        return {count["source"]: count["letters"] for count in run(directory, "list")}

    eventually(lambda: listed().get(name) == 3 and listed().get(good) == 0)
    assert quiet not in listed()
    shown = run(directory, "show", name)
    assert [(letter["offset"], letter["value"]) for letter in shown] == [
        (0, "{"),
        (2, {"base64": "/w=="}),
        (3, "[]"),
    ]
    assert [letter["offset"] for letter in run(directory, "show", name, "--offset", "2")] == [2]
    assert len(run(directory, "show", name, "--limit", "1")) == 1
    assert run(directory, "show", name, "--since", "2100-01-01") == []
    some = ("replay", name, "--to", to, "--where", '"offset" < 3')
    assert run(directory, *some, "--dry-run")[0]["letters"] == 2
    assert read_all(broker.bootstrap, to) == []
    assert run(directory, *some)[0]["letters"] == 2
    assert [message.value() for message in read_all(broker.bootstrap, to)] == [b"{", b"\xff"]
    run(directory, "replay", name, "--same-topic")
    eventually(lambda: listed() | {good: 2, name: 6} == listed())


def test_letters_by_event_time_are_listed_before_there_is_a_row(
    environment: Environment, broker: EmbeddedBroker
) -> None:
    directory, name = environment.settings.directory, f"timed{uuid.uuid4().hex[:8]}"
    topic = raw_topic(broker.bootstrap, 1)
    environment.sql(
        f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') (ts TIMESTAMP, WATERMARK FOR ts AS"
        " ts) FORMAT JSON"
    )

    def listed() -> dict[str, object]:
        (count,) = (count for count in run(directory, "list") if count["source"] == name)
        return count

    assert listed()["letters"] is None
    Feed(broker.bootstrap).put(topic, [({}, b"{"), ({}, b"[]")])
    eventually(lambda: listed()["letters"] == 2)
    assert str(listed()["first"]) > "2025", "when it came, and no event time"
    assert len(run(directory, "show", name, "--since", "2025-01-01")) == 2


def test_what_cannot_be_done_is_refused(
    environment: Environment, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    directory, name = environment.settings.directory, f"fine{uuid.uuid4().hex[:8]}"
    topic = raw_topic(broker.bootstrap, 1)
    environment.sql(
        f"CREATE SOURCE {name} FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON;"
        f"CREATE SOURCE {name}s FROM KAFKA (TOPIC '{topic}') (id BIGINT) FORMAT JSON"
        " ON ERROR SKIP"
    )
    assert "no source 'none'" in error_of(run(directory, "show", "none", code=1))
    assert "keeps no dead letters" in error_of(run(directory, "show", f"{name}s", code=1))
    replay = ("replay", name, "--to", "absent")
    assert "has no dead letters" in error_of(run(directory, *replay, code=1))
    Feed(broker.bootstrap).put(topic, [({}, b"{")])
    eventually(lambda: len(run(directory, "show", name)) == 1)
    assert "no topic 'absent'" in error_of(run(directory, *replay, code=1))
    own = f"{environment.settings.namespace}.registry"
    assert "belongs to the environment" in error_of(
        run(directory, "replay", name, "--to", own, code=1)
    )
    wrong = (*replay, "--where", "no_such_column")
    assert "no_such_column" in error_of(run(directory, *wrong, code=1))
    assert "no environment" in error_of(run(tmp_path, "list", code=3))
    both = CliRunner().invoke(command.app, ["replay", name])
    assert both.exit_code == 2
