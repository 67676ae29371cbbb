"""Each service by its public command, as a container runs it: from brokers to a view.

Nothing but the environment's variables and options configures them; the coordinator listens
with TLS and a password, the others answer probes on this machine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from streams.kafka.embedded import EmbeddedBroker
from tests.support.processes import eventually, family, kill_all, settled, traces

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

PATIENCE_S = 300
PASSWORD = "correct horse battery"
SLACKWATER = (sys.executable, "-m", "streams.app.main")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(
    command: tuple[str, ...], variables: Mapping[str, str], log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*SLACKWATER, *command],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        ) as process,
    ):
        try:
            yield process
        finally:
            everything = family(process.pid)
            kill_all(everything)
            settled(everything)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return bool(json.load(response)["ready"])
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        return str(response.read().decode())


@dataclass(frozen=True)
class Secured:
    """How a coordinator is protected, and how clients reach it, as variables."""

    server: Mapping[str, str]
    client: Mapping[str, str]


def secured(directory: Path) -> Secured:
    authority, server = trustme.CA(), directory / "server.pem"
    authority.cert_pem.write_to_path(directory / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(server)
    (directory / "password").write_text(PASSWORD)
    address = f"127.0.0.1:{free_port()}"
    password = {"SLACKWATER_PASSWORD_FILE": str(directory / "password")}
    return Secured(
        {
            "SLACKWATER_LISTEN": address,
            "SLACKWATER_TLS_CERTIFICATE": str(server),
            "SLACKWATER_TLS_KEY": str(server),
            **password,
        },
        {
            "SLACKWATER_URL": f"https://{address}",
            "SLACKWATER_TLS_AUTHORITY": str(directory / "authority.pem"),
            **password,
        },
    )


def sql(access: Mapping[str, str], *texts: str) -> "subprocess.CompletedProcess[str]":
    parts = (part for text in texts for part in ("-c", text))
    return subprocess.run(
        [*SLACKWATER, "sql", "--json", *parts],
        env={**os.environ, **access},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def check_sql(access: Mapping[str, str]) -> None:
    """A view is created and read by whoever has the password, and by nobody else."""
    stranger = {name: value for name, value in access.items() if "PASSWORD" not in name}
    refused = sql(stranger, "SHOW SOURCES")
    assert refused.returncode == 1
    assert "expected the password" in refused.stdout + refused.stderr
    view = "CREATE MATERIALIZED VIEW v AS SELECT 6 * 7 AS answer"
    read = sql(access, view, "SELECT answer FROM v")
    assert read.returncode == 0, read.stdout + read.stderr
    assert '"rows": [[42]]' in read.stdout


def test_services_by_themselves_maintain_a_view_and_end_in_order(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    variables = {"SLACKWATER_BROKERS": broker.bootstrap, "SLACKWATER_NAMESPACE": "apart"}
    access = secured(tmp_path)
    commands = {
        "coordinator": ("coordinator",),
        "replica": ("replica", "--name", "r7", "--master", "local[2,4]"),
        "compaction": ("compaction", "--every", "1 second"),
        "storage": ("storage",),
        "serve": ("materialize", "serve"),
    }
    ports = {name: free_port() for name in commands if name != "coordinator"}
    logs = {name: tmp_path / f"{name}.log" for name in commands}
    with ExitStack() as stack:
        processes = {}
        for name, command in commands.items():
            protection = (
                {"SLACKWATER_LISTEN": f"127.0.0.1:{ports[name]}"}
                if name in ports
                else access.server
            )
            full = (*command, "--directory", str(tmp_path / name))
            running = started(full, {**variables, **protection}, logs[name])
            processes[name] = stack.enter_context(running)
        log = logs["coordinator"]
        eventually(lambda: "coordinator serves" in log.read_text(), PATIENCE_S)
        eventually(lambda: all(map(is_ready, ports.values())), PATIENCE_S)
        check_sql(access.client)
        none = "slackwater_compaction_rounds_total 0.0"
        eventually(lambda: none not in metrics(ports["compaction"]), PATIENCE_S)
        assert all("process_cpu_seconds_total" in metrics(port) for port in ports.values())
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(PATIENCE_S) for name, process in processes.items()}
    assert codes == dict.fromkeys(processes, 0)
    for name, written in logs.items():
        text = written.read_text()
        assert not traces(text), f"{name}: {text}"
        assert PASSWORD not in text
