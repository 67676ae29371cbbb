"""One connector over every transport: the same answers, violations and failures."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from connectors.driver import Driver, Stream, Transport
from connectors.protocol import messages
from connectors.protocol.messages import Extensions, Loaded, Tuples
from connectors.protocol.violations import Rule, Side, Violation
from connectors.runtime.runner import can_pass
from connectors.runtime.task import MOST_SHARDS
from connectors.transport import rpc as rpc_module
from connectors.transport.errors import ConnectorFailed, is_known
from connectors.transport.local import Local
from connectors.transport.rpc import Rpc, server
from connectors.transport.stdio import Command
from schemas import materialize_pb2 as wire
from tests.support.file_connector import FileConnector
from tests.support.materialization_tasks import NAMES, store, task

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.support.file_connector"]


@pytest.fixture(params=["local", "stdio", "grpc"])
def transport(request: Any, monkeypatch: Any) -> Iterator[Transport]:
    monkeypatch.chdir(ROOT)
    match request.param:
        case "local":
            yield Local(FileConnector())
        case "stdio":
            yield Command(COMMAND, os.environ)
        case "grpc":
            running, port = server(FileConnector(), "127.0.0.1:0")
            rpc = Rpc(f"127.0.0.1:{port}")
            yield rpc
            rpc.close()
            running.stop(0).wait()
        case _:
            raise AssertionError(request.param)


def one_transaction(stream: Stream) -> None:
    stream.send(messages.Load(0, Tuples.of([(1,)])))
    stream.flush(b"one")
    stream.send(store(0, (1, "a", '{"id":1}')))
    stream.commit()


def opened(transport: Transport, path: Path, fail: str = "", **options: Any) -> Any:
    """A stream over an applied task; applied here, without a process for that alone."""
    spec = task(endpoint={"path": str(path), "fail": fail})
    Driver(Local(FileConnector())).apply(wire.ApplyRequest(materialization=spec, version="v1"))
    message = messages.Open(materialization=spec, version="v1", **options)
    return Driver(transport).open(message, Extensions(acknowledge=True))


def test_spec_validate_apply(transport: Transport, tmp_path: Path) -> None:
    """Seed, "RPCs": Spec, Validate and Apply, in the order in which they are called."""
    driver = Driver(transport)
    spec = driver.spec(wire.SpecRequest())
    assert json.loads(spec.endpoint_spec_schema_json)["properties"] == {
        "path": {"type": "string"}
    }
    assert spec.documentation_url == "https://example.com"
    part = wire.SpecRequest(endpoint_spec_json='{"docs": "https://example.com/de"}')
    assert driver.spec(part).documentation_url == "https://example.com/de", "it is given a part"
    assert spec.extensions == wire.Extensions(acknowledge=True)
    binding = wire.ValidateRequest.Binding(
        resource_spec_json='{"table":"t"}', collection=NAMES.spec()
    )
    validated = driver.validate(
        wire.ValidateRequest(materialization="m", endpoint_spec_json="{}", bindings=[binding])
    )
    assert list(validated.bindings[0].resource_path) == ["t"]
    assert set(validated.bindings[0].constraints) == {"id", "name", "flow_document"}
    path = tmp_path / "tables"
    apply = wire.ApplyRequest(
        materialization=task(endpoint={"path": str(path)}), version="v1", dry_run=True
    )
    assert driver.apply(apply).action_description == f"create {path}"
    assert not path.exists(), "a dry run only says"
    apply.dry_run = False
    assert driver.apply(apply).action_description == f"create {path}"
    assert driver.apply(apply).action_description == "", "empty: nothing to do"


@pytest.mark.parametrize("acknowledge", [False, True])
def test_transactions(transport: Transport, tmp_path: Path, acknowledge: bool) -> None:
    """Seed, "Transactions RPC": load, prepare, store, commit, and again."""
    path, used = tmp_path / "tables", Extensions(acknowledge=acknowledge)
    with opened(transport, path, extensions=used) as stream:
        assert stream.checkpoint == b""
        if acknowledge:
            stream.acknowledge()
        stream.send(messages.Load(0, Tuples.of([(1,), (2,)])))
        loaded, flushed = stream.flush(b"one")
        assert loaded == []
        assert flushed == messages.Flushed(b'{"flushed":1}', patch=True)
        stream.send(store(0, (1, "a", '{"id":1,"name":"a"}')))
        stream.commit()
        if acknowledge:
            stream.acknowledge()
        stream.send(messages.Load(0, Tuples.of([(1,), (3,)])))
        loaded, _ = stream.flush(b"\x0a\x00")
        assert loaded == [Loaded(0, [b'{"id":1,"name":"a"}'])]
        stream.commit()
        stream.finish()
    with opened(transport, path) as stream:
        assert stream.checkpoint == b"\x0a\x00"
        stream.finish()


def test_the_next_loads_are_sent_while_a_commit_is_under_way(
    transport: Transport, tmp_path: Path
) -> None:
    """Seed, "Loading again": loads of the next cycle do not wait for Committed."""
    with opened(transport, tmp_path / "tables") as stream:
        stream.flush(b"one")
        stream.send(store(0, (1, "a", '{"id":1}'), (2, "b", '{"id":2}')))
        stream.send(messages.StartCommit())
        stream.send(messages.Load(0, Tuples.of([(3,)])))
        with pytest.raises(Violation, match="the driver broke the rule committing"):
            stream.send(messages.Load(0, Tuples.of([(1,)])))
        with pytest.raises(Violation, match="the driver broke the rule order"):
            stream.send(messages.Flush(b"two"))
        assert stream.receive() == messages.StartedCommit()
        stream.send(messages.Load(0, Tuples.of([(1,)])))
        assert stream.flush(b"two")[0] == [Loaded(0, [b'{"id":1}'])]


@pytest.mark.parametrize("fail", ["load", "flush", "store", "commit"])
def test_a_connector_that_fails_says_why(
    transport: Transport, tmp_path: Path, fail: str
) -> None:
    path = tmp_path / "tables"
    error = f"OSError: no {fail} today"
    with opened(transport, path, fail) as stream, pytest.raises(ConnectorFailed, match=error):
        one_transaction(stream)
    assert json.loads(path.read_text())["tables"]["names"] == {}


def test_a_driver_that_breaks_a_rule_is_told(transport: Transport, tmp_path: Path) -> None:
    """The machine of the connector holds, also where the driver's was gone around."""
    with opened(transport, tmp_path / "tables") as stream:
        request = wire.TransactionRequest(commit={})
        stream.channel.send(request.SerializeToString())
        with pytest.raises(ConnectorFailed, match="the driver broke the rule order"):
            stream.receive()
    with opened(transport, tmp_path / "tables") as stream:
        stream.channel.send(b"\xff")
        with pytest.raises(ConnectorFailed, match="the driver broke the rule wire"):
            stream.receive()
    with opened(transport, tmp_path / "tables") as stream:
        stream.send(messages.Load(0, Tuples.of([(1,)])))
        stream.channel.finish()
        with pytest.raises(ConnectorFailed, match="the driver broke the rule end"):
            stream.receive()


