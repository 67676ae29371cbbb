"""What `slackwater bench footprint` makes of what it found, and where it is refused."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams.bench import command
from streams.bench.footprint import Footprint, outcome_of
from streams.bench.process_kinds import KindUsage
from streams.bench.up_process import up_process, wait_until
from streams.errors import Determinate

FOUND = Footprint(
    answers_s=4.0,
    first_row_s=9.0,
    kinds={
        "broker": KindUsage(1, 200_000_000, 11.0),
        "Spark's JVM": KindUsage(1, 300_000_000, 20.0),
        "other services": KindUsage(7, 100_000_000, 3.0),
    },
    idle_percent={"broker": 6.0, "Spark's JVM": 1.5},
    restart_s=8.5,
)


def test_the_figures_are_of_all_processes_and_the_shares_by_kind() -> None:
    outcome = outcome_of(FOUND)
    figures = {figure.name: (figure.value, figure.met) for figure in outcome.figures}
    assert figures == {
        "footprint_mb": (600.0, True),
        "footprint_processes": (9, False),
        "first_row_s": (9.0, True),
        "first_answer_s": (4.0, None),
        "footprint_cpu_s": (34.0, None),
        "footprint_idle_cpu_percent": (7.5, None),
        "replica_killed_to_fresh_s": (8.5, False),
    }
    assert list(outcome.breakdown) == ["Spark's JVM", "broker", "other services"]
    assert outcome.breakdown["broker"] == {
        "MB": 200.0,
        "processes": 1,
        "CPU s": 11.0,
        "idle, % of a core": 6.0,
    }
    assert outcome.breakdown["other services"]["idle, % of a core"] == 0


def test_without_proc_it_is_refused_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    done = CliRunner().invoke(command.app, ["footprint"])
    assert done.exit_code == 1
    assert "expected linux, actual darwin" in " ".join(done.output.split())


def test_an_environment_that_does_not_start_says_what_it_printed(tmp_path: Path) -> None:
    (tmp_path / "environment").write_text("no directory")
    with (
        pytest.raises(Determinate, match=r"(?s)did not start: .*environment"),
        up_process(tmp_path / "environment"),
    ):
        pass


def test_what_takes_too_long_is_an_error() -> None:
    looks = iter([False, True])
    wait_until(lambda: next(looks), "it took longer")
    with pytest.raises(Determinate, match="it took longer within 0 s"):
        wait_until(lambda: False, "it took longer", 0.01)
