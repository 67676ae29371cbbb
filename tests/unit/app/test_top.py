"""`slackwater top`: what is wrong comes first, and the page is as high as the terminal."""

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from streams.app.client import Client, Message
from streams.app.coordinator_access import Access
from streams.app.top.command import Looks, top
from streams.app.top.screen import duration, page
from streams.app.top.snapshot import (
    EnvironmentStatus,
    MaterializationStatus,
    ObjectStatus,
    ReplicaStatus,
    snapshot,
)
from streams.errors import Determinate

NOW = 1_790_000_000_000
REPLICA = ReplicaStatus(
    cluster="reports", replica="r1", process="r1/7", silent_ms=900, owns=2, running=3,
    hydrating=1, stalled=0, failed=0,
)  # fmt: skip
DATABASE = MaterializationStatus(
    name="shop", connector="postgres", status="running", behind_ms=84, rows_per_s=1200,
    detail=None,
)  # fmt: skip


def object_(name: str, status: str = "running", behind_ms: int | None = 100) -> ObjectStatus:
    return ObjectStatus(
        kind="materialized view",
        id=f"u{name}",
        name=name,
        status=status,
        upper=None if behind_ms is None else NOW - behind_ms,
        progress=None,
        detail="a division by zero" if status == "failed" else None,
        hydration={"done": 3, "total": 4} if status == "hydrating" else None,
    )


def environment(
    *objects: ObjectStatus, replicas: tuple[ReplicaStatus, ...] = (REPLICA,)
) -> EnvironmentStatus:
    return EnvironmentStatus(
        epoch=3,
        objects=list(objects),
        cluster_replicas=list(replicas),
        materializations=[DATABASE],
    )


def text_of(status: EnvironmentStatus, height: int | None = None, trouble: str = "") -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(page(snapshot(status, NOW), "http://here:1", height, trouble))
    file = cast("io.StringIO", console.file)
    return file.getvalue()


def test_what_is_wrong_comes_first_and_then_what_is_furthest_behind() -> None:
    seen = snapshot(
        environment(
            object_("near"),
            object_("far", behind_ms=9_000),
            object_("building", "hydrating"),
            object_("waits", "stalled"),
            object_("broken", "failed"),
        ),
        NOW,
    )
    names = [line.name for line in seen.objects]
    assert names == ["broken", "waits", "building", "far", "near"]
    assert seen.wrong == ["broken", "waits"]


def test_the_speed_is_how_upper_advances_between_two_looks() -> None:
    before = environment(object_("keeps"), object_("stands"), object_("new", behind_ms=None))
    after = environment(object_("keeps"), object_("stands"), object_("new"))
    keeps, stands, _ = after["objects"]
    assert keeps["upper"] is not None
    keeps["upper"] += 2_000
    seen = snapshot(after, NOW + 2_000, before, NOW)
    speeds = {line.name: (line.speed, line.lag_ms) for line in seen.objects}
    assert speeds == {"keeps": (1.0, 100), "stands": (0.0, 2_100), "new": (None, 2_100)}
    assert stands["upper"] == NOW - 100


def test_the_page_says_what_each_thing_does() -> None:
    shown = text_of(environment(object_("building", "hydrating"), object_("broken", "failed")))
    assert "epoch 3" in shown
    assert "1 wrong" in shown
    assert "###" in shown
    assert " 75%" in shown
    assert "a division by zero" in shown
    assert "1,200" in shown
    assert "900 ms" in shown


def test_the_headline_says_that_all_is_well_or_that_no_replica_serves() -> None:
    assert "all is well" in text_of(environment(object_("v")))
    assert "no replica" in text_of(environment(object_("v"), replicas=()))
    assert "gone" in text_of(environment(object_("v")), trouble="it is gone")