def test_a_driver_that_goes_away_leaves_nothing(transport: Transport, tmp_path: Path) -> None:
    path = tmp_path / "tables"
    with opened(transport, path) as stream:
        stream.flush(b"one")
        stream.send(store(0, (1, "a", '{"id":1}')))
    assert json.loads(path.read_text())["tables"]["names"] == {}


def test_calls_that_are_malformed_are_refused(transport: Transport) -> None:
    with pytest.raises(
        ConnectorFailed, match="the driver broke the rule spec: materialization"
    ):
        transport.call("apply", b"")
    with pytest.raises(ConnectorFailed, match="the driver broke the rule wire"):
        transport.call("validate", b"\xff")


def command(tmp_path: Path, script: str) -> Command:
    program = tmp_path / "connector"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Command([str(program)], os.environ)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("exit 0", "expected one answer"),
        ("echo out of luck >&2; exit 3", "exit code 3: out of luck"),
        ("printf '\\002\\000\\000\\000a'", "the connector broke the rule wire"),
        ("printf '\\377\\377\\377\\377'", "the connector broke the rule wire"),
        ("printf '\\001\\000'", "the connector broke the rule wire"),
        ("printf '\\001\\000\\000\\000\\377'", "the connector broke the rule wire"),
        ("printf '\\000\\000\\000\\000\\000\\000\\000\\000'", "expected one answer"),
        ("printf '\\000\\000\\000\\000'", "the connector broke the rule spec"),
    ],
    ids=range(8),
)
def test_a_process_that_answers_badly_is_named(tmp_path: Path, script: str, error: str) -> None:
    driver = Driver(command(tmp_path, f"cat >/dev/null; {script}"))
    with pytest.raises((ConnectorFailed, Violation), match=error):
        driver.spec(wire.SpecRequest())


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectorFailed, match=r"cannot start .*gone spec: .*No such file"):
        Command([str(tmp_path / "gone")], {}).call("spec", b"")


