"""What happened when, as a page: faults, how far each way was behind, and the figures."""

import html
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.ledger import Way

WIDTH, ROW, LEFT, CHART = 1100, 18, 150, 120
COLOURS = {
    "kill": "#c0392b",
    "pause": "#2980b9",
    "cut": "#8e44ad",
    "restart": "#d35400",
    "clock": "#27ae60",
    "delay": "#7f8c8d",
    "upgrade": "#16a085",
}
LONGEST_LAG_S = 60.0


@dataclass
class Fault:
    """Something that was done to a part, when, and until when all was well again."""

    kind: str
    part: str
    began: float
    ended: float = 0.0
    recovered: float = 0.0

    @property
    def recovery_s(self) -> float:
        """From the end of the fault until every transfer before it was in the views."""
        return self.recovered - self.ended


@dataclass
class Timeline:
    """The faults of a run."""

    began: float = field(default_factory=time.time)
    faults: list[Fault] = field(default_factory=list)

    @contextmanager
    def fault(self, kind: str, part: str) -> Iterator[Fault]:
        """One fault, which lasts as long as the block."""
        fault = Fault(kind, part, time.time())
        self.faults.append(fault)
        yield fault
        fault.ended = time.time()


def lags(way: Way) -> list[tuple[float, float]]:
    """How many seconds a way was behind the clock, by the seconds of this clock."""
    return [(now, now - reached / 1000) for now, reached in way.progress]


def picture(timeline: Timeline, ways: Sequence[Way]) -> str:
    """A row for each part with its faults, and a chart of lag for each way with times."""
    until = time.time()
    scale = (WIDTH - LEFT) / max(until - timeline.began, 1)
    parts = sorted({fault.part for fault in timeline.faults})
    charts = [way for way in ways if way.name != "postgres"]  # its progress has no times
    height = ROW * (len(parts) + 1) + (CHART + ROW) * len(charts)
    shapes = [*_rows(timeline, parts, scale)]
    for number, way in enumerate(charts):
        top = ROW * (len(parts) + 1) + (CHART + ROW) * number
        shapes += _chart(way, top, timeline.began, scale)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' font-family="sans-serif" font-size="12">{"".join(shapes)}</svg>'
    )


def _rows(timeline: Timeline, parts: Sequence[str], scale: float) -> Iterator[str]:
    for number, part in enumerate(parts):
        yield f'<text x="0" y="{ROW * number + 13}">{html.escape(part)}</text>'
    for fault in timeline.faults:
        x, y = LEFT + (fault.began - timeline.began) * scale, ROW * parts.index(fault.part)
        width = max((fault.ended - fault.began) * scale, 3)
        after = max((fault.recovered - fault.ended) * scale, 0)
        colour = COLOURS[fault.kind]
        yield (
            f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="14" fill="{colour}">'
            f"<title>{fault.kind}</title></rect>"
            f'<rect x="{x + width:.1f}" y="{y + 2}" width="{after:.1f}" height="14"'
            f' fill="{colour}" opacity="0.25"><title>{fault.recovery_s:.1f} s</title></rect>'
        )


def _chart(way: Way, top: int, began: float, scale: float) -> Iterator[str]:
    places = (
        (LEFT + (now - began) * scale, top + CHART * (1 - min(lag / LONGEST_LAG_S, 1)))
        for now, lag in lags(way)
    )
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<text x="0" y="{top + 13}">{way.name}: lag</text>'
    yield f'<text x="0" y="{top + 28}">0 to {LONGEST_LAG_S:.0f} s</text>'
    yield (
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT}" height="{CHART}" fill="#f4f4f4"/>'
        f'<polyline points="{points}" fill="none" stroke="#222"/>'
    )


def page(timeline: Timeline, ways: Sequence[Way], figures: Mapping[str, object]) -> str:
    """The report, whole."""
    legend = " ".join(
        f'<span style="color:{colour}">&#9632; {kind}</span>'
        for kind, colour in COLOURS.items()
    )
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in figures.items()
    )
    faults = "".join(
        f"<tr><td>{fault.kind}</td><td>{fault.part}</td>"
        f"<td>{fault.ended - fault.began:.1f} s</td><td>{fault.recovery_s:.1f} s</td></tr>"
        for fault in timeline.faults
    )
    return (
        "<!doctype html><meta charset=utf-8><title>End to end</title>"
        f"<h1>End to end</h1><p>{legend}; pale: until all transfers were in the views</p>"
        f"{picture(timeline, ways)}<h2>Figures</h2><table>{rows}</table>"
        "<h2>Faults</h2><table><tr><th>fault<th>of<th>lasted<th>then until all was there</tr>"
        f"{faults}</table>"
    )


def write(
    directory: Path, timeline: Timeline, ways: Sequence[Way], figures: Mapping[str, object]
) -> None:
    """The page, and the figures as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.html").write_text(page(timeline, ways, figures))
    (directory / "figures.json").write_text(json.dumps(figures, indent=1, default=str))