@pytest.mark.parametrize("height", [6, 8, 12, 24])
def test_the_page_fits_the_terminal_and_says_what_it_leaves_out(height: int) -> None:
    status = environment(*(object_(f"v{number}") for number in range(50)))
    status["materializations"] = []
    shown = text_of(status, height).splitlines()
    assert len(shown) <= height + 1  # of a terminal too low for a single row
    assert "more" in shown[-1]
    rows = sum(" materialized view " in line for line in shown)
    assert shown[-1].strip() == f"and {50 - rows} more"


def test_a_name_cannot_command_the_terminal() -> None:
    shown = text_of(environment(object_("\x1b[2Jv")))
    assert "\x1b" not in shown
    assert "\\x1b[2Jv" in shown


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, ""), (0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"),
        (5_400_000, "1.5 h"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_in_its_largest_unit(milliseconds: int | None, text: str) -> None:
    assert duration(milliseconds) == text


class Coordinator(Client):
    """Says one status after the other, and the last one for ever; an error is raised."""

    def status(self) -> Message:
        answer = ANSWERS.pop(0) if len(ANSWERS) > 1 else ANSWERS[0]
        if isinstance(answer, Determinate):
            raise answer
        return cast("Message", answer)


ANSWERS: list[EnvironmentStatus | Determinate] = []


@pytest.fixture
def looks() -> Looks:
    return Looks(Coordinator("http://here:1"))


def test_what_was_seen_stays_while_the_coordinator_is_away(looks: Looks) -> None:
    ANSWERS[:] = [environment(object_("v")), Determinate("away"), environment(object_("w"))]
    looks.take()
    looks.again()
    assert ([line.name for line in looks.seen.objects], looks.trouble) == (["v"], "away")
    looks.again()
    assert ([line.name for line in looks.seen.objects], looks.trouble) == (["w"], "")


def test_a_coordinator_of_another_version_is_named(looks: Looks) -> None:
    ANSWERS[:] = [cast("EnvironmentStatus", {"epoch": 1, "objects": []})]
    looks.again()
    assert "of another version: its status has no 'cluster_replicas'" in looks.trouble


@dataclass(frozen=True, slots=True)
class Ended:
    exit_code: int
    output: str


Invoke = Callable[..., Ended]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.setattr(Access, "client", lambda access: Coordinator(access.url))
    app = typer.Typer()
    app.command()(top)

    def run(*options: str) -> Ended:
        result = CliRunner().invoke(app, ["--url", "http://here:1", *options])
        return Ended(result.exit_code, result.output)

    return run


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (environment(object_("v")), 0),
        (environment(object_("v", "hydrating")), 0),
        (environment(object_("v", "stalled")), 1),
        (environment(object_("v"), replicas=()), 1),
    ],
)
def test_once_ends_with_whether_all_is_well(
    status: EnvironmentStatus, code: int, invoke: Invoke
) -> None:
    ANSWERS[:] = [status]
    assert invoke("--once").exit_code == code
    ended = invoke("--once", "--json")
    assert ended.exit_code == code
    said = json.loads(ended.output)
    assert said["objects"][0]["name"] == "v"
    assert said["trouble"] is None
    assert bool(said["wrong"]) == (status["objects"][0]["status"] == "stalled")


def test_lines_come_until_ctrl_c(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    ANSWERS[:] = [environment(object_("v")), Determinate("away")]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)
    ended = invoke("--every", "5", "--json")
    assert (ended.exit_code, pauses) == (0, [5.0, 5.0])
    lines = [json.loads(line) for line in ended.output.splitlines()]
    assert [line["trouble"] for line in lines] == [None, "away"]


def test_without_a_terminal_one_page_is_printed(invoke: Invoke) -> None:
    ANSWERS[:] = [environment(object_("v"))]
    ended = invoke()
    assert ended.exit_code == 0
    assert "all is well" in ended.output


def test_where_no_coordinator_answers_it_ends_with_3(invoke: Invoke) -> None:
    ANSWERS[:] = [Determinate("away")]
    assert invoke().exit_code == 3
