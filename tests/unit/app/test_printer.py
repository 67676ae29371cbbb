import io
import json
from collections.abc import Mapping

import pytest
from rich.console import Console

from streams.app.printer import Printer


def shown(*messages: Mapping[str, object], as_json: bool = False) -> str:
    out = io.StringIO()
    printer = Printer(Console(file=out, width=100), as_json=as_json)
    for message in messages:
        printer.show(message)
    return out.getvalue()


COLUMNS = {
    "type": "columns",
    "columns": [{"name": "a", "type": "X"}, {"name": "b", "type": "Y"}],
}
ERROR = {"type": "error", "error": {"message": "no [x]", "detail": "d", "hint": "h"}}


def test_rows_become_a_table() -> None:
    text = shown(
        COLUMNS,
        {"type": "rows", "rows": [[1, "[bold]x"], [None, {"k": [1]}]]},
        {"type": "complete", "tag": "SELECT 2", "facts": {}},
    )
    assert "│ 1    │ [bold]x    │" in text
    assert '│ null │ {"k": [1]} │' in text
    assert text.endswith("SELECT 2\n")


def test_control_characters_are_shown_and_not_obeyed() -> None:
    rows = [["\x1b[31mred", "two\nlines"]]
    text = shown(
        COLUMNS,
        {"type": "rows", "rows": rows},
        {"type": "error", "error": {"message": "no \x9b2J", "detail": "", "hint": ""}},
    )
    assert r"\x1b[31mred" in text
    assert r"no \x9b2J" in text
    assert "\x1b" not in text
    assert text.count("\n") == 7


def test_an_empty_answer_shows_its_columns() -> None:
    text = shown(COLUMNS, {"type": "complete", "tag": "SELECT 0", "facts": {}})
    assert "┃ a ┃ b ┃" in text


def test_progress_is_shown_when_it_moves() -> None:
    text = shown(*({"type": "progress", "frontier": time} for time in (5, 5, 6, None)))
    assert text.splitlines() == [
        "-- complete before 5",
        "-- complete before 6",
        "-- complete",
    ]


def test_an_error_shows_detail_and_hint() -> None:
    assert shown(ERROR).splitlines() == ["error: no [x]", "  detail: d", "  hint: h"]


def test_a_failure_is_told() -> None:
    printer = Printer(Console(file=io.StringIO()), as_json=False)
    assert not printer.show(ERROR)
    assert printer.show(COLUMNS)


@pytest.mark.parametrize("message", [COLUMNS, ERROR, {"type": "rows", "rows": [["ä" * 500]]}])
def test_json_is_what_came_one_object_a_line(message) -> None:
    (line,) = shown(message, as_json=True).splitlines()
    assert json.loads(line) == message


def test_a_picture_is_alone_in_its_file() -> None:
    picture = "<svg>\n  <text>a [b] c</text>\n</svg>"
    columns = {"type": "columns", "columns": [{"name": "plan", "type": "SVG"}]}
    done = {"type": "complete", "tag": "EXPLAIN", "facts": {}}
    assert shown(columns, {"type": "rows", "rows": [[picture]]}, done) == picture + "\n"
    both = shown(columns, {"type": "rows", "rows": [[picture]]}, done, COLUMNS, done)
    assert both.endswith("EXPLAIN\n")
