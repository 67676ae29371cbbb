"""The parts of `slackwater bench compute`: which of them run, and what they make of events."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from streams.bench import command
from streams.bench.compute.command import PARTS, chosen
from streams.bench.compute.many_dataflows import is_known
from streams.bench.compute.restart import OWNS, RUNS, STARTED, stages
from streams.bench.compute.scale import ComputeScale
from streams.bench.compute.subscribe import TimedFrontier, delivery_ms
from streams.bench.figures import Outcome, at_most
from streams.compute.protocol import Frontiers, ResponseMessage, Status
from streams.compute.replica_responses import InstanceStatus
from streams.ids import CollectionId
from streams.progress import frontier

U1, U2 = CollectionId("u1"), CollectionId("u2")


def test_parts_are_chosen_by_name_and_run_in_their_order() -> None:
    assert chosen("") == PARTS == ("peeks", "subscribe", "restart", "idle", "controller")
    assert chosen("controller, idle") == ("idle", "controller")
    with pytest.raises(typer.BadParameter, match=r"expected some of peeks, .*; actual speed"):
        chosen("idle,speed")


def test_the_command_runs_parts_at_the_scale_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []

    def measured(_, names, scale):
        calls.append((names, scale))
        return [Outcome("idle", (at_most("idle_percent", 5.0, "%", 10),))]

    monkeypatch.setattr(command, "measure_compute", measured)
    file = tmp_path / "figures.json"
    arguments = ["compute", "--only", "idle", "--dataflows", "7", "--rows", "2000"]
    done = CliRunner().invoke(command.app, [*arguments, "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert calls == [(("idle",), ComputeScale(rows=2000, dataflows=7))]
    assert json.loads(file.read_text())["idle_percent_ratio"] == 0.5
    for wrong in (["--only", "all"], ["--dataflows", "1"], ["--rows", "0"], ["--events", "0"]):
        assert CliRunner().invoke(command.app, ["compute", *wrong]).exit_code == 2


def test_frontiers_are_known_once_a_replica_has_reported_all() -> None:
    def heard(*responses: Frontiers | Status) -> InstanceStatus:
        status = InstanceStatus().begin(0.0)
        for number, response in enumerate(responses):
            status = status.step(ResponseMessage("", "r1", number, response), 0.0)
        return status

    both = (Frontiers(U1, frontier(5), None), Frontiers(U2, None, frontier(5)))
    assert is_known(heard(*both), [U1, U2])
    assert not is_known(heard(both[0]), [U1, U2])
    assert not is_known(heard(both[0], Status(U2, "running", "")), [U1, U2])


def test_an_append_has_arrived_with_the_first_frontier_that_includes_it() -> None:
    appended = [TimedFrontier(100, 10), TimedFrontier(110, 20), TimedFrontier(120, 30)]
    arrived = [TimedFrontier(90, 9), TimedFrontier(117.5, 20), TimedFrontier(130, 29)]
    assert delivery_ms(appended, arrived) == [17.5, 7.5]


def test_a_replica_is_at_the_stages_that_its_status_shows() -> None:
    row = {"process": "r1-b", "owns": 0, "running": 0}
    assert stages([]) == ()
    assert stages([row]) == (STARTED,)
    assert stages([{**row, "owns": 1, "running": 1}]) == (STARTED, OWNS)
    assert stages([{**row, "owns": 1, "running": 2}]) == (STARTED, OWNS, RUNS)
