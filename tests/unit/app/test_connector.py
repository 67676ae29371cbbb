"""`slackwater connector`: the protocol's calls by hand, over all that a connector can be."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from connectors import sqlite, testing
from connectors.driver import Driver
from connectors.protocol import messages
from connectors.transport.errors import ConnectorFailed
from connectors.transport.local import Local
from connectors.transport.rpc import Rpc, server
from connectors.transport.stdio import Command
from schemas.materialize_pb2 import SpecRequest
from streams.app.connector import command
from streams.app.connector.lookup import driver_of

PROGRAM = str(Path(sys.executable).with_name("slackwater"))


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.json"
    value = {
        "task": "shop",
        "config": {"path": str(tmp_path / "shop.db")},
        "bindings": [
            {
                "collection": {
                    "name": "shop/revenue",
                    "keys": ["country"],
                    "fields": [
                        {"name": "country"},
                        {"name": "orders", "types": ["integer"]},
                        {"name": "notes", "types": ["array"], "required": False},
                    ],
                },
                "resource": {"table": "revenue"},
                "select": ["orders"],
            }
        ],
    }
    path.write_text(json.dumps(value))
    return path


def run(*words: str) -> Any:
    return CliRunner().invoke(command.app, list(words))


def test_spec_shows_the_configurations() -> None:
    done = run("spec", "postgres")
    assert done.exit_code == 0
    assert "extensions: delete" in done.output
    assert "  host (string required): Name or address of the server" in done.output
    assert "  password (string secret): " in done.output
    answer = json.loads(run("spec", "sqlite", "--json").output)
    assert json.loads(answer["endpointSpecSchema"])["required"] == ["path"]


def test_validate_and_apply(task: Path, tmp_path: Path) -> None:
    done = run("validate", "sqlite", str(task))
    assert done.exit_code == 0, done.output
    assert "revenue\n" in done.output
    assert "  country: LOCATION_REQUIRED: it is part of the key\n" in done.output
    dry = run("apply", "sqlite", str(task), "--dry-run")
    assert 'CREATE TABLE "revenue"' in dry.output
    assert (
        not sqlite3.connect(tmp_path / "shop.db")
        .execute("SELECT * FROM sqlite_schema")
        .fetchall()
    )
    assert run("apply", "sqlite", str(task)).output == dry.output
    assert run("apply", "sqlite", str(task)).output == "nothing to do\n"
    columns = "SELECT name FROM pragma_table_info('revenue')"
    rows = sqlite3.connect(tmp_path / "shop.db").execute(columns).fetchall()
    assert rows == [("country",), ("orders",), ("flow_document",)]
    answer = json.loads(run("apply", "sqlite", str(task), "--version", "2", "--json").output)
    assert answer == {"actionDescription": "-- record task shop, version 2"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["validate", "oracle"], "no connector 'oracle': expected duckdb"),
        (["validate", "./gone"], "cannot start ./gone validate"),
        (["validate", "duckdb"], "cannot do open"),
    ],
)
def test_what_goes_wrong_is_said(task: Path, words: list[str], error: str) -> None:
    wrong = task.read_text().replace(str(task.parent), "/nowhere")
    task.write_text(wrong)
    done = run(*words, str(task))
    assert done.exit_code == 1
    assert error in done.stderr.replace("\n", " ")
    result = run(*words, str(task), "--json")
    assert error in json.loads(result.stdout)["error"]["message"]


def test_a_task_that_is_wrong_is_named(task: Path) -> None:
    task.write_text('{"task": "x", "config": {}, "bindings": [{"collection": {}}]}')
    done = run("validate", "sqlite", str(task))
    assert done.exit_code == 1
    assert "bindings.0.collection.name: Field required" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    "words", [[], ["spec", "--listen", "127.0.0.1:0"], ["load"]], ids=["none", "both", "load"]
)
def test_serve_answers_one_call_or_listens(words: list[str]) -> None:
    assert run("serve", "sqlite", *words).exit_code == 2


def test_a_connector_over_grpc_is_called(task: Path) -> None:
    running, port = server(sqlite.CONNECTOR, "127.0.0.1:0")
    done = run("apply", f"grpc:127.0.0.1:{port}", str(task), "--dry-run")
    running.stop(0).wait()
    assert 'CREATE TABLE "revenue"' in done.output


def test_a_connector_elsewhere_is_given_what_references_refer_to(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `slackwater materialize` gives it: so no file of a task has a secret in it."""
    file = tmp_path / "elsewhere.db"
    text = json.dumps({**json.loads(task.read_text()), "config": {"path": "env:PLACE"}})
    task.write_text(text)
    monkeypatch.setenv("PLACE", str(file))
    running, port = server(sqlite.CONNECTOR, "127.0.0.1:0")
    for call in ("validate", "apply"):
        done = run(call, f"grpc:127.0.0.1:{port}", str(task))
        assert done.exit_code == 0, done.output
    assert file.exists()
    monkeypatch.delenv("PLACE")
    done = run("apply", f"grpc:127.0.0.1:{port}", str(task), "--json")
    running.stop(0).wait()
    assert done.exit_code == 1
    error = json.loads(done.stdout)["error"]["message"]
    assert "expected the environment variable PLACE, actual none" in error