@pytest.mark.parametrize("what", ["die at store", "garbage at flush"])
def test_a_process_that_dies_or_writes_garbage_in_a_transaction(
    tmp_path: Path, what: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(ROOT)
    transport = Command(COMMAND, os.environ)
    with (
        opened(transport, tmp_path / "tables", what) as stream,
        pytest.raises((ConnectorFailed, Violation)) as caught,
    ):
        one_transaction(stream)
    if isinstance(caught.value, Violation):
        assert (caught.value.side, caught.value.rule) == (Side.CONNECTOR, Rule.WIRE)
    else:
        assert "ended with exit code 9" in str(caught.value)


@pytest.mark.timeout(60)
def test_a_server_has_as_many_streams_as_a_task_may_have(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """One that has no thread for a call says so, and does not let it wait for ever."""
    monkeypatch.setattr(rpc_module, "CALLS", MOST_SHARDS, raising=False)
    spec = task(endpoint={"path": str(tmp_path / "tables")})
    message = messages.Open(materialization=spec, version="v1")
    Driver(Local(FileConnector())).apply(wire.ApplyRequest(materialization=spec, version="v1"))
    running, port = server(FileConnector(), "127.0.0.1:0")
    rpc = Rpc(f"127.0.0.1:{port}")
    with ExitStack() as stack:
        stack.callback(lambda: running.stop(0).wait())
        stack.callback(rpc.close)
        for _ in range(MOST_SHARDS):
            stack.enter_context(Driver(rpc).open(message, Extensions()))
        with pytest.raises(ConnectorFailed, match="RESOURCE_EXHAUSTED"):
            rpc.call("spec", b"")


def test_that_nobody_listens_can_pass() -> None:
    rpc = Rpc("127.0.0.1:1")
    with closing(rpc), closing(rpc.transactions()) as stream:
        for call in (lambda: rpc.call("spec", b""), stream.receive):
            with pytest.raises(ConnectorFailed, match="UNAVAILABLE") as caught:
                call()
            assert is_known(caught.value)
            assert can_pass(caught.value)


@pytest.mark.parametrize("fail", ["store", "commit"])
@pytest.mark.parametrize("transport", ["stdio", "grpc"], indirect=True)
def test_of_a_connector_elsewhere_there_is_text_alone(
    transport: Transport, tmp_path: Path, fail: str
) -> None:
    """So another session is tried, and may succeed."""
    with (
        opened(transport, tmp_path / "tables", fail) as stream,
        pytest.raises(ConnectorFailed, match=f"no {fail} today") as caught,
    ):
        one_transaction(stream)
    assert not is_known(caught.value)


def test_a_process_that_ended_before_it_was_told_all_is_no_other_failure(
    tmp_path: Path,
) -> None:
    pipe = command(tmp_path, "echo out of luck >&2; exit 3").transactions()
    pipe.process.wait()
    with (
        closing(pipe),
        pytest.raises(ConnectorFailed, match="exit code 3: out of luck") as caught,
    ):
        pipe.send(bytes(1 << 20))
    assert not is_known(caught.value)
