"""What views make of changes, as scripts; at every time DuckDB says the same.

The directive `view` is a case of `tests.random_sql.case`. What comes of it:

    @TIME +COUNT VALUE, ..             the view's updates, and its errors as @TIME +COUNT ! TEXT

Each script runs with a micro-batch for every time and with one for all times.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from streams.testing import Maintained
from tests.random_sql.case import parse
from tests.random_sql.judge import Judge
from tests.support.datadriven import Case, run, scripts


@cache
def judge() -> Judge:
    """One for all scripts: to open DuckDB takes as long as to judge a small view."""
    return Judge()


def handle(directive: Case) -> str:
    assert directive.directive == "view", directive.directive
    case = parse(directive.input)
    waits = "\nuntil " in f"\n{directive.input}"
    cuts = [tuple(range(case.first + 1, case.last + 2)) if waits else None, (case.last + 1,)]
    views = [judge().judge(replace(case, cuts=cut)) for cut in cuts]
    texts = {describe(view) for view in views}
    assert len(texts) == 1, "the cut of time shows in the updates"
    return texts.pop()


def describe(view: Maintained) -> str:
    lines: dict[int, list[str]] = defaultdict(list)
    for row in view.updates.to_pylist():
        time, diff = row.pop("_time"), row.pop("_diff")
        shown = ", ".join("NULL" if cell is None else str(cell) for cell in row.values())
        lines[time].append(f"@{time} {diff:+d} {shown}")
    for row in view._errors.to_pylist():
        lines[row["time"]].append(f"@{row['time']} {row['diff']:+d} ! {row['error']}")
    return "\n".join(line for time in sorted(lines) for line in sorted(lines[time]))


@pytest.mark.parametrize("script", scripts("sql"), ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    run(script, handle)
