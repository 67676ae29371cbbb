"""Nexmark beside others: what our processes keep, how contents are compared, the choices."""

import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from streams.bench import command
from streams.bench.nexmark import command as nexmark
from streams.bench.nexmark import comparison, contents, workers
from streams.bench.nexmark.cases import CASES
from streams.bench.nexmark.events import COLUMNS, events
from streams.bench.nexmark.peers import installed
from streams.bench.nexmark.peers.installed import PEERS, Peer, PeerFailed
from streams.bench.nexmark.workers import Lines, Task
from streams.plan.compile import compile_view
from streams.plan.physical import Column
from streams.trace.kernel.kernel import Kernel
from tests.support.plan_tables import answer, connect

EVENTS = 3_000
TWO = (Column("a", "BIGINT"), Column("at", "TIMESTAMP"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nexmark") / "inputs"
    comparison.write_inputs(EVENTS, directory)
    return directory


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("hop", "topk")]


@pytest.mark.parametrize("name", ["q4", *LONG])
def test_two_processes_keep_what_duckdb_answers(
    name: str, inputs: Path, tmp_path: Path
) -> None:
    case, connection = CASES[name], connect()
    ran = workers.run(Task(name, inputs, tmp_path, batches=3, workers=2))
    columns = compile_view(case.view, case.catalog).columns
    rows = contents.of_view(
        workers.contents(Task(name, inputs, tmp_path, 3, 2)), columns, Kernel()
    )
    for kind in COLUMNS:
        connection.register(kind, events(EVENTS, comparison.SEED).of(kind))
    connection.register("got", rows)
    names = ", ".join(f'"{column.name}"' for column in columns)
    actual = f"SELECT {names} FROM (SELECT {names}, unnest(range(diff)) FROM got)"
    assert answer(connection, actual)[1] == answer(connection, case.query)[1]
    assert ran.updates >= rows.num_rows > 0
    assert ran.cpu_seconds > 0
    assert {"read", "decode", "exchange", "rest"} < set(ran.phases)
    assert sum(ran.phases.values()) == pytest.approx(ran.cpu_seconds)
    assert ran.dominated[0] in ran.phases


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_lines_are_those_of_the_file_in_any_parts(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "BLOCK_BYTES", 5)
    (tmp_path / "some").write_text('{"a":1}\n{}\n{"bcdefgh":22}\n')
    of_file = Lines(tmp_path / "some")
    parts_ = [of_file.part(number) for number in range(parts, 0, -1)]
    together = [line for part in parts_ for line in part.to_pylist()]
    assert together == [b'{"a":1}', b"{}", b'{"bcdefgh":22}']
    assert parts == 1 or len(parts_[0]) < 3


def test_changelogs_of_all_forms_add_up_to_the_same(tmp_path: Path) -> None:
    kernel = Kernel()
    ours = pa.table({"c0": [1, 1, 2], "c1": ["2024-01-01"] * 3, "diff": [1, 1, 1]})
    view = contents.of_view(ours, TWO, kernel)
    row, other = {"a": 1, "at": "2024-01-01 00:00:00"}, {"a": 2, "at": "2024-01-01 00:00:00"}
    deleted = {"a": 3, "at": "2024-01-01 00:00:00"}
    (tmp_path / "flink").mkdir()
    changes = [(None, row), (None, row), (None, deleted), (deleted, None), (None, other)]
    (tmp_path / "flink" / "part").write_text(
        "".join(json.dumps({"before": b, "after": a, "op": "c"}) + "\n" for b, a in changes)
    )
    flink = contents.of_flink(tmp_path / "flink", TWO, kernel)
    assert not contents.mismatch(view, flink, kernel)
    changes_too = [(row, 1), (row, 1), (other, 1), (deleted, 1)]
    (tmp_path / "pathway").write_text(
        "".join(
            json.dumps({**row, "diff": diff, "time": 2}) + "\n" for row, diff in changes_too
        )
    )
    pathway = contents.of_pathway(tmp_path / "pathway", TWO, kernel)
    assert "1 rows differ" in contents.mismatch(view, pathway, kernel)


def test_a_peer_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peers: list[list[Peer]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(plan, say):
        peers.append(list(plan.peers))
        return []

    monkeypatch.setattr(comparison, "run", run)
    result = CliRunner().invoke(command.app, ["nexmark", "--queries", "q3"])
    assert result.exit_code == 0, result.output
    output = " ".join(result.output.split())
    assert "flink is not installed" in output
    assert "pathway is not installed" in output
    assert output.count(nexmark.INSTALL) == 2
    assert peers == [[]]


def test_queries_and_peers_are_chosen_by_name() -> None:
    assert [case.name for case in nexmark.chosen(CASES, "q5, q3")] == ["q3", "q5"]
    assert nexmark.peers_of("none") == []
    assert nexmark.peers_of("") == list(PEERS.values())
    with pytest.raises(
        typer.BadParameter, match="expected some of flink, pathway, actual spark"
    ):
        nexmark.peers_of("spark")


def test_the_group_bench_names_what_is_installed() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())
    requirements = [peer.requirement for peer in PEERS.values()]
    assert project["dependency-groups"]["bench"] == requirements


def test_a_peer_that_fails_says_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(installed, "SCRIPTS", tmp_path)
    peer = Peer("odd", "odd==1", 1.0)
    peer.python.parent.mkdir(parents=True)
    peer.python.write_text("#!/bin/sh\necho no such table >&2\nexit 3\n")
    peer.python.chmod(0o755)
    with pytest.raises(PeerFailed, match="no such table"):
        peer.run([])
    peer.python.write_text('#!/bin/sh\necho hello\necho \'{"seconds": 2, "cpu_seconds": 3}\'\n')
    assert peer.run([]) == installed.RunCost(2, 3)
    peer.python.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(PeerFailed, match="expected a line of figures, actual: hello"):
        peer.run([])


def test_a_worker_that_fails_ends_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(workers.WorkerFailed, match='workers of "q3" failed'):
        workers.run(Task("q3", tmp_path / "missing", tmp_path, 1, 2))
    assert "FileNotFoundError" in capfd.readouterr().err
