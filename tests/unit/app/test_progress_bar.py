import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from streams.app.client import Client, Message
from streams.app.printer import Printer
from streams.app.progress_bar import LEFT_ALONE, watch
from streams.app.sql import run
from streams.errors import Determinate


def told(
    status: str,
    done: int | None = None,
    steps_left: int | None = None,
    detail: str = "",
    unit: str = "rows",
) -> Message:
    numbers = {"done": done, "total": 12_000, "unit": unit, "seconds_left": steps_left}
    hydration = None if done is None else numbers
    return {
        "id": "u2",
        "status": status,
        "detail": detail,
        "hydration": hydration,
    }


class Coordinator:
    """Tells one condition after the other; what is no condition is raised."""

    def __init__(self, *conditions: Message | BaseException) -> None:
        self._conditions = iter(conditions)
        self.asked = 0

    def objects(self) -> list[Message]:
        self.asked += 1
        condition = next(self._conditions)
        if isinstance(condition, BaseException):
            raise condition
        return [{"id": "s1", "status": "running"}, condition]


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def shown(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def watched(*conditions: Message | BaseException) -> tuple[Coordinator, str]:
    coordinator, console = Coordinator(*conditions), terminal()
    shots: list[str] = []

    def pause(_: float) -> None:
        shots.append("")

    watch(coordinator, console, "u2", pause)
    return coordinator, shown(console)


def test_a_bar_goes_with_the_rows_until_the_view_runs() -> None:
    coordinator, text = watched(
        told("starting", detail="waits for orders"),
        told("hydrating", 0),
        told("hydrating", 9_000, 7),
        told("running"),
    )
    assert coordinator.asked == 4
    assert "9,000 of 12,000 rows" in text
    assert "7 s left" in text


def test_a_source_counts_messages() -> None:
    _, text = watched(
        told("hydrating", 9_000, unit="messages"), told("running", unit="messages")
    )
    assert "9,000 of 12,000 messages" in text


@pytest.mark.parametrize(
    "end",
    [told("failed", 5), told("stalled"), told("no replica"), Determinate("nobody answers")],
    ids=["failed", "stalled", "nobody computes", "nobody answers"],
)
def test_what_shows_no_progress_is_not_waited_for(end) -> None:
    coordinator, _ = watched(told("hydrating", 5), end)
    assert coordinator.asked == 2


def test_ctrl_c_leaves_it_to_itself() -> None:
    _, text = watched(told("hydrating", 5), KeyboardInterrupt())
    assert LEFT_ALONE in text


class Making(Client):
    """Makes a source and a view; whoever asks for objects is remembered."""

    def stream(self, text: str) -> Iterator[Message]:
        yield {"type": "complete", "tag": "CREATE SOURCE", "facts": {"id": "s1"}}
        yield {"type": "complete", "tag": "CREATE MATERIALIZED VIEW", "facts": {"id": "u2"}}

    def objects(self) -> list[Message]:
        raise Determinate(f"asked for objects at {self.url}")


def test_only_a_shell_on_a_terminal_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("streams.app.sql.watch", lambda *arguments: seen.append(arguments[2]))
    quiet = Printer(Console(file=io.StringIO()), as_json=False)
    assert run(Making("http://nowhere"), "CREATE ...", quiet)
    assert seen == []
    assert run(Making("http://nowhere"), "CREATE ...", quiet, terminal())
    assert seen == ["s1", "u2"]