def test_a_channel_is_closed_however_its_user_ends() -> None:
    """A materialization that fails is tried again for days, each time with a channel."""
    with pytest.raises(KeyError), driver_of("grpc:127.0.0.1:1") as driver:
        raise KeyError("as whatever may fail")
    with pytest.raises(ValueError, match=r"(C|c)losed"):
        driver.spec(SpecRequest())


def test_a_schema_of_somebody_else_is_shown_as_far_as_it_is_known() -> None:
    odd = {"required": 7, "properties": {"a": True, "b": {"type": ["string", "null"]}}}
    assert list(command.described("endpoint", json.dumps(odd))) == [
        "endpoint configuration:",
        "  a (any)",
        "  b (['string', 'null'])",
    ]
    assert list(command.described("endpoint", '{"properties": []}')) == [
        "endpoint configuration:"
    ]


def test_a_process_serves_the_protocol(tmp_path: Path) -> None:
    """Our own command is a connector: a process a call, killed in a transaction too."""
    words = f"{PROGRAM} connector serve sqlite"
    assert json.loads(run("spec", words, "--json").output)["extensions"] == {
        "delete": True,
        "subranges": True,
    }
    subject = testing.Subject(
        driver=Driver(Local(sqlite.CONNECTOR)),
        endpoint={"path": str(tmp_path / "test.db")},
        resource=lambda table: {"table": table},
    )
    task = subject.applied("killed")
    message = messages.Open(materialization=task, version="1")
    driver = Driver(Command(words.split(), os.environ))
    with driver.open(message, messages.Extensions()) as stream:
        testing.write(stream, 1, [testing.account("a", 1, 1)])
        stream.flush(testing.checkpoint(2))
        testing.store(stream, [testing.account("a", 2, 2)])
        pipe: Any = stream.channel
        pipe.process.kill()
        with pytest.raises(ConnectorFailed, match="exit code -9"):
            stream.commit()
    with subject.session(task) as stream:
        assert testing.at(stream) == 1
        assert testing.read(stream, 3, [("a", 1), ("a", 2)]) == [testing.account("a", 1, 1)]


PAGE = "connectors/docs/DATABASES.md"


def test_a_process_listens(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    words = [PROGRAM, "connector", "serve", "duckdb", "--listen", address]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode() == f"duckdb listens on {address}\n"
        rpc = Rpc(address)
        assert Driver(rpc).spec(SpecRequest()).documentation_url == PAGE
        rpc.close()
        process.terminate()
        assert process.wait(30) != 0
